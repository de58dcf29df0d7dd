from oubli.api.model import Model
from tests.unit.app.support import require_conforms, samples


def test_describes_the_model(client):
    body = client.get("/model").json()
    require_conforms(Model, body)
    assert body["kind"] == "forest"
    assert body["guarantee"] == "exact"
    assert body["task"] == "classification"
    assert body["parameters"]["n_estimators"] == 5
    assert body["features"][1] == {"name": "job", "type": "categorical", "dtype": "float32"}
    assert body["label"] == {"name": "income", "type": "string"}
    assert body["classes"] == ["no", "yes"]
    assert (body["n_samples"], body["model_version"], body["durable"]) == (60, 1, False)
    assert (body["pending_erasures"], body["overdue_erasures"]) == (0, 0)
    assert body["memory_bytes"] > 1000
    client.post("/samples", json=samples(10))
    assert client.get("/model").json()["lazy_tags"] > 0
