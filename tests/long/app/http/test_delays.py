"""What each route keeps other requests waiting with its largest legal body: `/healthz` is asked all the time meanwhile.

On an idle machine nothing is above 100 ms.
"""

import csv
import gzip
import http.client
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oubli.app.http.openapi import PARTS
from tests.serving import EXAMPLE, Running, environment, serving, wait_for

LONGEST = 2.0  # seconds; the machine may be busy with other tests
N = 10_000  # rows of one request
POLL = """
import http.client, sys, time
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=120)
while True:
    began = time.time()
    connection.request("GET", "/healthz")
    connection.getresponse().read()
    print(began, time.time() - began, flush=True)
    time.sleep(0.002)
"""
# Routes that other nodes and privacy backends alone use, and streams that have no end.
ELSEWHERE = ("/cluster", "/opendsr", "/events", "/jobs/{id}/events", "/webhooks", "/healthz")


class Case(NamedTuple):
    """One request."""

    method: str
    path: str
    route: str  # as the document has it
    body: bytes | None = None
    kind: str = "application/json"
    accept: str = "application/json"


def rows(n: int) -> list[list[Any]]:
    """Rows of the example data, over and over."""
    with gzip.open(EXAMPLE, "rt", newline="") as file:
        known = list(csv.reader(file))[1:2001]
    numeric = [all(row[i].strip().lstrip("-").isdigit() for row in known) for i in range(len(known[0]) - 1)]
    read = [[int(v) if is_number else v for v, is_number in zip(row, numeric, strict=False)] for row in known]
    return [read[i % len(read)] for i in range(n)]


