from types import SimpleNamespace

import orjson
import pytest

from oubli.app.errors import ConflictError
from oubli.app.service.changes.additions import AddBody, AddSamples, NewSamples
from oubli.app.service.changes.command import apply_all
from oubli.app.service.changes.deletions import DeleteBody, DeleteSamples, ReplaceBody
from oubli.app.service.changes.restrictions import ReleaseBody, RestrictBody
from oubli.app.service.jobs.fits import FitBody
from oubli.app.service.recovery.start import Body, decode
from oubli.core import DynamicTreeClassifier
from oubli.core.bounds import LARGEST_COUNTER
from oubli.core.errors import CapacityError
from oubli.core.planning import Turn
from oubli.core.samples.slots import with_generated
from tests.unit.app.support import CLASSES, forest, rows


def given(first_id=0):
    """What a command is told by its transaction."""
    answers = {"default_expiry": lambda: None, "now_ms": lambda: 1_700_000_000_000, "admits_empty": lambda caller: True}
    state, tombstones = SimpleNamespace(exports=0), SimpleNamespace(holds=lambda name: False)
    return SimpleNamespace(turn=Turn(next_id=first_id), commands=[], state=state, tombstones=tombstones, **answers)


def planned(model, command, transaction=None):
    command.plan(model, transaction or given())
    return command


def made(model, command, transaction=None):
    if planned(model, command, transaction).body is not None:
        apply_all(model, [command])
    return command


def batch(*ids, age=1, label="yes", subject=None, expires=None):
    each = [[value] * len(ids) for value in (label, subject, expires, False)]
    return NewSamples([[age, "a", True] for _ in ids], each[0], list(ids), each[1], each[2], each[3])


def add(model, samples, transaction=None):
    added = made(model, AddSamples(samples), transaction).result()
    return added.ids, added.n_new


def test_generated_ids_lie_above_all_numbers_of_the_request():
    assert with_generated([None, "x", None], 5) == (["5", "x", "6"], 7)
    assert with_generated([None, "7", None, "007"], 5) == (["8", "7", "9", "007"], 10)
    assert with_generated(["3", "x"], 5) == (["3", "x"], 5)
    assert with_generated(["7"], 5) == (["7"], 8)
    beyond = [str(2**53 - 1), str(2**53), str(2**53 + 1)]
    assert with_generated([beyond[0], None, None], 0) == (beyond, 2**53 + 2)
    with pytest.raises(CapacityError, match="give each sample an id"):  # a snapshot could not tell the next one
        with_generated([None], LARGEST_COUNTER)
    assert with_generated(["a"], LARGEST_COUNTER) == (["a"], LARGEST_COUNTER)


def test_what_is_held_is_the_same_or_in_conflict():
    model = forest(10)
    assert add(model, batch("a", "b", subject="p", expires=8)) == (["a", "b"], 2)
    assert planned(model, AddSamples(batch("b", "a", subject="p"))).body is None, "an expiry left out is not compared"
    assert add(model, batch("a", "c", "b", None, subject="p"), given(100)) == (["a", "c", "b", "100"], 2)
    for other in ({"age": 2}, {"label": "no"}, {"subject": "q"}, {"expires": 9}):
        with pytest.raises(ConflictError) as caught:
            planned(model, AddSamples(batch("new", "a", "newer", "b", **{"subject": "p", **other})))
        assert caught.value.rows == (1, 3)


def test_plans_name_all_that_they_touch():
    model = forest(10)

    def names(command):
        return planned(model, command).names

    deleting, adding = names(DeleteSamples(["c1"])), names(AddSamples(batch("new", subject="s1")))
    assert not deleting.isdisjoint(adding), "the subject may be gone before, or may not"
    assert not names(DeleteSamples(["s1"], "subjects")).isdisjoint(adding)
    assert not names(DeleteSamples(["absent"])).isdisjoint(names(AddSamples(batch("absent"))))
    assert deleting.isdisjoint(names(DeleteSamples(["c2"])))


# --- as they are in the journal

