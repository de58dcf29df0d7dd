"""Clients that change a model all at once, each in a thread and on its own connection, and remember every answer."""

import http.client
import json
import random
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

from tests.process.durability.model_of_truth import Operation, Sent
from tests.process.durability.people import FIRST_MARK, Content, Strangers, people
from tests.serving import Running

_MARKS = 5_000  # of a client in one life: 400 lives of six clients have room below 2**24


@dataclass
class Acquaintances:
    """Samples and households that all clients know of, so that they get in each other's way."""

    samples: dict[str, Content]
    households: list[str]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, ids: Sequence[str], contents: Sequence[Content]) -> None:
        with self._lock:
            self.samples.update(zip(ids, contents, strict=True))

    def some(self, source: random.Random, n: int) -> list[tuple[str, Content]]:
        """Return some samples; the newest are met more often."""
        with self._lock:
            names = list(self.samples)
            recent = names[-40:] if source.random() < 0.5 else names
            return [(name, self.samples[name]) for name in source.sample(recent, min(n, len(recent)))]


def everybody() -> Acquaintances:
    """What clients know of a server that holds all people and nothing else."""
    return Acquaintances(people(), sorted({str(one.subject) for one in people().values()}))


class Request(NamedTuple):
    """An operation as it is sent."""

    operation: Operation
    method: str
    target: str
    content: dict[str, Any] | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.operation.key is None else {"Idempotency-Key": self.operation.key}

    def sent_to(self, server: Running) -> tuple[int, Any]:
        """Send it on a connection of its own; return status and content."""
        return server.ask(self.method, self.target, self.content, **self.headers)


def as_json(sent: Sent, *, readd: bool = False) -> dict[str, Any]:
    """Return a sample as `POST /samples` takes it."""
    content: dict[str, Any] = {"features": list(sent.content.features), "label": sent.content.label}
    more = {"id": sent.id, "subject": sent.content.subject, "readd": readd or None}
    return content | {name: value for name, value in more.items() if value is not None}


class Chooser:
    """Makes the requests of one client up, of every sort there is."""

    def __init__(self, name: str, known: Acquaintances, source: random.Random, strangers: Strangers) -> None:
        self._name, self._known, self._source, self._strangers = name, known, source, strangers
        self._n_ids = 0
        self._sorts: tuple[tuple[int, Callable[[], Request]], ...] = (
            (18, self._add_one), (10, self._add_many), (8, self._add_without_ids), (8, partial(self._add_known, 2)),
            (10, partial(self._add_known, 1, readd=True)), (12, self._rectify), (14, self._delete_one),
            (6, self._delete_by_query), (5, self._delete_household), (6, self._delete_batch),
            (3, self._delete_households), (4, partial(self._restriction, "restrict")),
            (5, partial(self._restriction, "release")),
        )  # fmt: skip

    def next(self) -> Request:
        """Return another request."""
        (choose,) = self._source.choices([sort for _, sort in self._sorts], [weight for weight, _ in self._sorts])
        return choose()

    def _add_one(self) -> Request:
        return self._addition([Sent(self._new_id(), self._strangers.meet(self._household()))])

    def _add_many(self) -> Request:
        household = self._household()
        n = self._source.randrange(2, 9)
        return self._addition([Sent(self._new_id(), self._strangers.meet(household)) for _ in range(n)])

    def _add_without_ids(self) -> Request:
        # Of no one's household: a deletion that takes it away before its answer comes would take its mark along.
        return self._addition([Sent(None, self._strangers.meet()) for _ in range(self._source.randrange(1, 4))])

    def _add_known(self, n: int, *, readd: bool = False) -> Request:
        return self._addition([Sent(*known) for known in self._known.some(self._source, n)], readd=readd)

    def _addition(self, samples: list[Sent], *, readd: bool = False) -> Request:
        operation = Operation("add", samples=tuple(samples), readd=readd, key=self._key())
        return Request(operation, "POST", "/samples", {"samples": [as_json(sent, readd=readd) for sent in samples]})

    def _rectify(self) -> Request:
        ((name, _),) = self._known.some(self._source, 1)
        keep = self._source.random() < 0.5
        sent = Sent(name, self._strangers.meet(None if keep else self._household()))
        content = as_json(sent) | ({} if keep else {"subject": sent.content.subject})
        operation = Operation("put", samples=(sent,), keep_subject=keep)
        return Request(operation, "PUT", f"/samples/{name}{self._ref('?')}", content)

    def _delete_one(self) -> Request:
        ((name, _),) = self._known.some(self._source, 1)
        return Request(Operation("delete", ids=(name,)), "DELETE", f"/samples/{name}{self._ref('?')}")

    def _delete_by_query(self) -> Request:
        names = self._some_ids(self._source.randrange(1, 4))
        query = "&".join(f"id={name}" for name in names)
        return Request(Operation("delete", ids=names), "DELETE", f"/samples?{query}{self._ref('&')}")

    def _delete_household(self) -> Request:
        household = self._household(certain=True)
        operation = Operation("delete", subjects=(str(household),))
        return Request(operation, "DELETE", f"/samples?subject={household}{self._ref('&')}")

    def _delete_batch(self) -> Request:
        names = self._some_ids(self._source.randrange(1, 7))
        return self._batch(Operation("delete", ids=names, key=self._key()), {"ids": list(names)})

    def _delete_households(self) -> Request:
        subjects = tuple(self._source.sample(self._known.households, 2))
        return self._batch(Operation("delete", subjects=subjects, key=self._key()), {"subjects": list(subjects)})

    def _restriction(self, kind: Literal["restrict", "release"]) -> Request:
        subjects = tuple(self._source.sample(self._known.households, self._source.randrange(1, 4)))
        operation = Operation(kind, subjects=subjects, key=self._key())
        return Request(operation, "POST", f"/subjects/{kind}", {"subjects": list(subjects)})

    def _batch(self, operation: Operation, content: dict[str, Any]) -> Request:
        if self._source.random() < 0.3:
            content["ref"] = self._uuid()
        return Request(operation, "POST", "/samples/batch-delete", content)

    def _new_id(self) -> str:
        self._n_ids += 1
        return f"{self._name}-{self._n_ids:04d}"  # of one length, so that none is the beginning of another

    def _household(self, *, certain: bool = False) -> str | None:
        if not certain and self._source.random() < 0.3:
            return None
        return self._source.choice(self._known.households)

    def _some_ids(self, n: int) -> tuple[str, ...]:
        return tuple(name for name, _ in self._known.some(self._source, n))

    def _ref(self, sign: str) -> str:
        return f"{sign}ref={self._uuid()}" if self._source.random() < 0.3 else ""

    def _key(self) -> str | None:
        return self._uuid() if self._source.random() < 0.3 else None

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._source.getrandbits(128), version=4))


