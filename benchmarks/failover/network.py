"""Hosts in network namespaces behind one bridge, so that a host can be cut off. Needs root and `ip` (iproute2)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUBNET = "10.213.77"  # of these hosts alone
_HUB = 254  # the last number of the address of the machine itself
_IP = shutil.which("ip") or "/usr/sbin/ip"


def _ip(*arguments: str) -> None:
    subprocess.run([_IP, *arguments], check=True, capture_output=True)


class Host:
    """A network namespace with one address.

    Parameters
    ----------
    name
        Of the namespace; the cable to the bridge is named after it.
    number
        The last number of its address.
    """

    def __init__(self, name: str, number: int) -> None:
        self._name = name
        self._cable = f"v{name}"
        self.address = f"{_SUBNET}.{number}"
        self.is_cut = False

    def connect(self, bridge: str) -> None:
        """Make the namespace, and plug it in."""
        _ip("netns", "add", self._name)
        inner = f"i{self._name}"
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", inner)
        _ip("link", "set", inner, "netns", self._name)
        _ip("link", "set", self._cable, "master", bridge, "up")
        _ip("-n", self._name, "addr", "add", f"{self.address}/24", "dev", inner)
        _ip("-n", self._name, "link", "set", inner, "up")
        _ip("-n", self._name, "link", "set", "lo", "up")

    def cut(self) -> None:
        """Cut the host off: what is sent to it or from it is lost in silence."""
        _ip("link", "set", self._cable, "down")
        self.is_cut = True

    def mend(self) -> None:
        """Plug the host in again."""
        _ip("link", "set", self._cable, "up")
        self.is_cut = False

    def start(self, command: Sequence[str], output: IO[bytes], **options: Any) -> subprocess.Popen[bytes]:
        """Start a program on the host; its process id is that of the program."""
        return subprocess.Popen(
            [_IP, "netns", "exec", self._name, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            **options,
        )

    def remove(self) -> None:
        """Remove the namespace; the cable goes with it."""
        with suppress(subprocess.CalledProcessError):
            _ip("netns", "del", self._name)


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[dict[str, Host]]:
    """Give hosts that see each other and this machine, by their names, and take them away at the end."""
    tag = f"{os.getpid() % 100_000:05d}"
    bridge = f"oub{tag}"
    with ExitStack() as made:
        _ip("link", "add", bridge, "type", "bridge")
        made.callback(_ip, "link", "del", bridge)
        _ip("addr", "add", f"{_SUBNET}.{_HUB}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        found = {}
        for number, name in enumerate(names, 1):
            host = Host(f"{tag}{name[:6]}", number)
            made.callback(host.remove)
            host.connect(bridge)
            found[name] = host
        yield found


def as_user(command: Sequence[str], user: str) -> list[str]:
    """Return a command that runs as another user, for programs that refuse root."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
