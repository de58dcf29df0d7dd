"""Long histories of servers that are killed, stopped, restored and upgraded, and of what they prove meanwhile.

Each begins with a data directory that an earlier version has written. `OUBLI_PROOF_OPERATIONS` is how many operations
there are in all. They are cut into histories of a thousand, each with another directory.
"""

import base64
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from oubli.verifier import Checkpoint, Policy, check_absence, check_checkpoint, read_checkpoint, read_policy, set_root
from oubli.verifier.merkle import Frontier, check_consistency, hash_leaf
from tests.golden.directories import features, label, sample
from tests.process.durability.evidence import canonical
from tests.process.durability.test_upgrade import DIRECTORIES, unpack
from tests.serving import Running, serving

N_OPERATIONS = int(os.environ.get("OUBLI_PROOF_OPERATIONS", "2000"))
_LENGTH = 1000
_LIFETIME = 250  # operations of a process, at most
_BETWEEN_CHECKS = 8  # operations, at most
_FEWEST, _MOST = 20, 70  # samples
_FLAGS = ("--data-dir", "data", "--erasure-deadline", "20")  # at its end a slow request is cut off
_MOVES = {
    "add": 30, "delete": 26, "replace": 16, "delete_subject": 3, "restrict": 4, "release": 4, "repeated": 6,
    "snapshot": 4, "restore": 2, "fit": 1, "state": 4,
}  # fmt: skip


