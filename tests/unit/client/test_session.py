"""What is sent again, when, and under which key; and that a client asks for what it has seen."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.client import BusyError, ClientError, NoAnswerError, Request, Retries, TimedOutError
from oubli.client.messages import Answer
from tests.unit.client import scripted
from tests.unit.client.scripted import CHANGE, KEYED, LOST, OK, READ, Scripted, answer, keys_of, problem, ran, session

LATE = TimedOutError("late", may_have_been_applied=True)


def test_what_is_sent_again() -> None:
    stopped = problem(503, "changes-stopped", retry_after="1")
    of_a_proxy = Answer(503, {"retry-after": "1"}, b"")  # which may have passed it on
    soon = [problem(503, "not-ready", retry_after="1"), problem(429, "queue-full", retry_after="1")]
    never = [problem(status, kind) for status, kind in ((404, "not-held"), (500, "internal-error"))]
    never.append(problem(503, "capacity"))  # without a time
    not_made = [scripted.REFUSED, problem(429, "queue-full"), problem(503, "journal", retry_after="1")]
    in_doubt = [LOST, LATE, scripted.PROXY]
    for request, again, not_again in (
        (READ, [*in_doubt, *soon], never),
        (KEYED, [*in_doubt, stopped], [problem(409, "id-conflict"), problem(422, "invalid-input")]),
        (CHANGE, not_made, [*in_doubt, of_a_proxy, stopped]),  # the flush of the last may have failed
    ):
        for first in (*again, *not_again):
            is_repeated = first in again
            error = None if is_repeated else ClientError
            script = ran(session().exchange(request), first, *[OK] * is_repeated, error=error)
            assert script.result is (OK if is_repeated else None)
            assert (len(script.sent), len(script.slept)) == (1 + is_repeated, is_repeated)


def test_a_key_that_is_given_is_sent_and_without_repetitions_there_is_none_and_no_second_time() -> None:
    request = Request("POST", "/samples", body=b"", headers={"Idempotency-Key": "mine"})
    assert keys_of(ran(session().exchange(request), LOST, OK).sent) == ["mine", "mine"]
    script = ran(session(Retries(0)).exchange(KEYED), LOST, error=NoAnswerError)
    assert keys_of(script.sent) == [None]


def test_waits_grow_and_are_drawn_and_end() -> None:
    retries = Retries(4, first_wait=1.0, longest_wait=3.0)
    script = ran(session(retries).exchange(READ), *[LOST] * 5, error=NoAnswerError)
    assert script.slept == [0.5, 1.0, 1.5, 1.5]  # the middle of 1, 2, 3 and 3


def test_retry_after_comes_on_top_in_seconds_or_as_a_date_unless_it_is_too_long() -> None:
    date = "Thu, 01 Jan 1970 00:00:07 GMT"
    for text, seconds in {"2": 2.0, "0": 0.0, date: 7.0, "soon": 0.0, "-1": 0.0, "": 0.0}.items():
        busy = problem(429, "queue-full", retry_after=text)
        script = ran(session(Retries(first_wait=0.5)).exchange(READ), busy, OK)
        assert script.slept == [seconds + 0.25]
    script = Scripted(problem(429, "queue-full", retry_after="3600"))
    with pytest.raises(BusyError) as caught:
        script.run(session().exchange(READ))
    assert (caught.value.retry_after, script.slept) == (3600, [])


@given(st.integers(1, 60), st.floats(0.001, 10), st.floats(0.001, 100))
def test_a_wait_is_never_longer_than_asked_for(n: int, first: float, longest: float) -> None:
    wait = Retries(60, first, longest).wait(n, READ, LOST, random.Random(n))
    assert wait is not None
    assert 0 <= wait <= longest


def test_the_newest_version_is_remembered_and_asked_for() -> None:
    shared = session()

    def ask_often() -> Any:
        for _ in range(3):
            yield from shared.ask(READ)

    script = ran(ask_often(), *(answer(200, {"model_version": version}) for version in (7, 5, 6)))
    assert shared.min_version == 7
    assert [one.headers.get("Min-Version") for one in script.sent] == [None, "7", "7"]
    shared.forget_version()
    script = ran(shared.ask(READ), answer(200, [1]))
    assert (script.result, "Min-Version" in script.sent[0].headers) == ([1], False)
