"""A load test of a running server with httpx2 or httpx: `python examples/load_test.py http://127.0.0.1:8000 200 10`.

It sends 200 requests a second for 10 seconds, each when it is due, even if earlier ones have no answer yet. Times count
from the moment a request was due, so a server that stands still cannot hide it. A fourth argument sets the seconds to
wait for an answer (30); requests without one are counted. `oubli load-test` does the same with more processes.
"""

import asyncio
import random
import sys
import time
import uuid
from collections import defaultdict

try:
    import httpx2 as http
except ImportError:
    import httpx as http


class LoadTest:
    """Requests to a server, their times, and whether each answer reflects all changes acknowledged before."""

    def __init__(self, client: http.AsyncClient, samples: list[dict]) -> None:
        self.client, self.samples = client, samples
        self.subject = f"load-test-{uuid.uuid4()}"  # of all added samples, to delete them at the end
        self.added: list[str] = []
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.version = self.n_stale = self.n_errors = self.n_unanswered = 0

    async def request(self, operation: str, due: float) -> None:
        """Send one request, and record its outcome."""
        sample, sample_id, version = random.choice(self.samples), f"{self.subject}-{uuid.uuid4()}", self.version
        content = {"features": sample["features"], "label": sample["label"], "id": sample_id, "subject": self.subject}
        if operation == "delete" and not self.added:
            operation = "add"
        try:
            if operation == "predict":
                answer = await self.client.post("/predict", json={"instances": [sample["features"]]})
            elif operation == "add":
                answer = await self.client.post("/samples", json={"samples": [content]})
            else:
                answer = await self.client.delete(f"/samples/{self.added.pop()}")
        except http.TransportError:  # too slow, or the connection broke: the others continue
            self.n_errors, self.n_unanswered = self.n_errors + 1, self.n_unanswered + 1
            return
        self.seconds[operation].append(time.monotonic() - due)
        self.n_errors += not answer.is_success
        self.n_stale += answer.is_success and answer.json()["model_version"] < version
        if answer.is_success and operation != "predict":
            self.version = max(self.version, answer.json()["model_version"])
            if answer.status_code == 201:
                self.added.append(sample_id)

    async def run(self, rate: float, seconds: float) -> None:
        """Send at a rate, wait for all answers, and delete the added samples."""
        begin = time.monotonic()
        try:
            async with asyncio.TaskGroup() as tasks:
                for i in range(int(rate * seconds)):
                    due = begin + i / rate
                    await asyncio.sleep(due - time.monotonic())
                    operation = random.choices(["predict", "add", "delete"], [90, 5, 5])[0]
                    tasks.create_task(self.request(operation, due))
        finally:
            # This request gets more time: it also deletes samples of unanswered requests.
            await self.client.post("/samples/batch-delete", json={"subjects": [self.subject]}, timeout=300)


async def main(url: str, rate: float, seconds: float, patience: float = 30) -> None:
    """Run a load test with samples that the server holds, and print the measurements."""
    async with http.AsyncClient(base_url=url, timeout=patience) as client:
        test = LoadTest(client, (await client.get("/samples?limit=100")).raise_for_status().json()["samples"])
        await test.run(rate, seconds)
    for operation, times in test.seconds.items():
        p50, p99 = (1000 * sorted(times)[int(share * (len(times) - 1))] for share in (0.5, 0.99))
        print(f"{operation:8} {len(times):6} requests   p50 {p50:8.2f} ms   p99 {p99:8.2f} ms")
    print(f"errors: {test.n_errors}, of them without an answer: {test.n_unanswered}")
    print(f"answers older than an acknowledged change: {test.n_stale}")


asyncio.run(main(sys.argv[1], *map(float, sys.argv[2:])))