class History:
    """A data directory from its first server of this version to its last, with the notes of the one before."""

    def __init__(self, folder: Path, notes: dict[str, Any], seed: int) -> None:
        self.folder, self.draw = folder, random.Random(seed)
        self.task: str = notes["task"]
        self.tally: Counter[str] = Counter()
        self.n = 1000  # of the newest sample
        self.n_operations = self.n_lifetimes = 0
        self.older: bytes | None = None
        self.policy: Policy | None = None
        self.seen: list[Checkpoint] = []
        self.server: Running

    # --- asking

    def get(self, path: str) -> Any:
        status, content = self.server.get(path)
        assert status == 200, (path, content)
        return content

    def change(self, name: str, method: str, path: str, content: Any = None) -> int:
        status, answer = self.server.ask(method, path, content)
        assert status in (200, 201, 202, 404, 409), (method, path, answer)
        self.tally[name if status < 300 else f"{name} refused"] += 1
        return status

    # --- moves

    def held(self) -> list[str]:
        return [one["id"] for one in self.get("/samples?limit=1000")["samples"]]

    def subject(self) -> str:
        return f"person-{self.draw.randrange(40)}"

    def add(self) -> None:
        if len(self.held()) > _MOST:
            self.delete()
        else:
            self.n += 1
            more = {"subject": self.subject()} if self.draw.random() < 0.5 else {}
            self.change("add", "POST", "/samples", {"samples": [sample(self.n, self.task, **more)]})

    def delete(self) -> None:
        held = self.held()
        if len(held) < _FEWEST:
            self.add()
        else:
            self.change("delete", "DELETE", f"/samples/{self.draw.choice(held)}")

    def repeated(self) -> None:
        """What was added or deleted before comes or goes again."""
        number = self.draw.randrange(1000, self.n + 1)
        if self.draw.random() < 0.5:
            self.change("deleted again", "DELETE", f"/samples/sample-{number}")
        else:
            again = sample(number, self.task, readd=True)
            self.change("added again", "POST", "/samples", {"samples": [again]})

    def replace(self) -> None:
        number = self.draw.randrange(200)
        content = {"features": features(number), "label": label(number, self.task), "subject": self.subject()}
        if held := self.held():
            self.change("replace", "PUT", f"/samples/{self.draw.choice(held)}", content)

    def delete_subject(self) -> None:
        self.change("delete_subject", "POST", "/samples/batch-delete", {"subjects": [self.subject(), self.subject()]})

    def restrict(self) -> None:
        self.change("restrict", "POST", "/subjects/restrict", {"subjects": [self.subject()]})

    def release(self) -> None:
        self.change("release", "POST", "/subjects/release", {"subjects": [f"person-{i}" for i in range(40)]})

    def snapshot(self) -> None:
        self.change("snapshot", "POST", "/snapshot")
        if self.draw.random() < 0.3:
            self.older = self.get("/snapshot/file")

    def restore(self) -> None:
        if self.older is not None:
            self.change("restore", "PUT", "/snapshot/file", self.older)

    def fit(self) -> None:
        self.change("fit", "POST", "/model/fit", {"parameters": {"random_state": self.draw.randrange(99)}})

    def state(self) -> None:
        self.change("state", "POST", "/model/states")

    # --- checks

    def check(self) -> None:
        """The root is that of a fresh tree over the samples held, the log tells of it, and continues as it began."""
        if self.policy is None:
            keys = self.get("/ledger/keys")["keys"]
            self.policy = read_policy("".join(f"log {key['log_key']}\n" for key in keys).encode() + b"quorum none\n")
        self.check_log()
        deadline = time.monotonic() + 60
        while True:
            status, proof = self.server.ask("POST", "/samples/absence-proofs", {"id": "nobody is called so"})
            page = self.get("/samples?openings=true&limit=1000")
            if status == 200 and proof["model_version"] == page["model_version"]:
                break
            assert time.monotonic() < deadline, proof  # a fit continues, or a restore
        assert page["next"] is None
        key = bytes.fromhex(page["positions_key"])
        root = set_root(page["samples"], key)
        told = check_absence(json.dumps(proof), self.policy, root=root, positions_key=key)
        assert told.entry is not None
        assert told.n_samples == sum(one["restricted_at"] is None for one in page["samples"])
        self.tally["root"] += 1

    def check_log(self) -> None:
        status, text = self.server.get("/log/checkpoint")
        if status != 200:  # nothing is signed in the first second
            assert not self.seen
            return
        checkpoint = read_checkpoint(text.decode())
        assert self.policy is not None
        check_checkpoint(checkpoint, self.policy)
        if self.seen:
            old = self.seen[-1]
            assert (old.origin, old.size <= checkpoint.size) == (checkpoint.origin, True)
            answer = self.get(f"/ledger/consistency?from={old.size}&to={checkpoint.size}")
            proof = [base64.b64decode(one) for one in answer["proof"]]
            check_consistency(old.size, checkpoint.size, proof, old.root, checkpoint.root)
            self.tally["grown"] += old.size < checkpoint.size
        self.seen.append(checkpoint)
        self.tally["checkpoint"] += 1

    def check_all_checkpoints(self) -> None:
        """Each that was ever served has the root of the entries that there are in the end."""
        frontier = Frontier()
        wanted = {one.size: {other.root for other in self.seen if other.size == one.size} for one in self.seen}
        for entry in (one for page in self.server.pages("/ledger", 1000) for one in page["entries"]):
            body = {name: value for name, value in entry.items() if name not in ("hash", "keyed")}
            frontier.add(hash_leaf(canonical(body)))
            if frontier.size in wanted:
                assert wanted.pop(frontier.size) == {frontier.root()}
        assert not wanted
        assert len({one.origin for one in self.seen}) == 1

    # --- all of it

    def live(self, n: int) -> None:
        """Serve for some operations, and be killed or stopped."""
        with serving(*_FLAGS, cwd=self.folder) as self.server:
            self.check()
            until_check = 0
            for name in self.draw.choices(list(_MOVES), list(_MOVES.values()), k=n):
                getattr(self, name)()
                until_check -= 1
                if until_check <= 0:
                    self.check()
                    until_check = self.draw.randint(1, _BETWEEN_CHECKS)
            self.n_lifetimes += 1
            how = signal.SIGKILL if self.n_lifetimes % 3 else signal.SIGTERM
            self.tally[how.name] += 1
            self.server.stop(how)
        self.n_operations += n

    def play(self, n: int) -> None:
        while self.n_operations < n:
            self.live(min(self.draw.randint(20, _LIFETIME), n - self.n_operations))
        with serving(*_FLAGS, cwd=self.folder) as self.server:
            self.check()
            self.check_all_checkpoints()


@pytest.mark.parametrize("part", range(max(1, N_OPERATIONS // _LENGTH)))
def test_no_two_checkpoints_are_inconsistent_and_each_root_is_that_of_a_fresh_tree(part: int, tmp_path: Path) -> None:
    name = DIRECTORIES[(5 * part + 4) % len(DIRECTORIES)].name.removesuffix(".tar.xz")
    history = History(tmp_path, unpack(name, tmp_path), part)
    n = min(N_OPERATIONS, _LENGTH)
    history.play(n)
    tally = history.tally
    assert min(tally["root"], tally["checkpoint"]) > n / _BETWEEN_CHECKS
    if n >= _LENGTH:
        needed = (*_MOVES, "SIGKILL", "SIGTERM", "grown", "added again", "deleted again")
        assert not [name for name in needed if not tally[name] and name != "repeated"], tally
