"""Receipts and the ledger, checked with nothing but what is written about them: no code of the service is used.

receipt   Ed25519 over its RFC 8785 form without `signature`, by the key that `key_id` names in `GET /ledger/keys`
entry     `hash` is the SHA-256 of its RFC 8785 form without `hash`; `previous` is the hash of the one before
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tests.process.durability.model_of_truth import Operation
from tests.serving import Running


def canonical(content: Any) -> bytes:
    """Return the RFC 8785 form of something without fractions, whose keys are ASCII."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def public_keys(server: Running) -> dict[str, Ed25519PublicKey]:
    """Return the signing keys that a server publishes, by id."""
    status, content = server.get("/ledger/keys")
    assert status == 200
    keys = {key["key_id"]: base64.b64decode(key["public_key"]) for key in content["keys"]}
    assert keys
    return {name: Ed25519PublicKey.from_public_bytes(key) for name, key in keys.items()}


def check_receipt(receipt: Mapping[str, Any], keys: Mapping[str, Ed25519PublicKey]) -> None:
    """Check the signature of a receipt; raises `InvalidSignature`."""
    # These two an answer says besides the receipt.
    content = {name: value for name, value in receipt.items() if name not in ("signature", "durable")}
    keys[receipt["key_id"]].verify(base64.b64decode(receipt["signature"]), canonical(content))


def check_evidence(server: Running, receipts: Sequence[Mapping[str, Any]]) -> None:
    """Check that receipts handed out before are still there, signed and in the ledger, and that they say the same."""
    keys = public_keys(server)
    entries = [entry for page in server.pages("/ledger") for entry in page["entries"]]
    previous = "0" * 64
    for index, entry in enumerate(entries, int(entries[0]["index"])):  # each is whole and follows the one before
        content = {name: value for name, value in entry.items() if name != "hash"}
        assert (entry["index"], entry["previous"]) == (index, previous)
        assert entry["hash"] == hashlib.sha256(canonical(content)).hexdigest()
        previous = entry["hash"]
    listed = json.dumps(entries)
    for given in receipts:
        status, now = server.get(f"/erasures/{given['id']}")
        assert status == 200, "a receipt is gone"
        check_receipt(now, keys)
        check_receipt(given, keys)
        assert now["status"] in ("unlearned", "erased")
        lasting = ("id", "ref", "kind", "guarantee", "requested", "unlearned", "absent", "model_version", "received_at")
        assert {name: now[name] for name in lasting} == {name: given[name] for name in lasting}
        assert given["id"] in listed, "a receipt is not in the ledger"


def check_states(server: Running, digest: str) -> None:
    """Check that the state of a model with this digest is told, and that what is beside states is what they hash."""
    status, told = server.ask("POST", "/model/states", {})
    assert status in (200, 201), told
    answers = [server.get(f"/model/states/{one['index']}")[1] for one in server.get("/model/states")[1]["states"]]
    (now,) = (one for one in answers if one["state"]["index"] == told["index"])
    assert now["digest"] == digest
    for one in answers:
        if one["salt"] is not None:
            assert hashlib.sha256(bytes.fromhex(one["salt"] + one["digest"])).hexdigest() == one["state"]["digest_hash"]


def receipts_of(operations: Sequence[Operation]) -> list[dict[str, Any]]:
    """Return the receipts that clients were given."""
    return [one.answer for one in operations if one.kind in ("delete", "put") and one.is_acknowledged]