class Client(threading.Thread):
    """Sends one request after the other until the server is gone or it has to stop."""

    def __init__(self, port: int, name: str, known: Acquaintances, seed: int, first_mark: int) -> None:
        super().__init__(name=name, daemon=True)
        source = random.Random(seed)
        self.requests: list[Request] = []  # all that was sent, in order; the answers are in their operations
        self.failures: list[str] = []  # what should not have been answered
        self._port = port
        self._known = known
        self._chooser = Chooser(name, known, source, Strangers(source, first_mark))
        self._told_to_stop = threading.Event()

    def stop(self) -> None:
        """Send nothing more after the answer to what was sent."""
        self._told_to_stop.set()

    def run(self) -> None:
        """Send until the connection breaks."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.connect()
            while not self._told_to_stop.is_set():
                request = self._chooser.next()
                self.requests.append(request)
                if not self._ask(connection, request):
                    return
        except (OSError, http.client.HTTPException):
            return  # what was sent last stays without an answer
        finally:
            connection.close()

    def _ask(self, connection: http.client.HTTPConnection, request: Request) -> bool:
        body = None if request.content is None else json.dumps(request.content)
        headers = {"Content-Type": "application/json", **request.headers}
        connection.request(request.method, request.target, body, headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        operation = request.operation
        operation.answer, operation.status = content, answer.status
        if answer.status not in (200, 201, 404, 409):
            self.failures.append(f"{request.method} {request.operation.kind}: {answer.status} {content.get('type')}")
            return False
        if operation.is_acknowledged and operation.kind in ("add", "put"):
            ids = content["ids"] if operation.kind == "add" else [str(operation.samples[0].id)]
            self._known.note(ids, [sent.content for sent in operation.samples])
        return True


def start_clients(port: int, known: Acquaintances, life: int, seed: int, n: int = 6) -> list[Client]:
    """Start clients for one life of a server; their ids and marks differ from those of every other life."""
    clients = []
    for i in range(n):
        number = life * n + i
        clients.append(Client(port, f"l{life}c{i}", known, seed * 10_000 + number, FIRST_MARK + _MARKS * number))
        clients[-1].start()
    return clients
