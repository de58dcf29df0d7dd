from oubli.app.times import Cost


def test_one_item_is_always_short():
    assert Cost(10.0, budget=0.01).is_short(1)


def test_many_items_are_long_once_they_are_known_to_be():
    cost = Cost(0.001, budget=0.01)
    assert cost.is_short(10)
    assert not cost.is_short(11)
    for _ in range(100):
        cost.observe(10, 0.0001)
    assert cost.is_short(500)


def test_nothing_measured_changes_nothing():
    cost = Cost(0.001, budget=0.01)
    cost.observe(0, 5.0)
    assert cost.is_short(10)
