"""After `erased` nothing of a sample is left: in no file of the data directory, not in the log, in no encoding."""

from __future__ import annotations

import uuid
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.process.durability.asking import fetch, send, wait_until_erased
from tests.process.durability.canaries import Canary, canary, files_with, forms, tensors, traces
from tests.process.durability.people import flags, people
from tests.process.durability.reading import finish
from tests.serving import Running, serving

FLAGS = flags("--erasure-deadline", "2")
ROW = people(1)["p0"].features
N_CANARIES = 12


@pytest.fixture
def flock() -> list[Canary]:
    """Some with the greatest and the least of their columns, some between others."""
    return [canary(i, people()[f"p{i}"].features, extreme=i < 8) for i in range(N_CANARIES)]


@pytest.fixture
def kept() -> Canary:
    """One that stays held: it must be found, or the search is worth nothing."""
    return canary(500, ROW)


@pytest.fixture
def never() -> Canary:
    """One that is never sent."""
    return canary(900, ROW)


def learn(server: Running, canaries: list[Canary]) -> None:
    content = {"samples": [one.as_json() for one in canaries]}
    assert send(server, "POST", "/samples", content, key=str(uuid.uuid4()))[0] == 201


def touch_in_passing(server: Running, flock: list[Canary]) -> None:
    """Use them in requests that keep nothing: predictions, refusals, conflicts, lists."""
    first = flock[0]
    instances = {"instances": [list(one.features) for one in flock]}
    assert send(server, "POST", "/predict", instances)[0] == 200
    asked = tensors(server.get("/v2/models/oubli")[1], [one.features for one in flock])
    assert send(server, "POST", "/v2/models/oubli/infer", asked)[0] == 200
    assert send(server, "POST", "/samples", {"samples": [first.as_json(label="<=50K")]})[0] == 409
    assert send(server, "POST", "/samples", {"samples": [first.as_json(unknown=first.word)]})[0] == 422
    assert send(server, "POST", "/samples", {"samples": [first.as_json()]})[0] == 200
    assert send(server, "POST", "/samples/search", {"subject": first.subject})[0] == 200
    assert fetch(server, "GET", f"/samples/{quote(first.id, safe='')}?format=csv")[0] == 200
    assert fetch(server, "GET", f"/samples?subject={quote(first.subject, safe='')}")[0] == 200


def unlearn(server: Running, flock: list[Canary]) -> list[str]:
    """Forget all of them, in every way there is; return the receipts' ids."""
    # Tags first, which nothing resolves until the canaries are gone: their values are in what is to be rebuilt.
    neighbours = [f"p{i}" for i in range(200, 240)]
    asked = [send(server, "POST", "/samples/batch-delete", {"ids": neighbours})]
    by_id, by_query, by_subject, batch, subjects, rectified = (flock[2 * i : 2 * i + 2] for i in range(6))
    asked += [send(server, "DELETE", f"/samples/{quote(one.id, safe='')}") for one in by_id]
    asked.append(send(server, "DELETE", "/samples?" + "&".join(f"id={quote(one.id, safe='')}" for one in by_query)))
    asked += [send(server, "DELETE", f"/samples?subject={quote(one.subject, safe='')}") for one in by_subject]
    asked.append(send(server, "POST", "/samples/batch-delete", {"ids": [one.id for one in batch]}))
    key = str(uuid.uuid4())
    content = {"subjects": [one.subject for one in subjects]}
    asked.append(send(server, "POST", "/samples/batch-delete", content, key=key))
    for one in rectified:
        # Its values go with the rectification; its id and its subject with the deletion after it.
        place = f"/samples/{quote(one.id, safe='')}"
        asked.append(send(server, "PUT", place, {"features": list(ROW), "label": "<=50K"}))
        asked.append(send(server, "DELETE", place))
    assert [status for status, _ in asked] == [200] * len(asked), asked
    assert sum(receipt["unlearned"] for _, receipt in asked) == 40 + len(flock) + len(rectified)
    return [receipt["id"] for _, receipt in asked]


def wait_for_all(server: Running, receipts: list[str]) -> None:
    for receipt in receipts:
        erased = wait_until_erased(server, receipt)
        assert erased["overdue"] is False


def search(folder: Path, canaries: list[Canary]) -> list[str]:
    return files_with(canaries, folder / "oubli-data", folder / "output.txt")


@pytest.mark.parametrize("sooner", [False, True], ids=["deadline", "scrub"])
def test_nothing_is_left_of_what_was_erased(sooner, begun, flock, kept, never):
    with serving(*FLAGS, cwd=begun) as server:
        learn(server, [*flock, kept])
        assert send(server, "POST", "/snapshot", {})[0] == 201
        assert search(begun, flock), "they are not even in the snapshot: the search is blind"
        touch_in_passing(server, flock)
        receipts = unlearn(server, flock)
        if sooner:
            finish(server, "/model/scrub")
        wait_for_all(server, receipts)
        check_search(begun, flock, kept, never)
        assert server.stop() == 0
    check_search(begun, flock, kept, never)


def check_search(folder: Path, flock: list[Canary], kept: Canary, never: Canary) -> None:
    assert search(folder, flock) == []
    assert search(folder, [never]) == []
    found = {what.partition(": ")[2] for what in search(folder, [kept])}
    assert found == forms(kept).keys()


def test_nothing_is_left_after_a_crash(begun, flock, kept, never):
    with serving(*FLAGS, cwd=begun) as server:
        learn(server, [*flock, kept])
        assert send(server, "POST", "/snapshot", {})[0] == 201
        receipts = unlearn(server, flock)
        server.process.kill()
    assert search(begun, flock), "they were gone before they could be"
    with serving(*FLAGS, cwd=begun) as server:
        for receipt in receipts:
            wait_until_erased(server, receipt)  # the crash may have taken longer than the deadline
        check_search(begun, flock, kept, never)
        assert send(server, "POST", "/predict", {"instances": [list(ROW)]})[0] == 200
        server.process.kill()
    check_search(begun, flock, kept, never)


def test_the_search_knows_every_form(flock):
    one = flock[0]
    for name, patterns in forms(one).items():
        for pattern in patterns:
            assert len(pattern) >= 4
            assert name in traces(one, b"before" + pattern + b"after")
    assert traces(flock[1], b"".join(form for forms_ in forms(one).values() for form in forms_)) == []
