"""The root over an export that a process of its own makes is that of this one, errors included."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import oubli.app.cli.set_process as set_process
from oubli.app.cli.set_process import SetProcess
from oubli.verifier import FailedError, set_root
from tests.unit.verifier.test_sets import sample

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process for any export, however small."""
    monkeypatch.setattr(set_process, "_FEW_BYTES", 0)


def export_of(samples: list[dict[str, Any]]) -> bytes:
    pages = [{"samples": samples[start : start + 4], "next": None} for start in range(0, len(samples), 4)]
    return "\n\n".join(map(json.dumps, pages)).encode() + b"\n"


def test_the_root_is_that_of_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [sample(number) for number in range(30)]
    samples.append(sample(99, restricted_at="2026-01-01T00:00:00Z", nonce=None))
    expected = set_root(samples, KEY)
    monkeypatch.setattr(set_process, "set_root", None)  # not in this process
    with SetProcess(export_of(samples), KEY) as process:
        assert process.root() == expected


def test_what_the_process_finds_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_process, "set_root", None)
    with SetProcess(export_of([sample(1), sample(1)]), KEY) as process, pytest.raises(FailedError) as caught:
        process.root()
    assert caught.value.rule == "set"


@pytest.mark.parametrize("executable", ["/bin/false", "/bin/true"])
def test_without_a_process_it_is_made_here(monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    samples = [sample(number) for number in range(9)]
    with SetProcess(export_of(samples), KEY) as process:
        assert process.root() == set_root(samples, KEY)


def test_whoever_does_not_wait_leaves_no_process_behind() -> None:
    with SetProcess(export_of([sample(1)]), KEY) as process:
        started = process._process
    assert started is not None
    assert started.poll() is not None