BODIES: list[Body] = [
    AddBody(["a", "7"], [[1.5, None], [2, "x"]], ["yes", "no"], ["s", None], None, 8, 1700000000000, "r-1"),
    AddBody(["\u00e4"], [[True, 1, 1.0, -0.0, 2**64 - 1]], [0], None, [1], 2**63 - 1, 1, None, weights=[0.5]),
    *(RestrictBody(["s"], 1700000000000, True), ReleaseBody(["s"]), DeleteBody(["a"])),
    *(ReplaceBody("a", [1], 0, None, 1700000000000), FitBody("forest", {"k": 2}, ["a", "b"], 5)),
]
FORMS = """
{"do":"add","ids":["a","7"],"rows":[[1.5,null],[2,"x"]],"labels":["yes","no"],"subjects":["s",null],"expires":null,\
"next_id":8,"at":1700000000000,"request":"r-1","retentions":null,"nonces":null,"weights":null}
{"do":"add","ids":["\u00e4"],"rows":[[true,1,1.0,-0.0,18446744073709551615]],"labels":[0],"subjects":null,\
"expires":[1],"next_id":9223372036854775807,"at":1,"request":null,"retentions":null,"nonces":null,"weights":[0.5]}
{"do":"restrict","subjects":["s"],"at":1700000000000,"keep":true}
{"do":"release","subjects":["s"]}
{"do":"delete","ids":["a"]}
{"do":"replace","id":"a","row":[1],"label":0,"subject":null,"expires":1700000000000,"nonce":null,"weight":1.0}
{"do":"fit","kind":"forest","parameters":{"k":2},"classes":["a","b"],"max_classes":5}
"""


@pytest.mark.parametrize(("body", "form"), [*zip(BODIES, FORMS.split(), strict=True)])
def test_the_form_on_disk_and_back(body: Body, form: str) -> None:
    text = form.encode()
    assert orjson.dumps(body) == orjson.dumps(decode(text)) == text, "numbers and booleans keep their types"
    assert decode(text) == body


def test_bodies_of_earlier_versions_say_less() -> None:
    """An addition neither when nor by which request; neither nonces nor weights."""
    body = decode(b'{"do":"replace","id":"a","row":[1],"label":0,"subject":null,"expires":null}')
    assert body == ReplaceBody("a", [1], 0, None, None, None, 1.0)
    assert decode(b'{"do":"fit","kind":"forest","parameters":{"k":2}}') == FitBody("forest", {"k": 2})
    body = decode(b'{"do":"add","ids":["a"],"rows":[[1]],"labels":["x"],"subjects":null,"expires":null,"next_id":1}')
    assert body == AddBody(["a"], [[1]], ["x"], None, None, 1, 0, None)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"{}", b'{"do":"merge"}', b'{"do":["add"]}', b'{"do":"delete"}', b'{"ids":[]}'),
        *(b'{"do":"restrict","subjects":[],"keep":true}', b'{"do":"delete","ids":[],"later":1}'),
        b'{"do":"delete","ids":[]',
    ],
)
def test_bodies_of_other_versions_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - two libraries raise it, with texts of their own
        decode(body)


def test_what_is_beside_samples_that_have_left_the_window_is_passed_over() -> None:
    model = DynamicTreeClassifier(window=3).start(CLASSES)
    names, labels = [f"n{i}" for i in range(5)], ["yes", "no", "yes", "no", "yes"]
    subjects, expires = ["s0", "s1", "s2", None, "s4"], [2**41, 2**41, None, 2**41, None]
    AddBody(names, rows(5), labels, subjects, expires, 5, 1700000000000).redo(model, 0)
    beside = [(name, model.samples_.subject(name), model.samples_.expiry(name)) for name in model.samples_.ids()]
    assert beside == [("n2", "s2", None), ("n3", None, 2**41), ("n4", "s4", None)]


def test_an_addition_of_what_is_held_that_changes_a_retention_is_replayed() -> None:
    live, copy = (forest(3) for _ in range(2))
    for model in (live, copy):
        model.samples_.set_subject("c1", "ada")
    held = live.samples_.get("c1")
    samples = NewSamples([held.features], [held.label], ["c1"], ["ada"], [None], [False], {"ada": 1000})
    command = made(live, AddSamples(samples))
    assert command.n_new == 0
    decode(orjson.dumps(command.body)).redo(copy, 0)
    for model in (live, copy):
        assert (model.samples_.retention("ada").period_ms, len(model.samples_)) == (1000, 3)
