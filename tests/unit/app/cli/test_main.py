from __future__ import annotations

import pytest

from tests.unit.app.support import JSON, served


@pytest.fixture(scope="module")
def client():
    with served() as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/samples", "DELETE, GET, HEAD, POST, PUT"),
        ("POST", "/samples/x/y", "DELETE, GET, HEAD, PUT"),
        ("PATCH", "/samples/search", "POST"),
        ("DELETE", "/snapshot", "GET, HEAD, POST"),
        ("GET", "/predict", "POST"),
        ("HEAD", "/predict", "POST"),
    ],
)
def test_a_wrong_method_is_told_the_right_ones(client, method, path, allowed):
    response = client.request(method, path, headers=JSON)
    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    assert response.headers["content-type"] == "application/problem+json"


def test_a_path_with_a_slash_too_many_is_not_redirected(client):
    assert client.delete("/samples/", follow_redirects=False).status_code == 404
    assert client.get("/model").json()["n_samples"] == 60


def test_the_page_for_people_and_its_source_are_served(client):
    assert "swagger" in client.get("/docs").text.lower()
    assert client.get("/openapi.json").json()["info"]["title"] == "Oubli"
    assert client.get("/redoc").status_code == 404
