"""Which sections of the results are older than what they measure: `python -m benchmarks.commits` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.results import FOLDER, git, sections_in

COMMIT = re.compile(r"^Commit (\w+)\. Machine: ", re.MULTILINE)
_FOREST = ("core/forest", "core/samples")
_EXACT = ("core/boosting/quantised", "core/boosting/incremental")
_ONLINE = ("core/boosting/online",)
_SERVICE = ("app/http", "app/service")
_JOURNAL = ("app/storage", "app/service")
# What the pages measure.
MEASURED = {
    "accuracy": (*_FOREST, *_EXACT),
    "attacks": (*_FOREST, "core/tree", *_EXACT),
    "audit": (*_FOREST, *_EXACT),
    "boosting": (*_EXACT, *_ONLINE),
    "compare": (*_FOREST, *_EXACT, *_SERVICE),
    "crashes": _JOURNAL,
    "defaults": (*_FOREST, *_EXACT),
    "durability": _JOURNAL,
    "erase": (*_SERVICE, "app/ledger"),
    "explanations": ("core/explanation",),
    "export": ("core/export",),
    "failover": ("app/replication", "app/storage"),
    "forgetting": (*_EXACT, *_ONLINE),
    "http": _SERVICE,
    "incremental-boosting": _EXACT,
    "influence": ("core/influence",),
    "leaver": (*_FOREST, *_EXACT, *_ONLINE, "core/tree"),
    "limits": _SERVICE,
    "load": _SERVICE,
    "memory": (*_FOREST, *_SERVICE),
    "online-boosting": _ONLINE,
    "operations": _FOREST,
    "paper": _FOREST,
    "presorted-boosting": ("core/boosting/presorted",),
    "reading": ("app/datasets", "core/data"),
    "sets": ("app/ledger",),
    "start": ("core/jit", "core/warmup.py", "app/service/compiling.py"),
    "streams": _FOREST,
    "threads": ("core/forest", *_EXACT, *_ONLINE),
    "tree": ("core/tree",),
    "unseen": (*_FOREST, "core/unseen"),
}


def outdated(topic: str, section: str) -> str | None:
    """The commit since which a section's figures are of an earlier version; None when they are of this one.

    Also None where the checkout has no history.
    """
    found = COMMIT.search(section)
    if found is None:
        return "the beginning"
    known = git("cat-file", "-e", f"{found[1]}^{{commit}}") is not None
    if not known:  # a shallow clone, or an archive
        return None
    return (
        git("log", "-1", "--format=%h", f"{found[1]}..HEAD", "--", *(f":/{path}" for path in MEASURED[topic])) or None
    )


def all_outdated() -> Iterator[str]:
    """A line for each section that is older than what it measures."""
    for page in sorted(FOLDER.glob("*.md")):
        for name, (_, body) in sections_in(page).items():
            since = outdated(page.stem, body)
            if since is not None:
                yield f"{page.name}: {name} is older than {since}"


if __name__ == "__main__":
    print("\n".join(all_outdated()))
