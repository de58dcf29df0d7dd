from app.erased import ERASED, RECTIFIED, ErasedIds


def test_knows_what_went_after_a_version():
    erased = ErasedIds()
    erased.add(["a"], 2, ERASED)
    erased.add(["b", "c"], 3, RECTIFIED)
    erased.add(["c"], 4, ERASED)
    assert erased.since(["a", "b", "c", "d"], 1) == (["a", "b", "c"], 1)
    assert erased.since(["a", "b", "c", "d"], 2) == (["b", "c"], 1)
    assert erased.since(["a", "b", "c", "d"], 4) == ([], 0)
    assert erased.since([], 0) == ([], 0)


def test_grows():
    erased = ErasedIds()
    for i in range(300):
        erased.add([str(i)], i, ERASED)
    erased.add([f"x{i}" for i in range(1000)], 300, ERASED)
    assert len(erased) == 1300
    assert erased.since([str(i) for i in range(400)], 199) == ([str(i) for i in range(200, 300)], 0)


def test_holds_no_id_in_clear():
    erased = ErasedIds()
    erased.add(["grace.hopper@navy.example"], 1, ERASED)
    assert b"hopper" not in b"".join(bytes(array) for array in (erased._hashes, erased._versions, erased._kinds))
    assert ErasedIds()._key != erased._key
