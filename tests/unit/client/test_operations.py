"""Operations by a script: pages, jobs that are watched or asked for, and answers that are not what they should be."""

import json
from typing import Any

import pytest

from oubli.client import DataError, EphemeralError, NothingErased, ProblemError, UnexpectedAnswerError, errors
from oubli.client.operations import evidence, jobs, model, predictions, samples
from tests.unit.client.scripted import LOST, Scripted, answer, keys_of, problem, ran, receipt, session, stream

SAMPLE = {"id": "1", "subject": None, "features": {"a": 1}, "label": "x", "expires_at": None}


def state(status: str, progress: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"id": "j", "kind": "fit", "status": status, "progress": progress, **more}


def event(status: str, progress: float = 0.0, **more: Any) -> str:
    return json.dumps(state(status, progress, **more))


# --- pages


def test_a_subject_is_never_in_an_address() -> None:
    pages = (answer(200, {"samples": [SAMPLE], "next": cursor}) for cursor in ("c1", None))
    listed = ran(samples.samples(session(), subject="ada"), *pages)
    deleted = ran(samples.delete(session(), subjects="ada"), problem(422, "invalid-input"), error=ProblemError)
    for sent in (*listed.sent, *deleted.sent):
        assert "ada" not in sent.path + str(sent.query)
        assert b"ada" in sent.body  # type: ignore[operator]


# --- jobs


def test_a_job_is_watched_by_its_events() -> None:
    shared = session()
    events = event("running", 0.5), event("succeeded", 1.0, result={"model_version": 9})
    script = ran(jobs.watch(shared, "j"), stream(*events))
    assert [(one.status, one.progress) for one in script.emitted] == [("running", 0.5), ("succeeded", 1.0)]
    assert (script.closed, shared.min_version, script.sent[0].headers["Accept"]) == (1, 9, "text/event-stream")


def test_a_stream_that_breaks_is_made_up_for_by_asking_and_opened_again() -> None:
    for broken in (stream(event("running"), LOST), stream(event("running")), stream(event("running"), "{")):
        then = answer(200, state("running", 0.6)), stream(event("succeeded", 1.0))
        script = ran(jobs.watch(session(), "j"), broken, *then)
        assert [one.progress for one in script.emitted] == [0.0, 0.6, 1.0]
        assert (script.closed, bool(script.slept)) == (2, True)


def test_without_events_a_job_is_asked_for_again_and_again() -> None:
    for refused in (problem(404, "no-such-route"), answer(406), answer(200, {}, content_type="text/html")):
        states = [answer(200, state("running", 0.1))] * 3
        script = ran(jobs.watch(session(), "j"), refused, *states, answer(200, state("succeeded")))
        assert [one.status for one in script.emitted] == ["running"] * 3 + ["succeeded"]
        assert script.slept == sorted(script.slept)


def test_waiting_tells_the_progress_and_fails_with_the_servers_reason() -> None:
    told: list[float] = []
    states = [event("queued"), event("running", 0.5), event("failed", 0.5, error="No room.")]
    with pytest.raises(errors.JobFailedError, match=r"No room\.") as caught:
        Scripted(stream(*states)).run(jobs.wait(session(), "j", progress=told.append))
    assert (told, caught.value.job_id) == ([0.0, 0.5, 0.5], "j")


def test_a_cancelled_job_is_returned_as_it_is_then_and_waiting_ends_when_its_time_is_over() -> None:
    script = ran(jobs.cancel(session(), "j/1"), answer(200, state("failed", error="the job was cancelled")))
    [asked] = script.sent
    assert (script.result.status, asked.method, asked.path) == ("failed", "DELETE", "/jobs/j%2F1")
    shared, times = session(), iter([0.0, 1.0, 5.0])
    shared.clock = lambda: next(times)
    with pytest.raises(errors.WaitTimeoutError):
        Scripted(*[answer(200, state("running"))] * 2).run(jobs.wait(shared, "j", timeout=3.0))


# --- requests and answers


