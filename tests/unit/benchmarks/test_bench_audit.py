from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import bench_audit
from oubli.verifier import FailedError
from tests.unit.app.support import forest


def test_what_a_server_gives_out_is_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_audit, "PAGE", 25)
    assert bench_audit.write_files(forest(60)) == 3
    assert bench_audit.audit().total > 0
    assert bench_audit.audit(2).total > 0
    export = bench_audit.EXPORT.read_text()
    bench_audit.EXPORT.write_text(export.replace('"yes"', '"no"', 1))
    with pytest.raises(FailedError):
        bench_audit.audit()
