"""Explanations over HTTP: those of the library, with a scope of their own, and never too long."""

import numpy as np
import pytest

import oubli.app.service.model.questions
from tests.unit.app.support import EACH_KIND, NUMBERS, forest, make_service, pick, problem_of, rows, served

MEASURES = {"forest": "probability", "tree": "probability", "incremental-boosting": "raw-score"}


@pytest.mark.parametrize("name", EACH_KIND)
def test_the_answer_is_the_library_s(name: str) -> None:
    model, target = EACH_KIND[name](), 3.0 if "numbers" in name else None
    with served(make_service(EACH_KIND[name]())) as client:
        change = {"columns": 2, "target": target}
        answer = client.post("/explain", json={"instances": rows(4), "change": change}).json()
        found = model.shap_values(rows(4))
        assert pick(answer, "attributions features") == (found.values.tolist(), found.feature_names)
        assert np.array_equal(found.base_values[0], answer["base"])
        assert answer.get("classes") == (model.classes_.tolist() if found.values.ndim == 3 else None)
        assert (answer["measure"], answer["model_version"]) == (MEASURES.get(name, "value"), 1)
        for row, told in zip(rows(4), answer["changes"], strict=True):
            nearest = model.nearest_change(row, columns=2, target=target)
            if nearest is None:
                assert told is None
            else:
                kept = {"features": nearest.features, "after": nearest.after, "distance": nearest.distance}
                assert told == {**kept, "prediction": nearest.answer}
        by_object = [dict(zip(("age", "job", "member"), row, strict=True)) for row in rows(4)]
        plain = client.post("/explain", json={"instances": by_object}).json()
        assert ("changes" in plain, plain["attributions"]) == (False, answer["attributions"])


def test_what_cannot_be_explained() -> None:
    emptied = forest()
    emptied.delete(emptied.samples_.ids())
    for model, more, problem, place in (
        (forest(schema=NUMBERS), {"change": {}}, (422, "invalid-input"), "/change/target"),
        (forest(disclosure="low"), {}, (422, "invalid-input"), ""),
        (emptied, {}, (409, "empty-model"), None),
    ):
        with served(make_service(model)) as client:
            answer = client.post("/explain", json={"instances": rows(1), **more})
            assert problem_of(answer) == problem
            assert place in [one["pointer"] for one in answer.json().get("errors", [{"pointer": None}])]


def test_what_takes_too_long_is_refused_with_how_many_rows_may_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(make_service(forest())) as client:
        each = forest().seconds_to_explain(1) + 3 * 2 * oubli.app.service.model.questions._TELLING
        monkeypatch.setattr(oubli.app.service.model.questions, "_LONGEST_EXPLANATION", 2.5 * each)
        response = client.post("/explain", json={"instances": rows(3)})
        assert problem_of(response) == (422, "invalid-input")
        error = response.json()["errors"][0]
        assert error == {"pointer": "/instances", "detail": "has 3 rows, which takes long: send at most 2"}
        assert client.post("/explain", json={"instances": rows(2)}).status_code == 200
        change = {"instances": rows(2), "change": {}}
        assert problem_of(client.post("/explain", json=change)) == (422, "invalid-input")
        monkeypatch.setattr(oubli.app.service.model.questions, "_LONGEST_EXPLANATION", 0.0)
        assert client.post("/explain", json={"instances": rows(1)}).status_code == 200
