"""The documentation is true: every command and program in it runs, and the reference is what the code says.

A block of commands (`sh`) or of Python is run; a block of `text` or `json` behind one is what it writes. Three dots
stand for anything, and numbers with fractions need only be near. The blocks of a page run in order, in one shell or one
process.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import yaml
from typer.main import get_command

from oubli.app.cli.main import cli
from tests.commands import commands
from tests.serving import EXAMPLE, ROOT, Running, free_port, output_of, run_program
from tests.tiers import ordinary

DOCS = ROOT / "docs"
# The pages of the gallery are notebooks, which test_gallery.py runs.
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in DOCS.rglob("*.md") if "gallery" not in path.parts)
PAGES.insert(0, "README.md")
DOCUMENTS = [*PAGES, "ARCHITECTURE.md", "CHANGELOG.md", "examples/README.md"]
ADDRESS = "http://127.0.0.1:8000"  # that the pages name

# Blocks that no test runs, by what they hold, and why.
NOT_RUN = {
    "pip install .": "installs into the environment of the tests; the wheel has tests of its own",
    "docker compose up": "needs Docker; test_docker.py checks the files",
    "docker buildx imagetools": "needs Docker; test_docker.py checks the build argument",
    "docker/secrets.sh": "needs Docker; test_docker.py runs the scripts",
    "docker compose --profile cluster": "needs Docker; test_docker.py runs its PostgreSQL without",
    "createuser": "needs PostgreSQL; test_docker.py runs the same statements",
    "oubli cluster remove": "needs a cluster with a node that is gone; test_members.py runs it",
    "from oubli import Client\n\nnodes": "needs three nodes; tests/process/client/test_cluster.py runs the same",
    "kubectl create": "needs a cluster; test_deployment.py checks the files",
    "kubectl rollout": "needs a cluster",
    "import shap": "needs the package shap; docs/scripts/explanations.py draws the pictures with it",
    "python3 -m venv /opt/oubli": "changes the machine; the wheel has tests of its own",
    "go install filippo.io": "installs programs of others, in Go",
    "library(httr2)": "needs R and httr2; run by hand when it is changed",
    "import java.net.URI;": "needs a JDK; run by hand when it is changed",
    "openssl rand -hex 32": "would listen on all addresses of the machine",
}
OTHERS = ("java", "r")  # languages of programs that no test runs
# Pages that start their own server. The others ask one that is started once.
STARTING = re.compile(r"^(make run|oubli serve)\b", re.MULTILINE)
STOP = "<!-- test: stop the server -->"
BLOCK = re.compile(rf"^```(\w+)\n(.*?)^```$|^({re.escape(STOP)})$", re.MULTILINE | re.DOTALL)

# A stream ends with its reader: by itself curl would not notice before the next event.
SHELL = """
set -e
python3() { "$PYTHON" "$@"; }
CURL='command curl --silent --show-error --fail-with-body --max-time 60'
curl() { case "$1" in -N) stream "$@" ;; *) $CURL "$@" ;; esac; }
stream() {
    $CURL "$@" & asking=$!
    "$PYTHON" -ISc 'import select; p = select.poll(); p.register(1, 0); p.poll()' & watching=$!
    wait -n $asking $watching
    kill $asking $watching 2>/dev/null || true
}
oubli() {
    case "$1" in
        serve) serve "${@:2}" ;;
        snapshot) $OUBLI snapshot --url "$URL" "${@:2}" ;;
        *) $OUBLI "$@" ;;
    esac
}
make() { [ "$1" != run ] || [ -z "$PORT" ] || serve --data examples/adult.csv.gz --target income --n-estimators 10; }
serve() {
    stop
    $OUBLI serve --port "$PORT" "$@" >>"server.txt" 2>&1 </dev/null &
    server=$!
    for _ in $(seq 2400); do
        kill -0 "$server" 2>/dev/null || { cat server.txt >&2; return 1; }
        ! command curl --silent --fail --output /dev/null "$URL/readyz" || return 0
        sleep 0.1
    done
    return 1
}
stop() { [ -z "$server" ] || { kill -TERM "$server"; wait "$server"; server=; }; }
server=
trap '[ -z "$server" ] || kill "$server"' EXIT
"""


class Block(NamedTuple):
    """A block of a page: its language or `stop`, what is in it, and its number."""

    kind: str
    text: str
    number: int

    @property
    def is_run(self) -> bool:
        return self.kind in ("sh", "python") and not any(self.text.startswith(text) for text in NOT_RUN)


def blocks_of(page: str) -> list[Block]:
    found = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    return [Block("stop" if stop else kind, body, i) for i, (kind, body, stop) in enumerate(found)]


def run_in_order(blocks: list[Block], kind: str) -> list[Block]:
    return [block for block in blocks if block.kind in (kind, "stop") and (block.is_run or block.kind == "stop")]


def mark(block: Block) -> str:
    return f"=== block {block.number} ==="


def compare(page: str, blocks: list[Block], kind: str, output: str) -> None:
    """Compare what blocks wrote, each behind its mark, with what the page shows behind them."""
    parts = re.split(r"^=== block (\d+) ===\n", output, flags=re.MULTILINE)
    written = dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
    for block, following in pairwise(blocks):
        if block.kind != kind or not block.is_run or following.kind not in ("text", "json"):
            continue
        actual = written[block.number]
        if following.kind == "json":
            assert is_like(json.loads(following.text), json.loads(actual)), f"{page}:\n{following.text}\nis\n{actual}"
        else:
            assert is_as_shown(following.text, actual), f"{page}:\n{following.text}\nis\n{actual}"


def is_as_shown(shown: str, actual: str) -> bool:
    """Whether a text is what a page shows; three dots stand for anything, also for nothing behind a word."""
    parts = [re.escape(part) for part in re.split(r" ?\.\.\.", " ".join(shown.split()))]
    return bool(re.fullmatch(".*".join(parts), " ".join(actual.split()), re.DOTALL))


def is_like(shown: Any, actual: Any) -> bool:
    """Whether an answer is what a page shows; three dots stand for anything, as a value, a key or the end of a list."""
    if shown == "...":
        return True
    if isinstance(shown, dict) and isinstance(actual, dict):
        named = shown.keys() - {"..."}
        has_keys = named == actual.keys() or ("..." in shown and named <= actual.keys())
        return has_keys and all(is_like(shown[key], actual[key]) for key in named)
    if isinstance(shown, list) and isinstance(actual, list):
        if len(shown) != len(actual) and shown[-1:] != ["..."]:
            return False
        if all(isinstance(one, dict) and "subject" in one for one in actual):  # samples come in any order
            shown, actual = (sorted(some, key=lambda one: str(one["id"])) for some in (shown, actual))
        return all(is_like(one, other) for one, other in zip(shown, actual, strict=False))
    if isinstance(shown, float):
        return isinstance(actual, float) and abs(shown - actual) < 0.15
    return type(shown) is type(actual) and bool(shown == actual)


# -- what the pages show runs -----------------------------------------------------------------------

WITH_SHELL = [page for page in PAGES if any(block.is_run and block.kind == "sh" for block in blocks_of(page))]
WITH_PYTHON = [page for page in PAGES if any(block.is_run and block.kind == "python" for block in blocks_of(page))]


@pytest.fixture(scope="module")
def oubli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with commands(tmp_path_factory.mktemp("oubli")) as command:
        yield command


# An erasure that finds nothing is an entry of the ledger as well; a key may make a thousand an hour.
ERASE_MANY = """
python3 - <<'END'
import http.client, os
connection = http.client.HTTPConnection(os.environ["URL"].removeprefix("http://"))
for name in ("privacy.key", "operator.key"):
    for i in range(550):
        connection.request("DELETE", f"/samples/nobody-{i}", headers={"X-API-Key": open(name).read().strip()})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status