def cases(server: Running, document: dict[str, Any]) -> Iterator[Case]:
    """All requests; those that change most come last."""
    names = [column["name"] for column in server.get("/model")[1]["features"]]
    instances, ids = rows(N), [str(i) for i in range(N)]
    named = [dict(zip(names, row, strict=True)) for row in instances]
    fixed = {"label": "<=50K", "expires_at": "2100-01-01T00:00:00Z"}
    samples = [{"id": f"n{i}", "subject": f"s{i}", "features": row, **fixed} for i, row in enumerate(named)]
    tensors = []
    for name, data in ((name, [row[name] for row in named]) for name in names):
        kind = "BYTES" if isinstance(data[0], str) else "FP64"
        tensors.append({"name": name, "shape": [N], "datatype": kind, "data": data})
    lines = "\n".join(map(json.dumps, instances)).encode()
    table = "\n".join([",".join(names), *(",".join(map(str, row)) for row in instances)]).encode()

    def posting(path: str, content: Any, *, method: str = "POST", route: str | None = None, **more: Any) -> Case:
        return Case(method, path, route or path, json.dumps(content).encode(), **more)

    def getting(path: str, route: str | None = None, **more: Any) -> Case:
        return Case("GET", path, route or path.partition("?")[0], **more)

    for content in ({"instances": instances}, {"instances": named}, {"instances": instances, "receipt": True}):
        yield posting("/predict", content)
    yield posting("/predict", {"instances": instances}, accept="text/csv")
    yield posting("/predict", {"x": [[]] * 4_000_000})  # is refused
    yield Case("POST", "/predict", "/predict", lines, "application/x-ndjson", "application/x-ndjson")
    yield Case("POST", "/predict", "/predict", lines, "application/x-ndjson")
    yield Case("POST", "/predict", "/predict", table, "text/csv", "application/vnd.apache.arrow.stream")
    for version in ("", "/versions/1"):
        known = "/v2/models/{model_name}" + ("/versions/{model_version}" if version else "")
        yield posting(f"/v2/models/oubli{version}/infer", {"inputs": tensors}, route=f"{known}/infer")
        yield getting(f"/v2/models/oubli{version}/ready", f"{known}/ready")
        yield getting(f"/v2/models/oubli{version}", known)
    yield posting("/predict/without", {"instances": instances[:100], "ids": ids})
    yield posting("/influence", {"instances": instances[:1]})  # takes seconds for a row
    yield posting("/explain", {"instances": instances})  # is refused: it would take long
    yield posting("/explain", {"instances": instances[:20]})
    yield posting("/explain", {"instances": instances[:1], "change": {"columns": 2}})
    yield posting("/samples/search", {"ids": ids[:1000]})
    for accept in ("application/json", "text/csv"):
        yield getting("/samples?limit=1000", accept=accept)
    for path in ("/", "/docs", "/docs/page.js", "/docs/page.css", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"):
        yield getting(path)
    for path, operations in document.items():  # those that have nothing to choose; the ones with a page come below
        if "get" in operations and "{" not in path and path != "/ledger/consistency" and not path.startswith(ELSEWHERE):
            yield getting(path)
    yield getting("/model/trees/0", "/model/trees/{n}")
    yield getting("/samples/0", "/samples/{id}")
    yield posting("/samples/absence-proofs", {"id": "nobody"})
    for _ in range(2):  # then nothing is new
        yield posting("/samples", {"samples": samples})
    body = "\n".join(json.dumps({**one, "id": f"b{one['id']}"}) for one in samples).encode()
    yield Case("POST", "/samples", "/samples", body, "application/x-ndjson")
    yield posting("/samples/n1", {"features": instances[1], "label": ">50K"}, method="PUT", route="/samples/{id}")
    yield posting("/samples?id=n2", {"features": instances[2], "label": ">50K"}, method="PUT", route="/samples")
    subjects = [f"s{i}" for i in range(N)]
    yield posting("/subjects/retain", {"subjects": subjects, "seconds": 10**7})
    yield posting("/subjects/restrict", {"subjects": subjects})
    yield posting("/subjects/release", {"subjects": subjects})
    yield posting("/subjects/export", {"subject": "s3", "influence": True})
    yield Case("DELETE", "/samples/n3", "/samples/{id}")
    yield Case("DELETE", "/samples?subject=s4", "/samples")
    yield posting("/samples/batch-delete", {"subjects": subjects, "list_found": True})
    for path in ("/ledger?limit=1000", "/erasures?limit=1000", "/jobs", "/model/states", "/log/checkpoint"):
        yield getting(path)
    yield getting("/ledger/3/proof", "/ledger/{index}/proof")
    yield getting("/ledger/consistency?from=1")
    receipt = server.get("/erasures?limit=1")[1]["erasures"][0]["id"]
    for end in ("", "/proof", "/opening"):
        yield getting(f"/erasures/{receipt}{end}", f"/erasures/{{id}}{end}")
    yield getting("/log/tile/0/000.p/1", "/log/tile/{level}/{number}")
    yield getting("/log/tile/entries/000.p/1", "/log/tile/entries/{number}")
    yield getting("/model/states/5", "/model/states/{index}")
    for end in ("", "/result"):
        yield getting(f"/jobs/{uuid.uuid4()}{end}", f"/jobs/{{id}}{end}")
    yield Case("DELETE", f"/jobs/{uuid.uuid4()}", "/jobs/{id}")
    yield getting("/console/app.js", "/console/{file}")
    for path in ("/expiry/confirm", "/model/states", "/snapshot", "/model/verify", "/model/scrub"):
        yield posting(path, {})
    yield posting("/model/fit", {"parameters": {"n_estimators": 10}})
    with open(newest(server), "rb") as file:  # noqa: PTH123
        yield Case("PUT", "/snapshot/file", "/snapshot/file", file.read(), "application/octet-stream")


def newest(server: Running) -> Path:
    """The newest snapshot on the disk."""
    return max((server.folder / "oubli-data").rglob("*.safetensors"), key=lambda path: path.stat().st_mtime)


def ask(server: Running, case: Case) -> int:
    """Send a request and read the answer; wait for the job, if it is one. Returns the status."""
    headers = {"Content-Type": case.kind, "Accept": case.accept, "Accept-Encoding": "gzip, zstd"}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=300)) as connection:
        connection.request(case.method, case.path, case.body, headers)
        answer = connection.getresponse()
        answer.read()
    if answer.status == 202:
        place = answer.headers["Location"]
        wait_for(lambda: server.get(place)[1]["status"] in ("succeeded", "failed"), "the job ends", 600)
    return answer.status


@pytest.mark.timeout(3600)
def test_no_request_keeps_the_others_waiting(tmp_path: Path) -> None:
    arguments = ("--data", str(EXAMPLE), "--target", "income", "--n-estimators", "20")
    lines = tmp_path / "polled"
    with serving(*arguments, cwd=tmp_path) as server, lines.open("w") as written:
        names = (".json", *(f"/{name}.json" for name in PARTS))
        document = {path: found for name in names for path, found in server.get(f"/openapi{name}")[1]["paths"].items()}
        poller = subprocess.Popen([sys.executable, "-c", POLL, str(server.port)], stdout=written, env=environment())
        found, asked = [], set()
        try:
            for case in cases(server, document):
                time.sleep(0.3)
                began = time.time()
                found.append((case, ask(server, case), began, time.time()))
                asked.add((case.method, case.route))
            time.sleep(0.3)
        finally:
            poller.kill()
            poller.wait()
    polled = [tuple(map(float, line.split())) for line in lines.read_text().splitlines() if line.count(" ") == 1]
    for case, status, began, ended in found:
        assert status < 500, case[:3]
        waits = [wait for at, wait in polled if at + wait >= began and at <= ended]
        assert max(waits, default=0.0) < LONGEST, case[:3]
    methods = {"get", "post", "put", "delete"}
    known = {(method.upper(), path) for path in document for method in document[path] if method in methods}
    assert {one for one in known if not one[1].startswith(ELSEWHERE)} <= asked
