"""The client knows every field of the server's answers, and expects none that the server does not send."""

from __future__ import annotations

import dataclasses

import pytest

from oubli.app.http import schemas
from oubli.client import results

OF_THE_CLIENT = {"content"}  # an answer as it came
ANSWERS = {
    schemas.AddAnswer: results.Added,
    schemas.HeldSample: results.HeldSample,
    schemas.Receipt: results.Receipt,
    schemas.PublicKey: results.PublicKey,
    schemas.LedgerEntry: results.LedgerEntry,
    schemas.ModelAnswer: results.Model,
    schemas.JobAnswer: results.Job,
    schemas.InfluenceAnswer: results.Influence,
    schemas.Influential: results.Influential,
    schemas.SnapshotAnswer: results.Snapshot,
    schemas.RestoreAnswer: results.Restored,
    schemas.Dropped: results.Dropped,
    schemas.ReadyAnswer: results.Readiness,
    schemas.Feature: results.Feature,
    schemas.Label: results.Label,
}


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.__name__)
def test_an_answer_and_its_result_have_the_same_fields(answer: type[schemas.Shape]) -> None:
    fields = {field.name for field in dataclasses.fields(ANSWERS[answer])}
    assert fields - OF_THE_CLIENT == set(answer.model_fields)
