"""The set of samples that a server proves things of is the one that it lists."""

from __future__ import annotations

import json
from typing import Any

from oubli.verifier import Policy, check_absence, set_root
from tests.serving import Running

NOBODY = Policy((), {}, {}, "none")


def check_set(server: Running) -> dict[str, str | None]:
    """Compare the root of a proof with that of the list; return the nonces, which only restricted samples lack."""
    while True:
        status, proof = server.ask("POST", "/samples/absence-proofs", {"id": "nobody is called so"})
        assert status == 200, proof
        samples: list[dict[str, Any]] = []
        page: dict[str, Any] = {"next": ""}
        while page["next"] is not None:
            page = server.get(f"/samples?openings=true&limit=1000{page['next'] and '&cursor=' + page['next']}")[1]
            samples += page["samples"]
        if page["model_version"] == proof["model_version"]:  # nothing has expired in between
            break
    key = bytes.fromhex(page["positions_key"])
    root = set_root(samples, key)
    assert check_absence(json.dumps(proof), NOBODY, root=root, positions_key=key).root == root
    assert all(one["nonce"] or one["restricted_at"] for one in samples)
    return {one["id"]: one["nonce"] for one in samples}
