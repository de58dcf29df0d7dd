"""The client knows every field of the server's answers, and expects none that the server does not send."""

from __future__ import annotations

import dataclasses

import pytest

from oubli.app.http.schemas import erasures, ledger, model, predictions, samples, shapes
from oubli.client import results

OF_THE_CLIENT = {"content"}  # an answer as it came
ANSWERS = {
    samples.AddAnswer: results.Added,
    samples.HeldSample: results.HeldSample,
    erasures.Receipt: results.Receipt,
    ledger.PublicKey: results.PublicKey,
    ledger.LedgerEntry: results.LedgerEntry,
    model.ModelAnswer: results.Model,
    model.JobAnswer: results.Job,
    predictions.InfluenceAnswer: results.Influence,
    predictions.Influential: results.Influential,
    model.SnapshotAnswer: results.Snapshot,
    model.RestoreAnswer: results.Restored,
    model.Dropped: results.Dropped,
    model.ReadyAnswer: results.Readiness,
    model.Feature: results.Feature,
    model.Label: results.Label,
}


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.__name__)
def test_an_answer_and_its_result_have_the_same_fields(answer: type[shapes.Shape]) -> None:
    fields = {field.name for field in dataclasses.fields(ANSWERS[answer])}
    assert fields - OF_THE_CLIENT == set(answer.model_fields)
