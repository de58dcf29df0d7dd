"""Random histories of a service that is backed up and restored as docs/how-to/operations.md says, and asked on the way.

A copy of the stopped directory is started with the ledger of now; a new directory gets the keys, the ledger and a
snapshot. Meanwhile jobs, states and snapshots tell digests and scores of the sets held. Once an erasure is finished, no
file and no answer may hold one of a set that an erased sample was in: it would confirm the right guess about it.
"""

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from oubli.app.errors import StartError
from oubli.app.http.app import create_app
from oubli.app.service.build import open_directory
from oubli.app.service.recovery.start import LedgerChoice
from oubli.core.data.schema import Task
from oubli.core.estimators import KINDS
from tests.histories.guesses import hex_in, is_in, is_salted
from tests.histories.privacy import PARAMETERS, SCHEMA, PrivacyPlayer, Truth
from tests.unit.app.support import BASE, described, make_settings

_MOST = 3  # directories that are kept


@dataclass
class Fingerprint:
    """What a model or its answers said of a set of samples, and whether one of these was erased since."""

    names: frozenset[str]
    digests: list[str]
    scores: list[bytes]
    must_go: bool = False


class BackupPlayer(PrivacyPlayer):
    """A service under test, its backups, and what was told of its samples; see `PrivacyPlayer`."""

    def __init__(self, kind: str, folder: Path, seed: int) -> None:
        super().__init__(kind, folder, seed)
        self.backups: list[tuple[Path, Truth]] = []
        self.fingerprints: list[Fingerprint] = []

    # --- asking -----------------------------------------------------------------------------------

    def client(self) -> httpx2.AsyncClient:
        self.app = create_app(make_settings(page_size_max=1000), self.service)
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=self.app), base_url=BASE)

    async def tell(self) -> None:
        """Have digests and scores told wherever they can be."""
        self.note()
        async with self.client() as client:
            for path in ("/model/states", self.rng.choice(["/model/verify", "/model/fit", "/snapshot"])):
                answer = await client.post(path, json={})
                if answer.status_code == 202:
                    await self._ended(client, answer.json()["id"])
        if self.service.model.state.version != self.truth.version:  # by a fit
            self.changed(True, self.service.model.state.version)
            self.truth.seed = self.service.model.state.model.seed_
        await self._score()
        self.note()
        self.tally["digests told"] += is_in(self.fingerprints[-1].digests[0], b"\0".join(await self.answers()))

    async def _score(self) -> None:
        """Have the model scored, and note the numbers that hardly another set has."""
        async with self.client() as client:
            score = (await client.get("/model?score=true")).json()["score"] or {}
        told = [json.dumps(score[name]).encode() for name in ("log_loss", "rmse") if score.get(name)]
        self.fingerprints.append(Fingerprint(frozenset(self.truth.live()), [], told))
        self.tally["scores of the model"] += len(told)

    async def _ended(self, client: httpx2.AsyncClient, name: str) -> None:
        """Wait for a job, and note its scores."""
        while (job := (await client.get(f"/jobs/{name}")).json())["status"] in ("queued", "running"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        scores = [json.dumps(one).encode() for one in _numbers(job["result"]) if one != round(one, 6)]
        self.fingerprints.append(Fingerprint(frozenset(self.truth.live()), [], scores))
        self.tally["scores"] += len(scores)

    def note(self) -> None:
        """Note the digests of the model, as it is."""
        model = self.service.model.state.model.copy()
        trees = model.tree_digests() if self.kind == "forest" else []
        self.fingerprints.append(Fingerprint(frozenset(self.truth.live()), [model.digest(), *trees], []))

    def forget(self, names: list[str], why: str) -> None:
        super().forget(names, why)
        for one in self.fingerprints:
            one.must_go |= not one.names.isdisjoint(names)

    async def answers(self) -> list[bytes]:
        """Everything that the server answers to reads without path parameters."""
        async with self.client() as client:
            pages = described(self.app)["paths"].items()
            paths = [path for path, found in pages if "get" in found and "{" not in path and "events" not in path]
            paths += [f"/jobs/{job.id}" for job in self.service.jobs.board.all()]
            paths += ["/model?score=true", "/ledger?limit=1000", "/jobs?limit=1000"]
            found = [(await client.get(path)).content for path in paths]
            states = (await client.get("/model/states?limit=1000")).json()["states"]
            paths = [f"/model/states/{state['index']}?trees=true" for state in states]
            return found + [(await client.get(path)).content for path in paths]

    async def search_files(self) -> None:
        """See also that nothing confirms a guess about what is gone."""
        await super().search_files()
        self.note()  # a tree that an erased sample was not in is as it was
        files = [path.read_bytes() for path in self.directory.rglob("*") if path.is_file() and "keys" not in path.parts]
        contents = [*files, *await self.answers()]
        everything, known = b"\0".join(contents), hex_in(contents)
        kept = {digest for one in self.fingerprints if not one.must_go for digest in one.digests}
        gone = [one for one in self.fingerprints if one.must_go]
        for digest in {digest for one in gone for digest in one.digests} - kept:
            assert not is_in(digest, everything), "the digest of a set with an erased sample"
            assert not is_salted(digest, known), "a hash of the digest of a set with an erased sample, and its salt"
        assert not [score for one in gone for score in one.scores if score in everything], "a score"
        self.tally["fingerprints gone"] += len(gone)
        self.fingerprints = [one for one in self.fingerprints if not one.must_go]

    # --- backups ----------------------------------------------------------------------------------

    async def back_up(self) -> None:
        """Stop the server when it has some more samples, and copy the whole directory."""
        for _ in range(3):
            await self.add()
        await self.service.lifecycle.stop()
        self.n_directories += 1
        self.backups.append((shutil.copytree(self.directory, self.folder / f"b{self.n_directories}"), Truth()))
        await self._reopen()
        self.backups[-1] = self.backups[-1][0], deepcopy(self.truth)
        if len(self.backups) > _MOST:
            shutil.rmtree(self.backups.pop(0)[0])

    async def fetch_ledger(self) -> Path:
        """Download the ledger, as `oubli ledger fetch` does."""
        path, cursor, pages = self.folder / "ledger.jsonl", "0", []
        async with self.client() as client:
            while cursor is not None:
                pages.append((await client.get(f"/ledger?limit=1000&cursor={cursor}")).json())
                cursor = pages[-1]["next"]
        path.write_text("".join(json.dumps(page) + "\n" for page in pages))
        return path

    def cut(self, ledger: Path) -> Path:
        """A download that was broken off."""
        *pages, last = ledger.read_text().splitlines()
        page = json.loads(last)
        page["entries"].pop()
        del page["checkpoint"]
        path = ledger.with_name("cut.jsonl")
        path.write_text("\n".join([*pages, json.dumps(page)]))
        return path

    async def change_since(self, then: Truth) -> None:
        """Erase something that a backup has, and restrict and release whom it may have."""
        if names := sorted(then.held.keys() & self.truth.held.keys()):
            name = self.rng.choice(names)
            self.gone([name], await self.service.changes.delete(ids=[name]), 1)
        await self.restrict()
        await self.release()

    async def restore_directory(self) -> None:
        """Start a copy of the directory, with a newer ledger in a file or in the directory."""
        if not self.backups:
            await self.back_up()
        path, then = self.rng.choice(self.backups)
        await self.change_since(then)
        ledger = await self.fetch_ledger()
        await self.service.lifecycle.stop()
        lost = self.directory.rename(self.folder / "lost")
        shutil.copytree(path, self.directory)
        if is_inside := self.rng.random() < 0.5:
            for old in self.directory.glob("ledger.sqlite*"):
                old.unlink()
            for newer in lost.glob("ledger.sqlite*"):
                shutil.copy(newer, self.directory)
        shutil.rmtree(lost)
        opened = open_directory(self.directory, new_clock=self.new_clock)
        assert opened.snapshots is not None
        choice = LedgerChoice(None if is_inside else ledger)
        await self._live(opened.recover(opened.snapshots.recover(), choice))
        version = self.service.model.state.version
        is_newer = bool(opened.notes) or version != then.version
        dropped = self.go_back(then, Truth(version=version, lineage=then.lineage))
        self.tally["dropped by a start"] += sum(dropped.values())
        if is_newer:  # also the files from before are gone
            content = b"".join(path.read_bytes() for path in self.directory.rglob("*") if path.is_file())
            names = then.held.keys() - self.truth.held.keys()
            assert not [name for name in names if name.encode() in content], "what a start has dropped is in a file"
        if is_newer:
            self.truth.lineage = self.n_directories = self.n_directories + 1

    async def lose_all_disks(self) -> None:
        """Begin a new directory with the keys and the ledger, and restore a snapshot into it."""
        if not self.files:
            await self.download()
        await self.change_since(self.files[-1][1])
        ledger = await self.fetch_ledger()
        await self.service.lifecycle.stop()
        self.n_directories += 1
        new = self.folder / str(self.n_directories)
        new.mkdir(mode=0o700)
        shutil.copytree(self.directory / "keys", new / "keys")
        for snapshot in self.directory.glob("snapshot-*"):
            snapshot.unlink()
        old = open_directory(self.directory, new_clock=self.new_clock)
        with pytest.raises(StartError, match="no snapshot"):  # it has served a model
            old.prepare()
        old.close()
        shutil.rmtree(self.directory)
        self.directory = new
        opened = open_directory(new, new_clock=self.new_clock)
        with pytest.raises(StartError, match="ends before"):
            opened.prepare(LedgerChoice(self.cut(ledger)))
        lost = opened.prepare(LedgerChoice(ledger))
        model = KINDS[self.kind, Task.CLASSIFICATION](**PARAMETERS[self.kind]).start(SCHEMA)
        await self._live(opened.begin(model, lost))
        self.absent.update(dict.fromkeys(self.truth.held))
        self.truth = Truth(version=self.service.model.state.version, lineage=self.n_directories)
        await self.restore()

    def operations(self) -> tuple[tuple[int, Callable[[], Coroutine[Any, Any, None]]], ...]:
        more = ((8, self.tell), (4, self.back_up), (4, self.restore_directory), (3, self.lose_all_disks))
        return (*super().operations(), *more)


def _numbers(content: Any) -> list[float]:
    """All numbers with fractions in an answer."""
    if isinstance(content, dict):
        return [number for one in content.values() for number in _numbers(one)]
    return [content] if isinstance(content, float) else []


play = BackupPlayer.history
