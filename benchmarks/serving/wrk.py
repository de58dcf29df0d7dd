"""`wrk`, where it is installed: the rate of a list of requests, sent again and again."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.serving.client import Load, RefusedError
from benchmarks.serving.servers import cores

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
# wrk sends what a script gives it as it is.
_SCRIPT = """
local requests = {{}}
for line in io.lines("{path}") do
  requests[#requests + 1] = line:gsub("%x%x", function(code) return string.char(tonumber(code, 16)) end)
end
local i = 0
function request()
  i = i % #requests + 1
  return requests[i]
end
"""


def is_installed() -> bool:
    """Whether there is one."""
    return shutil.which("wrk") is not None


def load(port: int, requests: Sequence[bytes], n_connections: int, seconds: int) -> Load:
    """Send requests for some seconds and return what was measured."""
    pair = cores()
    with tempfile.TemporaryDirectory() as folder:
        listed, script = Path(folder) / "requests", Path(folder) / "requests.lua"
        listed.write_text("".join(request.hex() + "\n" for request in requests), encoding="ascii")
        script.write_text(_SCRIPT.format(path=listed), encoding="ascii")
        options = ["-t1", f"-c{n_connections}", f"-d{seconds}s", "--latency", "-s", str(script)]
        pinned = [] if pair is None else ["taskset", "-c", str(pair[1])]
        command = [*pinned, "wrk", *options, f"http://127.0.0.1:{port}/"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return read_report(text)


def read_report(text: str) -> Load:
    """Read what wrk says at its end."""
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", text)
    if refused is not None:
        raise RefusedError(refused[0])
    shares = {}
    for share in ("50", "99"):
        found = re.search(rf"^\s+{share}%\s+([\d.]+)(us|ms|s)$", text, re.MULTILINE)
        if found is None:
            raise ValueError(f"wrk says nothing of {share} %")
        shares[share] = float(found[1]) * _UNITS[found[2]]
    rate = re.search(r"^Requests/sec:\s+([\d.]+)$", text, re.MULTILINE)
    if rate is None:
        raise ValueError("wrk says nothing of the rate")
    return Load(float(rate[1]), shares["50"], shares["99"])