END
"""
# Commands before those blocks of a page that begin so: its restore drops what entry 1000 and later tell.
BEFORE = {"docs/how-to/operations.md": {"oubli ledger fetch": ERASE_MANY}}


@pytest.mark.parametrize("page", ordinary(WITH_SHELL, "README.md", "docs/how-to/erasure.md"))
def test_the_commands_of_a_page_run(page: str, oubli: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    blocks = blocks_of(page)
    commands = run_in_order(blocks, "sh")
    if any("npm install" in block.text for block in commands):
        npm = shutil.which("npm")
        if npm is None or run_program(npm, "ping").returncode:
            pytest.skip("npm is not installed, or its registry cannot be reached")
    port, url = "", ADDRESS
    if page != "README.md" and any(STARTING.search(block.text) for block in commands):
        port = str(free_port())
        url = f"http://127.0.0.1:{port}"
    elif any(ADDRESS in block.text for block in commands):
        url = cast("Running", request.getfixturevalue("adult_server")).url
    lines = [SHELL]
    for block in commands:
        if block.kind == "stop":
            lines.append("stop")
        else:
            lines += [more for start, more in BEFORE.get(page, {}).items() if block.text.startswith(start)]
            lines += [f"echo '{mark(block)}'", block.text.replace(ADDRESS, url), "echo"]
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / EXAMPLE.name).symlink_to(EXAMPLE)
    variables = {"PYTHON": sys.executable, "OUBLI": oubli, "PORT": port, "URL": url}
    compare(page, blocks, "sh", output_of("bash", "-c", "\n".join([*lines, "stop"]), cwd=tmp_path, **variables))
    if page in BEFORE:
        pages = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_bytes().splitlines()]
        entries = [entry for page in pages for entry in page["entries"]]
        assert [entry["type"] for entry in entries[1000:]].count("unlearned") > 1
        assert pages[-1]["checkpoint"].split("\n")[1] == str(len(entries))


@pytest.mark.timeout(900)  # a page compiles the kernels of a kind
@pytest.mark.parametrize("page", ordinary(WITH_PYTHON, "docs/how-to/python.md"))
def test_the_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    blocks = blocks_of(page)
    lines = []
    for block in run_in_order(blocks, "python"):
        lines += [f"print({mark(block)!r})", block.text]
    compare(page, blocks, "python", output_of(sys.executable, "-W", "error", "-c", "\n".join(lines), cwd=tmp_path))


def test_each_block_is_run_or_named_with_a_reason() -> None:
    blocks = [(page, block) for page in PAGES for block in blocks_of(page)]
    assert {block.kind for _, block in blocks} <= {"sh", "python", "text", "json", "stop", *OTHERS}
    assert all(block.text.startswith(tuple(NOT_RUN)) for _, block in blocks if block.kind in OTHERS)
    not_run = {text for text in NOT_RUN for _, block in blocks if block.text.startswith(text)}
    assert not_run == set(NOT_RUN), "a reason for a block that is gone"
    for (page, before), (following, block) in pairwise([("", Block("", "", 0)), *blocks]):
        if block.kind in ("text", "json"):
            shows = (before.kind in ("sh", "python"), page) == (True, following)
            assert shows, f"{following} shows output of nothing:\n{block.text}"


# -- the reference is what the code says ------------------------------------------------------------


def commands_of(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All commands by their names, those of a group with its name before theirs."""
    for name, command in group.commands.items():
        if not command.hidden and hasattr(command, "commands"):
            yield from commands_of(command, f"{prefix}{name} ")
        elif not command.hidden:
            yield prefix + name, command


