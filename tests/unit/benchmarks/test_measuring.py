"""What is measured is what is said: audits, sets, and requests of the inference protocol."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_audit, bench_sets, bench_v2
from benchmarks.serving.samples import adult
from oubli.core import DynamicForestClassifier
from oubli.verifier import FailedError
from tests.unit.app.http.routes.test_inference import outputs
from tests.unit.app.support import forest, make_service, served


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


def test_a_small_set_is_measured() -> None:
    rows = bench_sets.measure(300)
    assert {row.cells[0] for row in rows} == {"300"}
    assert len({row.cells[1] for row in rows}) == len(rows)
    assert all(row.figure > 0 for row in rows)
    for ask in (bench_sets.log, bench_sets.signed, bench_sets.nonces):
        title, text, table = ask(300)
        assert (bool(title), bool(text), len(table.splitlines()) > 3) == (True, True, True)


def test_requests_of_the_inference_protocol_are_such_as_a_server_answers() -> None:
    X, y = bench_v2.as_numbers(adult())
    model, other = (DynamicForestClassifier(n_estimators=3, random_state=0).fit(X[:200], y[:200]) for _ in range(2))
    with served(make_service(model), model_name="adult") as client:
        for n_rows in (1, 100):
            head, _, body = bench_v2.requests_of(X, n_rows, 2)[1].partition(b"\r\n\r\n")
            assert head.startswith(b"POST %b HTTP/1.1\r\n" % bench_v2.TARGET.encode())
            answer = client.post(bench_v2.TARGET, content=body)
            assert np.array_equal(outputs(answer)["probabilities"], other.predict_proba(X[n_rows : 2 * n_rows]))
