"""The model as it is described: its parameters, importances, trees, columns and kinds; while others use it."""

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from oubli.api.model import ImportancesAnswer, TreeAnswer
from oubli.core.drawing import look_at_tree
from oubli.core.registry import parameters_of
from tests.unit.app.support import EACH_KIND, NUMBERS, forest, make_service, problem_of, require_conforms, rows, served


@pytest.mark.parametrize("name", EACH_KIND)
def test_what_is_told_is_the_library_s_with_all_tags_resolved(name: str) -> None:
    model = EACH_KIND[name]()
    with served(make_service(EACH_KIND[name]())) as client:
        label: Any = 3.5 if model.schema_ is NUMBERS else "yes"
        new = [{"id": f"n{i}", "features": row, "label": label} for i, row in enumerate(rows(9))]
        assert client.post("/samples", json={"samples": new}).status_code == 201
        model.add(rows(9), [label] * 9, ids=[f"n{i}" for i in range(9)])
        assert client.get("/model").json()["lazy_tags"] > 0 or name != "forest"
        told = client.get("/model/importances").json()
        require_conforms(ImportancesAnswer, told)
        assert [one["importance"] for one in told["features"]] == pytest.approx(model.feature_importances_)
        measure = "gain" if model.is_boosted else "impurity"
        assert (told["model_version"], told["n_samples"], told["measure"]) == (2, 69, measure)
        assert client.get("/model").json()["lazy_tags"] == 0
        text = client.get("/model/trees/0?levels=8").text
        assert not any(f'"c{i}"' in text or f'"s{i}"' in text for i in range(60))
        require_conforms(TreeAnswer, text)
        expected: Any = look_at_tree(model, 0, "", 8)
        assert json.loads(text) == {"kind": model.kind, **expected, "model_version": 2}
        assert client.get("/model/trees/0?node=l&levels=0").json()["node"]["path"] == "l"


def test_what_is_not_there_is_not_found(client: TestClient) -> None:
    for path in ("5", "0?node=" + "l" * 60, "999999999"):
        assert problem_of(client.get(f"/model/trees/{path}")) == (404, "no-tree")


def test_columns_are_told_with_ranges_and_categories() -> None:
    with served(make_service()) as client:
        described = client.get("/model").json()
        expected = {"label": {"name": "income", "type": "string"}, "pending_erasures": 0, "overdue_erasures": 0}
        assert expected.items() <= described.items()
        assert described["features"][1] == {"name": "job", "type": "categorical", "dtype": "float32"}
        assert described["memory_bytes"] > 1000
        strange = '<img src=x onerror="alert(1)">\u202eabc'
        new = {"samples": [{"id": "n", "features": [None, strange, None], "label": "yes"}]}
        assert client.post("/samples", json=new).status_code == 201
        age, job, member = client.get("/model/columns").json()["columns"]
        ages = [row[0] for row in rows(60)]
        assert (age["least"], age["greatest"], age["missing"]) == (min(ages), max(ages), 1)
        assert job["categories"] == ["a", "b", "c", strange]
        assert (job["n_categories"], job["missing"], member["missing"]) == (4, 0, 1)
        client.request("DELETE", "/samples/n")
        assert strange not in client.get("/model/columns").json()["columns"][1]["categories"]
    with served(make_service(forest(0))) as client:
        empty = client.get("/model/columns").json()["columns"]
        assert (empty[0]["least"], empty[1]["categories"]) == (None, [])


def test_kinds_are_told_as_a_fit_takes_them(client: TestClient) -> None:
    kinds = {one["kind"]: one for one in client.get("/model/kinds").json()["kinds"]}
    in_force = {"forest": True, "tree": False, "online-boosting": False, "incremental-boosting": False}
    assert {name: one["in_force"] for name, one in kinds.items()} == in_force
    told = {one["name"]: one for one in kinds["forest"]["parameters"]}
    assert set(told) == {one.name for one in parameters_of("forest")} - {"n_jobs"}
    trees = told["n_estimators"]
    assert (trees["default"], trees["value"], trees["least"], trees["types"]) == (100, 5, 1, ["integer"])
    assert told["criterion"]["choices"] == ["gini", "entropy"]
    with served(make_service(forest(schema=NUMBERS))) as other:
        numbers = {one["kind"]: one for one in other.get("/model/kinds").json()["kinds"]}
        assert "tree" not in numbers
        assert {one["name"]: one for one in numbers["forest"]["parameters"]}["occurrence"]["default"] == 0.5
