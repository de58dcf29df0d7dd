"""A server's ledger with its log published, and the lies that it could tell: what a person gets from it as texts."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from oubli.app.http.responses import result_content, sample_content
from oubli.app.ledger.entries import Receipt, canonical
from oubli.app.ledger.file import Opening, hash_digest
from oubli.app.ledger.ledger import By
from oubli.app.ledger.log import Checkpoint, log_key
from oubli.app.ledger.set_tree import commitment_of
from oubli.app.service.evidence.states import PredictionSigner
from oubli.verifier import opening_of
from oubli.verifier.notes import VerifierKey
from oubli.verifier.sets import set_root
from tests.unit.app.ledger import support
from tests.unit.app.ledger.support import WholeLedger

POSITIONS_KEY = bytes(range(32))
SALT = "5a" * 32
Content = dict[str, Any]


@dataclass
class Log:
    """A ledger whose log is published."""

    ledger: WholeLedger

    def publish(self) -> Checkpoint:
        """Sign the log as it is, and publish it."""
        signed = self.ledger.store.sign_checkpoint()
        assert signed is not None
        self.ledger.store.publish(signed)
        return signed

    def proof(self, receipt: Receipt) -> str:
        """What `GET /erasures/{id}/proof` answers."""
        found = self.ledger.store.erasure_proof(receipt.id, self.ledger.is_overdue, durable=True)
        assert isinstance(found, str), found
        return found

    def entry_proof(self, index: int) -> str:
        """What `GET /ledger/{index}/proof` answers."""
        found = self.ledger.store.entry_proof(index)
        assert isinstance(found, str), found
        return found

    def tell_state(self, fields: Content, opening: Opening) -> str:
        """Write an entry of a state, and publish it; return its proof."""
        entry, notes = self.ledger.auditor.model_state(fields, opening)
        self.ledger.record(notes)
        self.publish()
        return self.entry_proof(entry["index"])

    def state(self, model: Any, samples: Sequence[Content], version: int, **lies: Any) -> Content:
        """What `GET /model/states/{index}?trees=true` answers of a model and the samples that it is said to be made of.

        Whatever the entry should say otherwise is given in `lies`, and `digest`.
        """
        schema, digest = canonical(model.schema_.to_dict()).decode(), lies.pop("digest", None) or model.digest()
        parameters = json.dumps({**model.parameters_of_model(), "random_state": model.seed_})
        made = {"kind": model.kind, "guarantee": model.guarantee, "parameters": parameters, "software": "1.0"}
        held = {"n_samples": len(samples), "set_root": set_root(list(samples), POSITIONS_KEY).hex()}
        hashes = {"digest_hash": hash_digest(SALT, digest), "schema_hash": hashlib.sha256(schema.encode()).hexdigest()}
        fields = {"model_version": version, "digest_format": model.engine_.format, **made, **held, **hashes}
        fields |= {"positions_key_hash": commitment_of(POSITIONS_KEY), **lies}
        proof = self.tell_state(fields, Opening(SALT, digest, schema))
        beside = {"salt": SALT, "digest": digest, "schema": json.loads(schema), "positions_key": POSITIONS_KEY.hex()}
        beside["tree_digests"] = model.tree_digests() if model.engine_.has_separate_trees else None
        return {"proof": proof, **beside}

    def prediction(self, model: Any, rows: list[Any], version: int, root: str) -> Content:
        """The receipt of a prediction, with the answer, as anyone who has asked keeps it."""
        asked = [[row[name] for name in model.schema_.names] if isinstance(row, dict) else row for row in rows]
        answer = result_content(model.query(asked))
        if "probabilities" in answer:
            answer["probabilities"] = answer["probabilities"].tolist()
        nobody: Any = None
        signer = PredictionSigner(nobody, nobody, self.ledger.auditor)
        receipt = asyncio.run(signer.sign(version, root, rows, answer))
        return {"instances": rows, "answer": {**answer, "model_version": version, "receipt": receipt._asdict()}}

    def opening(self, receipt: Receipt, by: By, name: str) -> str:
        """The opening of a name, as it is handed to a person."""
        secret = self.ledger.auditor.opening_of(receipt.id, self.ledger.keys.hashing[0].id)
        assert secret is not None
        return opening_of(secret, by, name).hex()

    def policy(self, *witnesses: VerifierKey, quorum: str = "none") -> str:
        """A policy that trusts the log's keys."""
        origin = self.ledger.store.log.origin
        assert origin is not None
        lines = [f"log {log_key(origin, key.public)}" for key in self.ledger.keys.all_signing]
        return "\n".join([*lines, *(f"witness {key.name} {key}" for key in witnesses), f"quorum {quorum}", ""])


def begun(**more: Any) -> Log:
    """A log that has begun."""
    return Log(support.begun(**more))


def export_of(model: Any) -> list[Content]:
    """The samples of a model as an export with openings has them."""
    names = sorted(model.samples_.ids())
    held = [sample_content(model.samples_.get(name), model.schema_) for name in names]
    return [{**one, "nonce": hashlib.md5(one["id"].encode()).hexdigest()} for one in held]  # noqa: S324 - 16 bytes


def extra_of(proof: str) -> dict[str, Any]:
    """What a proof carries besides the path."""
    line = next(line for line in proof.split("\n") if line.startswith("extra "))
    content: dict[str, Any] = json.loads(base64.b64decode(line.removeprefix("extra ")))
    return content


def with_extra(proof: str, change: Callable[[dict[str, Any]], object]) -> str:
    """A proof with another content, and everything else as it was."""
    extra = extra_of(proof)
    change(extra)
    encoded = base64.b64encode(json.dumps(extra).encode()).decode()
    return "\n".join(f"extra {encoded}" if line.startswith("extra ") else line for line in proof.split("\n"))


def with_entry(**fields: Any) -> Callable[[dict[str, Any]], object]:
    """A change of the entry in a proof."""

    def change(extra: dict[str, Any]) -> None:
        extra["entry"] = canonical({**json.loads(extra["entry"]), **fields}).decode()

    return change


def with_receipt(**fields: Any) -> Callable[[dict[str, Any]], object]:
    """A change of the receipt in a proof."""
    return lambda extra: extra["receipt"].update(fields)
