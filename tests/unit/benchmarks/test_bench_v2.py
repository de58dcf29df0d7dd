from __future__ import annotations

import json

import numpy as np

from benchmarks.bench_v2 import TARGET, as_numbers, requests_of
from benchmarks.serving.samples import Samples, adult
from tests.unit.app.http.routes.test_inference import outputs
from tests.unit.app.support import make_service, served


def test_texts_become_their_positions_and_missing_ones_too() -> None:
    rows = [[3, "b", None], [1, None, "x"], [2, "a", "x"]]
    X, y = as_numbers(Samples("few", None, "label", rows, ["no", "yes", "no"]))  # type: ignore[arg-type]
    assert X.tolist() == [[3, 2, 0], [1, 0, 1], [2, 1, 1]]
    assert y.tolist() == [0, 1, 0]


def test_requests_are_such_as_a_server_answers() -> None:
    from oubli.core import DynamicForestClassifier

    X, y = as_numbers(adult())
    assert X.shape == (32_561, 14)
    model = DynamicForestClassifier(n_estimators=3, random_state=0).fit(X[:200], y[:200])
    other = DynamicForestClassifier(n_estimators=3, random_state=0).fit(X[:200], y[:200])
    with served(make_service(model), model_name="adult") as client:
        for n_rows in (1, 100):
            request = requests_of(X, n_rows, 2)[1]
            head, _, body = request.partition(b"\r\n\r\n")
            assert head.startswith(b"POST %b HTTP/1.1\r\n" % TARGET.encode())
            answer = client.post(TARGET, content=body)
            assert np.array_equal(outputs(answer)["probabilities"], other.predict_proba(X[n_rows : 2 * n_rows]))
            assert json.loads(body)["inputs"][0]["shape"] == [n_rows, 14]