COMMANDS = dict(commands_of(get_command(cli)))


@pytest.mark.parametrize("script", ordinary(["reference.py", "figures.py"], "reference.py"))
def test_generated_pages_and_pictures_are_up_to_date(script: str) -> None:
    output_of(sys.executable, DOCS / "scripts" / script, "--check")


def test_the_files_of_a_data_directory_are_in_the_reference(adult_server: Running) -> None:
    assert adult_server.ask("DELETE", "/samples/0")[0] == 200
    names = re.findall(r"^\| `([\w./-]+)` \|", (DOCS / "reference" / "files.md").read_text(), re.MULTILINE)
    assert len(names) > 10
    known = "|".join(map(re.escape, names))
    known = known.replace("NUMBER", r"\d{8,}").replace("ID", "[0-9a-f]+").replace("NAME", ".+")
    directory = adult_server.folder / "oubli-data"
    found = [path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()]
    assert {"lock", "ledger.sqlite", "journal-mark"} <= set(found)
    assert [name for name in found if not re.fullmatch(known, name)] == []


def test_the_flags_that_the_pages_show_are_there() -> None:
    shown = 0
    for page in PAGES:
        for block in blocks_of(page):
            lines = block.text.replace("\\\n", " ") if block.kind == "sh" else ""
            for words, rest in re.findall(r"^oubli ((?:[a-z-]+ ?)+)(.*)$", lines, re.MULTILINE):
                name = next(name for name in COMMANDS if f"{words} ".startswith(f"{name} "))
                flags = {option for parameter in COMMANDS[name].params for option in parameter.opts}
                for flag in re.findall(r"(?<!\S)--[\w-]+", rest):
                    assert flag in flags, f"{page}: oubli {name} {flag}"
                    shown += 1
    assert shown > 20


@pytest.mark.long
def test_the_list_of_files_in_the_architecture_is_what_a_trace_of_a_deletion_finds() -> None:
    """The files that a deletion on the fast path enters, in the order in which it does."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("## One deletion, from the socket to the leaf")[2].partition("\n## ")[0]
    described = re.findall(r"^\| `((?:app|core)/[a-z_/]+\.py)`", section, re.MULTILINE)
    told = output_of(sys.executable, "benchmarks/trace_write.py", "--files")
    part = told.partition("DELETE, fast path")[2].partition("POST, ordinary path")[0]
    assert described == re.findall(r"^ {4}(\S+)", part, re.MULTILINE)
    assert len(described) > 10


# -- the site ---------------------------------------------------------------------------------------


def test_links_lead_somewhere() -> None:
    for document in DOCUMENTS:
        path = ROOT / document
        for target, fragment in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", path.read_text(encoding="utf-8")):
            goal = path.parent / target if target else path
            assert goal.exists(), f"{document} links to {target}"
            if fragment:
                assert fragment in anchors(goal), f"{document} links to {target}#{fragment}"


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = [re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def test_every_page_is_in_the_navigation() -> None:
    def listed(entry: Any) -> Iterator[str]:
        for value in entry.values() if isinstance(entry, dict) else entry:
            if isinstance(value, str):
                yield value
            else:
                yield from listed(value)

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(listed(nav)) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


@pytest.mark.long
def test_the_site_loads_nothing_from_another_host(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="MkDocs comes with `make docs`")
    output_of(sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path)
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]+)"', page.read_text(encoding="utf-8"))
        assert loaded == [], "the site loads something from another host"
