"""Whether the server is there."""

from __future__ import annotations

from dataclasses import replace as replaced
from urllib.parse import quote

from oubli.client.errors import NoAnswerError, ProblemError, UnavailableError
from oubli.client.messages import Flow, Request, Sleep
from oubli.client.nodes import Cluster
from oubli.client.operations.requests import FIRST_POLL, reading
from oubli.client.results import Readiness, read
from oubli.client.session import Session


def is_alive(session: Session) -> Flow[bool]:
    """Whether a process answers, whatever it is busy with. Each server is asked once."""
    try:
        yield from session.exchange(replaced(reading("/healthz"), is_retried=False))
    except (NoAnswerError, ProblemError):
        return False
    return True


def ready(session: Session, *, for_changes: bool = False) -> Flow[Readiness]:
    """Return the readiness of a server that is ready. It is asked once.

    Parameters
    ----------
    for_changes : bool
        Whether it must accept changes as well.

    Raises
    ------
    UnavailableError, NoAnswerError
        When it is not ready.
    """
    request = reading("/readyz", **({"for": "changes"} if for_changes else {}))
    return read(Readiness, (yield from session.ask(replaced(request, is_retried=False))))


def wait_ready(session: Session, *, timeout: float = 120.0, for_changes: bool = False) -> Flow[Readiness]:
    """Wait until the server is ready: it may be starting.

    Parameters
    ----------
    timeout : float
        In seconds.
    for_changes : bool
        Whether it must accept changes as well.

    Raises
    ------
    UnavailableError, NoAnswerError
        When it is not ready in time.
    """
    deadline = session.clock() + timeout
    pause = FIRST_POLL
    while True:
        try:
            return (yield from ready(session, for_changes=for_changes))
        except (UnavailableError, NoAnswerError):
            if session.clock() >= deadline:
                raise
        yield Sleep(pause)
        pause = min(1.0, 1.5 * pause)


def cluster(session: Session) -> Flow[Cluster]:
    """Return the nodes of the cluster, as the node sees them that answers. A server without others is `alone`."""
    return read(Cluster, (yield from session.ask(reading("/cluster"))))


def remove_node(session: Session, name: str) -> Flow[Cluster]:
    """Remove a node that is gone for good, and return the others. It takes a key with the scope `admin`.

    Receipts say nothing of that machine any more: wipe its disk.

    Parameters
    ----------
    name : str
        Of the node.

    Raises
    ------
    ProblemError
        Of the kind `no-node` when there is none of this name, `node-alive` when it leads or is not expelled.
    """
    return read(Cluster, (yield from session.ask(Request("DELETE", f"/cluster/nodes/{quote(name, safe='')}"))))
