import pytest
from starlette.testclient import TestClient

from oubli.verifier import FailedError, Policy, check_prediction, read_policy
from tests.unit.app.http.routes.test_inference import infer, inputs
from tests.unit.app.support import NUMBERS, forest, make_service, pick, problem_of, rows, served


def policy_of(client: TestClient) -> Policy:
    return read_policy(f"log {client.get('/ledger/keys').json()['keys'][0]['log_key']}\nquorum none\n".encode())


def test_regression_has_neither_classes_nor_probabilities_and_receipts_all_the_same():
    """What the predictions of classes are is in `test_inference`."""
    with served(make_service(forest(60, NUMBERS))) as client:
        answer = client.post("/predict", json={"instances": rows(5)}).json()
        assert answer == {"predictions": forest(60, NUMBERS).predict(rows(5)).tolist(), "model_version": 1}
        (told,) = infer(client, inputs(rows(5))).json()["outputs"]
        assert pick(told, "name datatype shape data") == ("predictions", "FP64", [5], answer["predictions"])
        assert infer(client, inputs(rows(5)), outputs=[{"name": "classes"}]).status_code == 422
        signed = client.post("/predict", json={"instances": rows(5), "receipt": True}).json()
        assert check_prediction({"instances": rows(5), "answer": signed}, policy_of(client)).model_version == 1


def test_an_empty_model_says_so_and_starts_again():
    with served(make_service(forest(0))) as client:
        assert problem_of(client.post("/predict", json={"instances": rows(1)})) == (409, "empty-model")
        assert client.get("/model").json()["classes"] == []
        sample = {"features": rows(1)[0], "label": "maybe"}
        assert client.post("/samples", json={"samples": [sample]}).json()["ids"] == ["0"]
        answer = client.post("/predict", json={"instances": rows(1)}).json()
        assert (answer["predictions"], answer["classes"]) == (["maybe"], ["maybe"])
        assert client.delete("/samples/0").json()["unlearned"] == 1
        assert client.post("/predict", json={"instances": rows(1)}).status_code == 409


def test_a_receipt_says_which_model_has_answered(client):
    policy = policy_of(client)
    state, nonces = client.post("/model/states").json(), set()
    for instances in (rows(1), rows(1), rows(20), [{"member": None, "age": 3.5, "job": "ä"}], rows(700)):
        answer = client.post("/predict", json={"instances": instances, "receipt": True}).json()
        nonces.add(answer["receipt"]["nonce"])
        plain = client.post("/predict", json={"instances": instances}).json()
        assert {name: answer[name] for name in plain} == plain
        checked = check_prediction({"instances": instances, "answer": answer}, policy)
        assert (checked.model_version, checked.set_root) == (1, state["set_root"])
        with pytest.raises(FailedError):
            check_prediction({"instances": instances, "answer": {**answer, "predictions": ["other"]}}, policy)
    assert len(nonces) == 5
    answer = client.post("/predict", json={"instances": rows(1), "receipt": False})
    assert (answer.status_code, "receipt" in answer.json()) == (200, False)


def test_version_and_root_of_a_receipt_belong_together_while_samples_come(monkeypatch):
    """Each time the root is there, a change has come before the prediction: then they are made in one turn."""
    service = make_service()
    with served(service) as client:
        root, asked = service.evidence.sample_set.root, []

        async def overtaken():
            asked.append(await root())
            if len(asked) <= 3:
                await service.changes.delete(ids=[f"c{len(asked)}"])
            return asked[-1]

        monkeypatch.setattr(service.evidence.sample_set, "root", overtaken)
        answer = client.post("/predict", json={"instances": rows(1), "receipt": True}).json()
        assert (answer["model_version"], len(asked)) == (4, 4)
        state = client.post("/model/states").json()
        assert (state["model_version"], state["set_root"]) == (4, answer["receipt"]["set_root"])
