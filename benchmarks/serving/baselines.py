"""Servers without a model: they parse the body and answer something of the same size, without checks.

    python -m benchmarks.serving.baselines asgi 8001

`asgi` is a bare ASGI function, `fastapi` a plain FastAPI route for each of ours. Both run under uvicorn with the
settings of `oubli serve`, on uvloop and httptools.
"""

from __future__ import annotations

import sys
from typing import Any

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

from oubli.app.http.connection.connections import server_config
from oubli.app.http.standby import bind

PREDICTION = {"classes": ["<=50K", ">50K"], "model_version": 1}
ADDED = {"ids": ["12345"], "model_version": 1, "n_samples": 50_000, "durable": False}
RECEIPT = {
    "ref": None,
    "kind": "deletion",
    "status": "unlearned",
    "guarantee": "exact",
    "requested": 1,
    "unlearned": 1,
    "absent": 0,
    "model_version": 1,
    "received_at": "2026-01-01T00:00:00.000000Z",
    "unlearned_at": "2026-01-01T00:00:00.000000Z",
    "erased_at": None,
    "overdue": False,
    "durable": False,
}
_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
# FastAPI's own measuring is off, as it is in our application.
_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False, "operation_spans": False}


def predicted(body: bytes) -> bytes:
    """Parse a row and answer two numbers."""
    row = orjson.loads(body)["instances"][0]
    share = len(row) / 1000.1
    return orjson.dumps({"predictions": ["<=50K"], "probabilities": [[share, 1.0 - share]], **PREDICTION})


def added(body: bytes) -> bytes:
    """Parse a sample and answer as if it had been added."""
    sample = orjson.loads(body)["samples"][0]
    return orjson.dumps({**ADDED, "ids": [sample["id"]]})


def deleted() -> bytes:
    """Answer as if something had been deleted."""
    return orjson.dumps(RECEIPT)


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """All routes as one ASGI function."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    body = b""
    while True:
        message = await receive()
        body += message["body"]
        if not message["more_body"]:
            break
    if scope["method"] == "DELETE":
        answer = deleted()
    elif scope["path"] == "/predict":
        answer = predicted(body)
    else:
        answer = added(body) if body else b"{}"  # without a body: whether it is ready
    headers = [*_HEADERS, (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def plain_fastapi() -> FastAPI:
    """All routes as FastAPI has them, without pydantic."""
    app = FastAPI(telemetry=_TELEMETRY)

    @app.post("/predict")
    async def predict(request: Request) -> Response:
        return Response(predicted(await request.body()), media_type="application/json")

    @app.post("/samples")
    async def add(request: Request) -> Response:
        return Response(added(await request.body()), media_type="application/json")

    @app.delete("/samples/{sample_id}")
    async def delete(sample_id: str) -> Response:
        del sample_id
        return Response(deleted(), media_type="application/json")

    return app


def main() -> None:
    """Serve until a signal to stop."""
    kind, port = sys.argv[1], int(sys.argv[2])
    app = bare if kind == "asgi" else plain_fastapi()
    uvicorn.Server(server_config(app)).run(bind("127.0.0.1", port))


if __name__ == "__main__":
    main()
