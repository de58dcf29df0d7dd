"""What a server holds, asked over HTTP, and what a fresh fit on the same samples gives."""

import json
from collections.abc import Mapping
from typing import Any

from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.estimators import KINDS
from oubli.verifier import Policy, check_absence, set_root
from tests.process.durability.people import Content
from tests.serving import Running


def read_held(server: Running) -> tuple[dict[str, Content], int]:
    """Return all samples held and the model version; nothing may change them meanwhile."""
    held: dict[str, Content] = {}
    pages = server.pages("/samples", 1000)
    for sample in (sample for page in pages for sample in page["samples"]):
        features, is_restricted = tuple(sample["features"].values()), sample["restricted_at"] is not None
        held[sample["id"]] = Content(features, sample["label"], sample["subject"], is_restricted)
    return held, int(pages[-1]["model_version"])


def read_schema(server: Running) -> Schema:
    """Return the schema of a server's model."""
    model = server.get("/model")[1]
    columns = tuple(Column(one["name"], ColumnType(one["type"]), one["dtype"]) for one in model["features"])
    label = model["label"]
    return Schema(columns, Task(model["task"]), LabelType(label["type"]), label_name=label["name"], named=True)


def fresh_digest(schema: Schema, held: Mapping[str, Content], kind: str = "forest") -> str:
    """Train a model like the servers' on the samples that are not restricted, and return its digest."""
    held = {name: content for name, content in held.items() if not content.is_restricted}
    model: Any = KINDS[kind, Task.CLASSIFICATION](n_estimators=10, random_state=0)
    rows = [list(content.features) for content in held.values()]
    model.fit(rows, [content.label for content in held.values()], ids=list(held), schema=schema)
    return str(model.digest())


def live_digest(server: Running, *, by_snapshot: bool) -> str:
    """Return the digest of a server's model: of a snapshot written now, or as a verification finds it."""
    if by_snapshot:
        written = server.ask("POST", "/snapshot", {})
        assert written[0] == 201, written
        # The newest one: a deadline may have had another one written meanwhile.
        status, told = server.get("/snapshot")
        assert (status, told["digest"]) == (200, written[1]["digest"]), (written, told)
        return str(told["digest"])
    result = server.finish("/model/verify")
    assert result["ok"] is True
    assert result["live_digest"] == result["fresh_digest"]
    return str(result["live_digest"])


def check_exact(server: Running, held: Mapping[str, Content], *, kind: str = "forest", by_snapshot: bool = True) -> str:
    """Compare a server's model with a fresh fit on what it holds; return the digest."""
    digest = live_digest(server, by_snapshot=by_snapshot)
    assert digest == fresh_digest(read_schema(server), held, kind)
    return digest


def check_set(server: Running) -> dict[str, str | None]:
    """Compare the root of a proof with that of the list; return the nonces, which only restricted samples lack."""
    while True:
        status, proof = server.ask("POST", "/samples/absence-proofs", {"id": "nobody is called so"})
        assert status == 200, proof
        pages = server.pages("/samples?openings=true", 1000)
        if pages[-1]["model_version"] == proof["model_version"]:  # nothing has expired in between
            break
    samples = [one for page in pages for one in page["samples"]]
    key = bytes.fromhex(pages[-1]["positions_key"])
    root = set_root(samples, key)
    assert check_absence(json.dumps(proof), Policy((), {}, {}, "none"), root=root, positions_key=key).root == root
    assert all(one["nonce"] or one["restricted_at"] for one in samples)
    return {one["id"]: one["nonce"] for one in samples}
