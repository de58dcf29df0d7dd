"""Clients without a key that open many connections, send endless heads, or send slowly, to a real server process."""

import contextlib
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError

from tests.servers import module_server
from tests.serving import Running, small_table

N_FILES = 200  # that the server may open
KEY = "0123456789abcdef-key"
LIMITED = ("bash", "-c", f'ulimit -n {N_FILES} && exec "$0" -m tests.fixed "$@"', sys.executable)


def with_a_key(folder: Path) -> tuple[str, ...]:
    (folder / "key").write_text(KEY)
    return (*small_table(folder), "--api-key-file", "key", "--idle-timeout", "30", "--snapshot-mutations", "5")


server = module_server(with_a_key, command=LIMITED, TEST_FIXED='{"head_timeout": 2, "body_timeout": 2}')


def ask(server: Running, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Ask as a client does that tries again when it is told to: all connections may be new at the moment."""
    for _ in range(5):
        with contextlib.suppress(ConnectionError, URLError):
            status, content = server.ask(method, path, body, X_API_Key=KEY)
            if not (status == 503 and content["type"].endswith("too-many-connections")):
                return status, content
        time.sleep(1)
    raise AssertionError("no connection was let in")


def works(server: Running, name: str) -> None:
    """Changes, snapshots (which open files) and predictions are answered."""
    for i in range(6):  # more than a snapshot waits for
        sample = {"id": f"{name}{i}", "features": [1, "a"], "label": "yes"}
        assert ask(server, "POST", "/samples", {"samples": [sample]})[0] == 201
    assert ask(server, "POST", "/snapshot")[0] == 201
    assert ask(server, "DELETE", f"/samples/{name}1")[1]["unlearned"] == 1
    assert ask(server, "POST", "/predict", {"instances": [[1, "a"]]})[0] == 200
    assert ask(server, "POST", "/model/scrub")[0] == 202
    assert ask(server, "GET", "/readyz?for=changes")[1]["changes"] == "accepted"


def test_idle_connections_do_not_stop_changes(server: Running) -> None:
    """They used up the descriptors: the next snapshot failed, and changes were refused until a restart."""
    idle = []
    with contextlib.ExitStack() as stack:
        for i in range(3 * N_FILES):
            idle.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30)))
            if i == N_FILES:
                works(server, f"idle{i}-")
        works(server, "idle-")
        n_open = len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))
        assert n_open < N_FILES - 20
    works(server, "later-")
    assert server.process.poll() is None
    assert not any(text in server.output for text in ("could not", "no change is accepted"))
