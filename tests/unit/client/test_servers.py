"""Several servers: who is asked, who is asked next, and that no one else is ever sent a request."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oubli.client import ClientError, NoAnswerError, NotFoundError, NotLeaderError, Request, Retries, UnavailableError
from oubli.client.messages import Send, Sleep
from oubli.client.operations import jobs, model, predictions
from oubli.client.session import REST_SECONDS, Servers, Session, same_address
from tests.unit.client import scripted
from tests.unit.client.scripted import CHANGE, KEYED, LOST, OK, READ, REFUSED, answer, not_leader, problem, ran

A, B, C = "http://a:8000", "http://b:8000", "http://c:8000"
ALL = [A, B, C]
ELSEWHERE = "http://evil:8000"
BEHIND = problem(503, "behind", retry_after="1")
UNKNOWN = problem(404, "no-job")
RUNNING = answer(200, {"id": "j", "kind": "fit", "status": "running", "progress": 0.5})


def three(retries: Retries | None = None, first: int = 0) -> Session:
    return scripted.session(retries, Servers(ALL, first))


def one_after_another(shared: Session, *requests: Request) -> Any:
    for request in requests:
        yield from shared.exchange(request)


# --- reads


EXPORT = Request("POST", "/subjects/export", body=b"{}", is_safe=True)
BUSY = problem(429, "queue-full", retry_after="1")
WAIT = [1.05]  # Retry-After, and the middle of the first wait
HIDDEN = not_leader("http://10.0.0.7:8000")  # by a name that the caller has not given
# Requests, the answers to what is sent, who is asked, the seconds that are waited, and the error at the end.
CASES: dict[str, tuple[list[Request], list[Any], str, list[float], type[ClientError] | None]] = {
    "reads stay with one server as long as it answers": ([READ] * 4, [OK, OK, REFUSED, OK, OK], "AAABB", [], None),
    **{
        f"a read that is not answered, {number}, is asked of the next at once": ([READ], [first, OK], "AB", [], None)
        for number, first in enumerate([REFUSED, LOST, BEHIND, BUSY, scripted.PROXY])
    },
    "what is no failure is not asked of others": ([READ], [problem(422, "invalid-input")], "A", [], ClientError),
    "a read that only the leader answers goes there": ([EXPORT], [not_leader(B), OK], "AB", [], None),
    "a change follows to the leader and the next one goes there": (
        [KEYED, CHANGE], [not_leader("http://C:8000/"), OK, OK], "ACC", [], None,
    ),
    "reads do not go to the leader because changes do": ([KEYED, READ], [not_leader(B), OK, OK], "ABA", [], None),
    "the leader may be among the others by another name": ([KEYED], [HIDDEN, HIDDEN, OK], "ABC", [], None),
    "without a leader the client waits": ([KEYED], [*[not_leader(None)] * 4, OK], "ABCAB", WAIT, None),
    "a leader that dies is followed by the next": (
        [KEYED, KEYED], [OK, LOST, not_leader(None), not_leader(None), not_leader(C), OK], "AABCBC", WAIT, None,
    ),
    "a leader that goes and that others still name is waited for": (
        [CHANGE, CHANGE], [OK, REFUSED, *[not_leader(A)] * 3, REFUSED, OK], "AABCBAC", WAIT, None,
    ),
    "a leader that has no room is not left": ([KEYED], [BUSY, OK], "AA", WAIT, None),
    "when all are behind the client waits as they ask": ([READ], [BEHIND, REFUSED, BEHIND, OK], "ABCA", WAIT, None),
}  # fmt: skip


def test_who_is_asked_and_how_long_is_waited() -> None:
    for requests, answers, asked, slept, error in CASES.values():
        shared = three()
        shared.saw({"model_version": 2})
        script = ran(one_after_another(shared, *requests), *answers, error=error)
        assert (script.asked, script.slept) == ([f"http://{name.lower()}:8000" for name in asked], slept)
        assert {one.headers["Min-Version"] for one in script.sent} == {"2"}
        keys = scripted.keys_of(script.sent)
        assert len({*keys} - {None}) == requests.count(KEYED), "each has a key of its own, however often it is sent"


def test_predictions_go_to_all_in_turn_but_for_those_that_failed_a_moment_ago() -> None:
    shared = three()
    time = [0.0]
    shared.clock = lambda: time[0]
    found = answer(200, {"predictions": [1], "model_version": 3})

    def ask(n: int) -> Any:
        for _ in range(n):
            yield from predictions.predict(shared, [[1]])

    script = ran(ask(6), found, found, REFUSED, found, found, found, found)
    assert script.asked == [B, C, A, B, B, C, B]  # A was to come, and rests
    time[0] = REST_SECONDS
    assert sorted(map(str, ran(ask(3), *[found] * 3).asked)) == ALL


def test_a_job_is_asked_for_where_it_is_known_and_there_again() -> None:
    shared = three()
    for answers, asked, slept in (
        ([UNKNOWN, RUNNING], [A, B], []),
        ([RUNNING], [B], []),
        ([UNKNOWN, REFUSED, UNKNOWN, UNKNOWN, RUNNING], [B, C, A, B, A], [0.05]),  # C, which is silent, may know it
    ):
        script = ran(jobs.job(shared, "j"), *answers)
        assert (script.asked, script.slept) == (asked, slept)
    script = ran(jobs.job(three(), "j"), UNKNOWN, UNKNOWN, UNKNOWN, error=NotFoundError)
    assert (script.asked, script.slept) == (ALL, [])


def test_health_is_asked_of_each_server_once() -> None:
    for answers in ([REFUSED, LOST, REFUSED], [problem(503, "not-ready", retry_after="1")] * 3):
        down = ran(model.is_alive(three()), *answers)
        assert (down.result, down.asked, down.slept) == (False, ALL, [])
    assert ran(model.is_alive(three()), REFUSED, OK).result is True
    following = answer(503, {"status": "ready", "changes": "stopped", "reason": "following", "model_version": 1})
    leading = answer(200, {"status": "ready", "changes": "accepted", "model_version": 1})
    script = ran(model.ready(three(), for_changes=True), following, leading)
    assert (script.result.changes, script.asked) == ("accepted", [A, B])


# --- changes


def test_a_leader_that_the_caller_has_not_named_is_not_followed() -> None:
    for servers in (ALL, [A]):
        script = scripted.Scripted(*[not_leader(ELSEWHERE)] * len(servers))
        with pytest.raises(NotLeaderError) as caught:
            script.run(scripted.session(servers=Servers(servers, 0)).exchange(KEYED))
        assert (caught.value.leader, caught.value.status, caught.value.kind) == (ELSEWHERE, 307, "not-leader")
        assert (script.asked, script.slept) == (servers, [])


def test_what_may_have_been_applied_is_what_the_caller_is_told() -> None:
    script = scripted.Scripted(LOST, *[not_leader(None)] * 2)
    with pytest.raises(NoAnswerError) as caught:
        script.run(three(Retries(0)).exchange(Request("POST", "/samples", body=b"", headers={"Idempotency-Key": "k"})))
    assert caught.value.may_have_been_applied
    script = ran(three(Retries(0)).exchange(KEYED), not_leader(C), OK)
    assert script.asked == [A, C], "without repetitions the leader is found all the same"


def test_a_fit_that_dies_with_its_leader_is_told_as_unknown() -> None:
    def ask(shared: Session) -> Any:
        job = yield from model.fit(shared)
        return (yield from jobs.wait(shared, job, timeout=60))

    begun = answer(202, {"id": "j", "kind": "fit", "status": "queued", "progress": 0.0})
    ran(ask(three()), begun, UNKNOWN, UNKNOWN, UNKNOWN, error=NotFoundError)


# --- any cluster


class Cluster(scripted.Scripted):
    """Servers that change at will, and a transport that asks them and no one else."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__()
        self._draw = draw
        self.rounds: list[list[str | None]] = [[]]
        self.applied = 0

    def take(self, step: Any) -> Any:
        if isinstance(step, Sleep):
            self.rounds.append([])
            return None
        assert isinstance(step, Send)
        self.rounds[-1].append(step.server)
        found = self._draw()
        if found is OK or found is LOST:  # the worst case: what was lost was made
            self.applied += 1
        return scripted.raised(found)


