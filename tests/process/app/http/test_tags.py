"""Tags are resolved by a thread while requests are answered: nothing that is answered shows it."""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oubli.core.concurrency.threads import usable_cores
from tests.oracles import forest as oracle
from tests.oracles.common import Column
from tests.process.durability.asking import wait_for
from tests.process.durability.reading import finish
from tests.serving import Running, serving

N_SAMPLES = 3000
N_VERSIONS = 2  # compared with the oracle, which takes a second each
COLUMNS = (Column(), Column(), Column("categorical"))
FOREST = {"n_estimators": 12, "occurrence": 0.3, "max_features": 2, "n_thresholds": 4, "max_depth": 14}
FLAGS = [part for name, value in FOREST.items() for part in (f"--{name.replace('_', '-')}", str(value))]

# In the ordinary tier are `tests/exact/app/service/test_tag_thread.py` and `tests/unit/app/service/test_live.py`.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(usable_cores() < 2, reason="with one core tags are resolved on the event loop"),
]


def sample(rng: random.Random) -> tuple[list[Any], str]:
    row = [rng.gauss(0, 1), rng.random(), rng.choice(["red", "green", "blue"])]
    return row, "yes" if row[0] + rng.gauss(0, 1) > (row[2] == "red") else "no"


Held = dict[str, tuple[list[Any], str]]


@pytest.fixture(scope="module")
def held() -> Held:
    rng = random.Random(0)
    return {f"s{i}": sample(rng) for i in range(N_SAMPLES)}


@pytest.fixture
def folder(tmp_path: Path, held: Held) -> Path:
    lines = [f"{name},{row[0]!r},{row[1]!r},{row[2]},{label}" for name, (row, label) in held.items()]
    (tmp_path / "people.csv").write_text("\n".join(["name,x,y,colour,label", *lines]) + "\n")
    return tmp_path


def serve(folder: Path, *flags: str) -> Any:
    given = ("--data", "people.csv", "--target", "label", "--id", "name", "--random-state", "0", "--threads", "2")
    return serving(*given, *FLAGS, *flags, cwd=folder)


class Asker:
    """A client with one connection."""

    def __init__(self, server: Running) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)

    def ask(self, method: str, path: str, content: Any = None) -> dict[str, Any]:
        body = None if content is None else json.dumps(content)
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
        assert answer.status in (200, 201), found
        return found

    def close(self) -> None:
        self._connection.close()


def test_seven_clients_get_the_answers_of_the_oracle(folder: Path, held: Held) -> None:
    """Two change the model, one sample a time, and five ask; each version is compared with what remained then.

    The tags go while requests come without a pause, and the server stops in the middle of some.
    """
    changes: Changes = {}
    answers: dict[int, list[tuple[list[Any], list[float]]]] = {}
    is_over = threading.Event()

    def change(server: Running, number: int) -> None:
        rng = random.Random(f"change {number}")
        mine = [name for i, name in enumerate(held) if i % 2 == number]
        with closing(Asker(server)) as asker:
            for turn in range(120):
                if turn % 3 == 2:
                    name, new = f"new{number}-{turn}", sample(rng)
                    sent = {"id": name, "features": new[0], "label": new[1]}
                    version = asker.ask("POST", "/samples", {"samples": [sent]})["model_version"]
                    changes[version] = name, new
                else:
                    name = mine.pop(rng.randrange(len(mine)))
                    changes[asker.ask("DELETE", f"/samples/{name}")["model_version"]] = name, None

    def predict(server: Running, number: int) -> None:
        rng = random.Random(f"predict {number}")
        with closing(Asker(server)) as asker:
            while not is_over.is_set():
                row = sample(rng)[0]
                found = asker.ask("POST", "/predict", {"instances": [row]})
                answers.setdefault(found["model_version"], []).append((row, found["probabilities"][0]))
                time.sleep(rng.random() * 2e-3)

    with serve(folder) as server, ThreadPoolExecutor(7) as pool:
        asking = [pool.submit(predict, server, n) for n in range(5)]
        try:
            for one in [pool.submit(change, server, n) for n in range(2)]:
                one.result()
            wait_for(lambda: server.get("/model")[1]["lazy_tags"] == 0, "an end of the tags")
        finally:
            is_over.set()
        for one in asking:
            one.result()
        assert len(changes) == 240
        assert _resolved(server) > 200
        assert finish(server, "/model/verify")["ok"]
        n_samples = server.get("/model")[1]["n_samples"]
        for name in list(held_at(held, changes, max(changes)))[:30]:
            assert server.ask("DELETE", f"/samples/{name}")[0] == 200
        assert server.stop(signal.SIGTERM) == 0
    with serve(folder) as server:
        assert server.get("/model")[1]["n_samples"] == n_samples - 30
        assert finish(server, "/model/verify")["ok"]
    seen = sorted(answers)
    assert len(seen) > 20
    for version in random.Random(1).sample(seen[1:-1], N_VERSIONS - 1) + seen[-1:]:
        forest = fitted(held, changes, version)
        for row, probabilities in answers[version]:
            assert probabilities == oracle.predict_proba(forest, [row])[0], f"version {version}"


Changes = dict[int, tuple[str, tuple[list[Any], str] | None]]  # what each version added, or None for a deletion


def held_at(held: Held, changes: Changes, version: int) -> Held:
    now = dict(held)
    for number in sorted(number for number in changes if number <= version):
        name, content = changes[number]
        if content is None:
            del now[name]
        else:
            now[name] = content
    return now


def fitted(held: Held, changes: Changes, version: int) -> oracle.Forest:
    """The oracle's forest of what was held at a version."""
    parameters = {"n_attributes" if name == "max_features" else name: value for name, value in FOREST.items()}
    rows = [oracle.Row(name, tuple(row), label) for name, (row, label) in held_at(held, changes, version).items()]
    return oracle.fit(rows, oracle.Parameters(seed=0, **parameters), COLUMNS, "classification")  # type: ignore[arg-type]


def _resolved(server: Running) -> float:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    (line,) = (line for line in text.splitlines() if line.startswith("oubli_resolved_tags_total "))
    return float(line.split()[1])
