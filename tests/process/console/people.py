"""Data of the servers that the console is tested with."""

import csv
from collections.abc import Sequence
from pathlib import Path

JOBS = ("cook", "clerk", "smith")
HOSTILE = (
    '<img src=x onerror="document.title=1">',
    "</script><script>document.title=1</script>",
    "\u202etxt.exe\u202c",
    "שלום عليكم",
    "👩‍👩‍👧‍👦 🏴‍☠️",
    "x" * 256,
    "__proto__",
    "constructor",
    "..",
    "?subject=a&id=b#c",
    "'; DROP TABLE samples; --",
    "{{7*7}} ${7*7}",
    "two\nlines",
)
"""What people and attackers call things."""


def write_people(folder: Path, n: int = 120) -> list[str]:
    """Write a table of people, two samples each, and return the flags that serve it."""
    rows = []
    for i in range(n):
        label = "yes" if (i * 7 % 50 > 20) != (i % 6 == 0) else "no"
        rows.append((f"s{i}", f"person {i // 2}", 20 + i * 7 % 50, JOBS[i % 3], "true" if i % 5 else "false", label))
    write_csv(folder / "data.csv", ("id", "subject", "age", "job", "grew", "income"), rows)
    return ["--data", "data.csv", "--target", "income", "--id", "id", "--subject", "subject", "--random-state", "0"]


def write_hostile(folder: Path) -> list[str]:
    """Write a table in which every name and every text is hostile, and return the flags that serve it."""
    names = ("id", "subject", *HOSTILE[:4], "__proto__", "label")
    rows = []
    for i in range(60):
        text = HOSTILE[i % len(HOSTILE)]
        texts = [HOSTILE[(i + j) % len(HOSTILE)] for j in range(3)]
        rows.append((f"{text[:250]}{i}", text, *texts, i, HOSTILE[i % 5], HOSTILE[i % 2]))
    write_csv(folder / "hostile.csv", names, rows)
    return ["--data", "hostile.csv", "--target", "label", "--id", "id", "--subject", "subject"]


def write_csv(path: Path, names: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    """Write a table."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([names, *rows])