LEADERS = st.sampled_from([A, B, C, ELSEWHERE, "http://[", "", None])
BEHAVIOUR = st.one_of(
    LEADERS.map(not_leader),
    st.sampled_from([OK, LOST, REFUSED, BEHIND, BUSY, scripted.PROXY]),
    st.sampled_from([problem(503, kind, retry_after="1") for kind in ("changes-stopped", "not-ready")]),
)


@given(st.data(), st.sampled_from([READ, KEYED, CHANGE]), st.integers(0, 2))
def test_only_the_addresses_given_are_asked_and_a_change_without_a_key_is_made_once(
    data: st.DataObject, request: Request, first: int
) -> None:
    cluster = Cluster(lambda: data.draw(BEHAVIOUR))
    try:
        cluster.run(three(Retries(3), first).exchange(request))
    except ClientError as error:
        is_in_doubt = isinstance(error, NoAnswerError) and error.may_have_been_applied
        assert is_in_doubt or cluster.applied == 0 or request is not CHANGE
    asked = [server for one in cluster.rounds for server in one]
    assert set(asked) <= set(ALL)
    assert all(len(one) == len(set(one)) for one in cluster.rounds)
    assert len(cluster.rounds) <= 4
    if request is CHANGE:
        assert cluster.applied <= 1


def test_the_same_address_in_two_ways_and_what_is_none() -> None:
    others = ("http://a https://a", "http://a http://a.evil", "http://a:8000 http://a:8001", "http://a/x http://a/y")
    for is_same, pairs in ((True, ("http://a HTTP://A:80/", "https://a:443/x/ https://a/x")), (False, others)):
        for one, other in (map(same_address, pair.split()) for pair in pairs):
            assert (one == other) is is_same
    assert same_address("http://[") is None
    assert Servers(ALL).leads("http://a:x") is None
    ran(scripted.session(servers=Servers([A])).exchange(CHANGE), problem(503, "not-ready"), error=UnavailableError)
