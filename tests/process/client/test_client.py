"""Clients of a real server: progress as it comes, and a server that goes and comes back."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oubli.client import AsyncClient, Client, Retries
from tests.servers import module_server
from tests.serving import Running, free_port, serving

ROWS = [f"{i % 7},{'abc'[i % 3]},{('true', 'false')[i % 2]},{'yes' if i % 4 else 'no'}" for i in range(60)]
PATIENT = Retries(200, first_wait=0.02, longest_wait=0.5)
BEFORE, AFTER = 20, 10  # additions of each worker
N_WORKERS = 3


def with_data(folder: Path) -> tuple[str, ...]:
    (folder / "data.csv").write_text("\n".join(["age,job,member,income", *ROWS]) + "\n")
    return ("--data", "data.csv", "--target", "income", "--n-estimators", "3")


server = module_server(with_data)


def test_a_job_tells_its_progress_by_events(server: Running) -> None:
    with Client(server.url) as client:
        states = list(client.watch(client.fit(parameters={"n_estimators": 4})))
        assert states[-1].status == "succeeded"
        assert [state.progress for state in states] == sorted(state.progress for state in states)
        told: list[float] = []
        client.wait(client.verify(), progress=told.append)
        assert told[-1] == 1.0

    async def run() -> list[str]:
        async with AsyncClient(server.url) as client:
            return [state.status async for state in client.watch(await client.verify())]

    assert asyncio.run(run())[-1] == "succeeded"


def test_many_threads_share_a_client_and_read_their_writes(server: Running) -> None:
    with Client(server.url) as client, ThreadPoolExecutor(4) as pool:

        def write_and_read(i: int) -> bool:
            added = client.add([[i, "a", True]], ["yes"])
            return client.predict([[i, "a", True]]).model_version >= added.model_version

        assert all(pool.map(write_and_read, range(40)))
        assert client.min_version == client.model().model_version


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_a_restart_amid_additions_doubles_nothing_and_loses_nothing(tmp_path: Path, how: signal.Signals) -> None:
    port, flags = free_port(), with_data(tmp_path)
    going = Going()
    with ThreadPoolExecutor(N_WORKERS) as pool:
        with serving(*flags, cwd=tmp_path, port=port) as server:
            url = server.url
            waiting = [pool.submit(going.add_waiting, url) for _ in range(N_WORKERS - 1)]
            awaiting = pool.submit(asyncio.run, going.add_awaiting(url))
            assert going.far.wait(120)
            server.stop(how)
        going.is_back.set()
        with serving(*flags, cwd=tmp_path, port=port):
            answered = [name for future in (*waiting, awaiting) for name in future.result(timeout=120)]
            assert len(set(answered)) == len(answered)
            with Client(url) as client:
                held = {sample.id: sample for sample in client.samples()}
                assert held.keys() >= set(answered)
                assert len(held) == len(ROWS) + len(answered)
                assert client.wait(client.verify()).result["ok"]  # type: ignore[index]


class Going:
    """Additions that continue while the server is stopped and started."""

    def __init__(self) -> None:
        self.far = threading.Event()  # set when enough were answered
        self.is_back = threading.Event()  # set when the server is being started again
        self._n = 0

    def add_waiting(self, url: str) -> list[str]:
        """Add until some were added after the restart; return the ids."""
        with Client(url, retries=PATIENT) as client:
            names: list[str] = []
            while self._goes_on():
                names += client.add([[1, "a", True]], ["yes"]).ids
            return names + [client.add([[1, "a", True]], ["yes"]).ids[0] for _ in range(AFTER)]

    async def add_awaiting(self, url: str) -> list[str]:
        """Do the same, several at a time."""
        async with AsyncClient(url, retries=PATIENT) as client:
            names: list[str] = []

            async def add() -> None:
                names.extend((await client.add([[2, "b", False]], ["no"])).ids)

            while self._goes_on():
                await asyncio.gather(*(add() for _ in range(4)))
            await asyncio.gather(*(add() for _ in range(AFTER)))
            return names

    def _goes_on(self) -> bool:
        self._n += 1
        if self._n >= BEFORE * N_WORKERS:
            self.far.set()
        return not self.is_back.is_set()
