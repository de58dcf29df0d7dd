"""What a server tells an auditor, and `oubli audit` of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from oubli.app.errors import StartError
from tests.unit.app.ledger.lying import Content, Log, begun, export_of

VERSION = 7
Done = tuple[int, str, str]


@dataclass
class Case:
    """What a server tells an auditor."""

    log: Log
    model: Any
    samples: list[Content]
    run: Callable[..., Done]

    def audit(
        self,
        state: Content | None = None,
        *,
        samples: Any = None,
        version: int = VERSION,
        trees: int | None = None,
        **files: Any,
    ) -> Done:
        """Audit, honestly but for what is given."""
        state = self.log.state(self.model, self.samples, VERSION) if state is None else state
        pages = [{"samples": self.samples if samples is None else samples, "next": None, "model_version": version}]
        lines = {"export.jsonl": pages, "state.json": [state], **files}
        texts = {name: "".join(json.dumps(one) + "\n" for one in content) for name, content in lines.items()}
        more = ("--receipts", "receipts.jsonl") if "receipts.jsonl" in lines else ()
        more += () if trees is None else ("--trees", trees)
        command = ("audit", "export.jsonl", "--state", "state.json", "--policy", "policy")
        return self.run(*command, *more, files={**texts, "policy": self.log.policy()})

    def cannot_tell(self, words: str, state: Content | None = None, **more: Any) -> None:
        """Require that an audit cannot be made, for a reason with these words."""
        with pytest.raises(StartError, match=words):
            self.audit(state, **more)

    def state(self, model: Any = None, samples: Any = None, version: int = VERSION, **lies: Any) -> Content:
        return self.log.state(model or self.model, self.samples if samples is None else samples, version, **lies)

    def of(self, model: Any) -> Case:
        """The same server with another model."""
        self.model, self.samples = model, export_of(model)
        return self


def make_case(model: Any, run: Callable[..., Done]) -> Case:
    """An honest server; files are written into the current folder."""
    return Case(begun(), model, export_of(model), run)


def holds(done: Done) -> tuple[str, str]:
    """Require that nothing was wrong; return stdout and what was told."""
    code, out, told = done
    assert code == 0, told
    return out, told


def refused(done: Done, rule: str) -> None:
    code, out, told = done
    assert (code, out) == (1, ""), told
    assert f"(rule: {rule})" in told
