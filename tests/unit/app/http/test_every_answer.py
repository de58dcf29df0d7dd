"""Every JSON answer has the documented shape, and every time has one form."""

import re
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.unit.app.http.connections import KEY
from tests.unit.app.support import TENSORS, described, ended, forest, make_service, served

TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z")
DATED = re.compile(r'"(\w+)":"(\d{4}-\d\d-\d\d[^"]*)"')
ROW: dict[str, Any] = {"instances": [[1, "a", True]]}
CONTENT = {"features": [1, "a", True], "label": "yes"}
DATED_SAMPLE = {"id": "m", "subject": "ada", **CONTENT, "expires_at": "2999-01-31T12:00:00+01:00"}
INFER = "/v2/models/{model_name}"
# Method, documented path, query and body, in an order in which each request finds what it needs.
ASKED: list[tuple[str, str, str, Any]] = [
    *(("GET", path, "", None) for path in ("/healthz", "/readyz", "/access", "/v2", "/v2/health/live")),
    *(("GET", f"/model{more}", "", None) for more in ("", "/importances", "/trees/{n}", "/columns", "/kinds")),
    ("GET", "/model", "?score=true", None),
    *(("POST", "/predict", "", {**ROW, **more}) for more in ({"receipt": True}, {"coverage": 0.5})),
    ("POST", "/predict/without", "", {**ROW, "ids": ["c1"]}), ("POST", "/influence", "", ROW),
    ("POST", "/explain", "", {**ROW, "change": {"columns": 2}}),
    *(("GET", path, "", None) for path in ("/v2/health/ready", INFER, f"{INFER}/ready")),
    *(("GET", f"{INFER}/versions/{{model_version}}{more}", "", None) for more in ("", "/ready")),
    *(("POST", f"{INFER}{more}/infer", "", {"inputs": TENSORS}) for more in ("", "/versions/{model_version}")),
    *(("POST", "/samples", "", {"samples": [DATED_SAMPLE]}) for _ in range(2)),
    ("GET", "/samples/{id}", "", None),
    *(("GET", "/samples", query, None) for query in ("", "?id=m", "?openings=true&limit=2")),
    ("POST", "/subjects/restrict", "", {"subjects": ["ada"]}), ("GET", "/samples", "?subject=ada", None),
    *(("POST", path, "", {"subject": "ada"}) for path in ("/samples/search", "/subjects/export")),
    ("POST", "/subjects/release", "", {"subjects": ["ada"]}),
    ("POST", "/subjects/retain", "", {"subjects": ["ada"], "seconds": 1000}),
    ("POST", "/samples/absence-proofs", "", {"id": "nobody"}),
    *(("PUT", path, more, {**CONTENT, "label": "no"}) for path, more in (("/samples/{id}", ""), ("/samples", "?id=m"))),
    ("DELETE", "/samples/{id}", "", None),
    *(("DELETE", "/samples", f"?id={name}", None) for name in ("nobody", "c9")),
    *(("POST", "/samples/batch-delete", "", {"ids": ["c8"], "list_found": flag}) for flag in (False, True)),
    *(("GET", f"/erasures{more}", "", None) for more in ("", "/{id}", "/{id}/opening")),
    *(("GET", f"/ledger{more}", "", None) for more in ("", "/keys")), ("GET", "/ledger/consistency", "?from=1", None),
    *((method, "/model/states", "", None) for method in ("POST", "POST", "GET")),
    ("GET", "/model/states/{index}", "?trees=true", None),
    *(("POST", path, "", None) for path in ("/expiry/confirm", "/snapshot")),
    *((method, path, "", None) for method, path in (("GET", "/snapshot"), ("PUT", "/snapshot/file"))),
    *(("POST", f"/model/{kind}", "", None) for kind in ("scrub", "fit", "verify")),
    *(("GET", f"/jobs{more}", "", None) for more in ("", "/{id}", "/{id}/result")), ("DELETE", "/jobs/{id}", "", None),
]  # fmt: skip
# They need other servers; their own tests look at the shapes.
ELSEWHERE = re.compile("/(opendsr|cluster|webhooks)")


def test_every_answer_has_the_documented_shape_and_times_to_the_millisecond(tmp_path: Path, key_file: Path) -> None:
    service = make_service(forest(), tmp_path / "data", max_empty_erasures=0)
    with served(service, api_key_file=key_file) as client:
        client.headers["X-API-Key"] = KEY
        page, found = described(client.app), set[str]()
        ids, named = {"samples": "m"}, {"n": 0, "model_name": "oubli", "model_version": 1}
        for method, path, query, body in ASKED:
            sent: dict[str, Any] = {"json": body}
            if path == "/snapshot/file":
                sent = {"content": client.get(path).content}
            target = path.format(id=ids.get(path.split("/")[1]), **named) + query
            answer = client.request(method, target, **sent)
            assert answer.is_success, (target, answer.text)
            reply = page["paths"][path][method.lower()]["responses"][str(answer.status_code)]
            schema = reply["content"]["application/json"]["schema"]
            content = answer.json()
            jsonschema_rs.validate({**schema, "components": page["components"]}, content)
            for name, value in DATED.findall(answer.text):
                found.add(name)
                assert TIME.fullmatch(value), (target, name, value)
            if "unlearned" in content and content["id"]:
                ids["erasures"] = content["id"]
            elif path == "/model/states" and method == "POST":
                named["index"] = content["index"]
            elif answer.status_code == 202:
                ids["jobs"] = ended(client, content)["id"]
        csv = client.get("/samples?format=csv").text
        assert all(TIME.fullmatch(text) for text in re.findall(r"\d{4}-\d\d-\d\dT[^,\r\n]*", csv))
        with client.stream("GET", "/events?topic=state") as events:
            told = next(line for line in events.iter_lines() if "snapshot" in line)
        stamps = [value for _, value in DATED.findall(told)]
        assert stamps
        assert all(map(TIME.fullmatch, stamps))
    assert {"created_at", "received_at", "unlearned_at", "expires_at", "restricted_at", "exported_at"} <= found
    documented = {
        (method.upper(), path)
        for path, methods in page["paths"].items()
        for method, operation in methods.items()
        if any("application/json" in reply.get("content", {}) for status, reply in operation["responses"].items()
               if status < "3")
    }  # fmt: skip
    assert {one[:2] for one in ASKED} == {one for one in documented if not ELSEWHERE.match(one[1])}