def test_what_changes_samples_or_fits_has_a_key() -> None:
    own = session()
    added, replaced = samples.add(own, [[1]], ["x"]), samples.replace(own, "1", [1], "x")
    for flow in (added, replaced, samples.delete(own, "1"), model.fit(own)):
        assert keys_of(ran(flow, problem(409, "ephemeral"), error=EphemeralError).sent)[0]


def test_what_cannot_be_sent_and_answers_without_predictions_are_refused() -> None:
    for key in ("", "x" * 256, "a\nb", "\u00e9"):
        with pytest.raises(DataError, match="an idempotency key"):
            Scripted().run(samples.delete(session(), "1", idempotency_key=key))
    for given in ({}, {"ids": "1", "subjects": "a"}):
        with pytest.raises(DataError, match="either ids or subjects"):
            Scripted().run(samples.delete(session(), **given))
    for content in (None, [], {}, {"predictions": 3}, {"predictions": ["a"], "classes": ["a"]}):
        with pytest.raises(UnexpectedAnswerError, match="no predictions"):
            Scripted(answer(200, content)).run(predictions.predict(session(), [[1]]))


NOTHING = {
    "id": None, "ref": None, "kind": "deletion", "guarantee": "exact", "by": "ids", "held": False, "requested": 2,
    "unlearned": 0, "absent": 2, "model_version": 7, "durable": True,
}  # fmt: skip


def test_an_erasure_without_a_receipt_or_of_an_ephemeral_server_is_not_waited_for() -> None:
    answers = answer(200, receipt(durable=False)), problem(409, "ephemeral")
    ran(evidence.wait_erased(session(), "x"), *answers, error=EphemeralError)
    made = Scripted(answer(200, NOTHING)).run(samples.delete(session(), ["a", "b"]))
    assert isinstance(made, NothingErased)
    assert (made.id, made.held, made.unlearned, made.absent, made.content) == (None, False, 0, 2, NOTHING)
    for flow in (evidence.wait_erased(session(), made), evidence.erasure(session(), made)):
        with pytest.raises(DataError, match="no receipt"):
            Scripted().run(flow)


def test_a_listed_deletion_tells_the_samples_of_each_place() -> None:
    content = {"receipt": NOTHING, "found": [{"position": 1, "samples": 3}]}
    own, script = session(), Scripted(answer(200, content))
    made = script.run(samples.delete_listing(own, subjects=["a", "b"], idempotency_key="k"))
    assert (made.found, made.receipt.held, own.min_version) == ({1: 3}, False, 7)
    for wrong in ({"receipt": NOTHING}, {"receipt": NOTHING, "found": [{"position": "SECRET"}]}):
        with pytest.raises(UnexpectedAnswerError) as refused:
            Scripted(answer(200, wrong)).run(samples.delete_listing(session(), ["a"]))
        assert "SECRET" not in str(refused.value)


def test_a_receipt_of_an_earlier_version_tells_whether_anything_was_held() -> None:
    for requested, absent, held in ((2, 2, False), (2, 1, True), (1, 0, True)):
        sent = receipt(requested=requested, absent=absent)
        made = Scripted(answer(200, sent)).run(evidence.erasure(session(), "x"))
        assert (made.held, made.by, made.deadline, made.content) == (held, None, None, sent)


def test_a_server_that_is_starting_is_waited_for() -> None:
    starting = problem(503, "not-ready", retry_after="1")
    ready = answer(200, {"status": "ready", "model_version": 3, "changes": "accepted"})
    assert Scripted(LOST, starting, ready).run(model.wait_ready(session())).model_version == 3


def test_a_cluster_is_read_and_a_node_removed_by_its_name() -> None:
    sent = {"node": "a", "role": "leader", "epoch": 3, "leader": None, "model_version": 13, "seq": 42, "nodes": []}
    assert Scripted(answer(200, sent)).run(model.cluster(session())).epoch == 3
    script = ran(model.remove_node(session(), "b/c"), answer(200, sent))
    assert script.result.nodes == []
    assert (script.sent[0].method, script.sent[0].path) == ("DELETE", "/cluster/nodes/b%2Fc")
    assert not script.sent[0].may_repeat
