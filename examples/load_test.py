"""A load test of a running server with httpx2: `python examples/load_test.py http://127.0.0.1:8000 200 10`.

It sends 200 requests a second for 10 seconds, each when it is due, whatever became of those before. Times count from
then, so that a server that stands still cannot hide it. `oubli load-test` does the same with more processes.
"""

import asyncio
import random
import sys
import time
import uuid
from collections import defaultdict

import httpx2


class LoadTest:
    """Requests to a server, how long they took, and whether answers know of all changes acknowledged before."""

    def __init__(self, client: httpx2.AsyncClient, samples: list[dict]) -> None:
        self.client, self.samples = client, samples
        self.subject = f"load-test-{uuid.uuid4()}"  # of all samples that are added, so that they are found again
        self.added: list[str] = []
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.version = self.n_stale = self.n_errors = 0

    async def request(self, operation: str, due: float) -> None:
        """Send one request, and note what became of it."""
        sample, sample_id, version = random.choice(self.samples), f"{self.subject}-{uuid.uuid4()}", self.version
        content = {"features": sample["features"], "label": sample["label"], "id": sample_id, "subject": self.subject}
        if operation == "delete" and not self.added:
            operation = "add"
        if operation == "predict":
            answer = await self.client.post("/predict", json={"instances": [sample["features"]]})
        elif operation == "add":
            answer = await self.client.post("/samples", json={"samples": [content]})
        else:
            answer = await self.client.delete(f"/samples/{self.added.pop()}")
        self.seconds[operation].append(time.monotonic() - due)
        self.n_errors += not answer.is_success
        self.n_stale += answer.is_success and answer.json()["model_version"] < version
        if answer.is_success and operation != "predict":
            self.version = max(self.version, answer.json()["model_version"])
            if answer.status_code == 201:
                self.added.append(sample_id)

    async def run(self, rate: float, seconds: float) -> None:
        """Send at a rate, wait for all answers, and take away what was added."""
        begin = time.monotonic()
        try:
            async with asyncio.TaskGroup() as tasks:
                for i in range(int(rate * seconds)):
                    due = begin + i / rate
                    await asyncio.sleep(due - time.monotonic())
                    operation = random.choices(["predict", "add", "delete"], [90, 5, 5])[0]
                    tasks.create_task(self.request(operation, due))
        finally:
            await self.client.post("/samples/batch-delete", json={"subjects": [self.subject]})


async def main(url: str, rate: float, seconds: float) -> None:
    """Run a load test with samples that the server holds, and print what was measured."""
    async with httpx2.AsyncClient(base_url=url, timeout=30) as client:
        test = LoadTest(client, (await client.get("/samples?limit=100")).raise_for_status().json()["samples"])
        await test.run(rate, seconds)
    for operation, times in test.seconds.items():
        p50, p99 = (1000 * sorted(times)[int(share * (len(times) - 1))] for share in (0.5, 0.99))
        print(f"{operation:8} {len(times):6} requests   p50 {p50:8.2f} ms   p99 {p99:8.2f} ms")
    print(f"errors: {test.n_errors}, answers older than an acknowledged change: {test.n_stale}")


asyncio.run(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
