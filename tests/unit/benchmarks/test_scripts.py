"""Every script with questions about models runs from end to end on very little, with a table for each question."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from numba import config

from benchmarks import (
    bench_attacks,
    bench_boosting,
    bench_igbdt,
    bench_influence,
    bench_operations,
    bench_paper,
    bench_tree,
    sections,
)
from benchmarks.streams import cost
from tests.serving import ROOT, environment
from tests.unit.benchmarks.conftest import text_of

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="whole benchmarks take minutes when interpreted")


class Script(NamedTuple):
    """How a script is run on little: the sections that it writes, its options, and what is smaller in its module."""

    name: str
    sections: tuple[str, ...]
    options: str
    smaller: dict[str, Any]  # by name in the script, or in another module when there is a dot


BOOSTING = {
    "FULL": bench_boosting.Sizes(200, 1, 3, 4, 3, 1, 3, 5, 100.0),
    "benchmarks.boosting.presorting.BATCHES": (10, 40),
    "benchmarks.boosting.kinds.WARM_UP_ROWS": 60,
}
TOGETHER = [  # what shares a run
    ("error", "training"), ("quantisation",), ("update", "update-error", "similarity"), ("leaf-scores",), ("deletion",),
    ("categories",), ("new",), ("exact", "exact-touched"), ("presorted",), ("stream",), ("backdoor", "membership"),
    ("prediction", "batch-prediction"),
]  # fmt: skip
INFLUENCE = bench_influence.Sizes(250, 1, 1, 2, 10, 8, 8, 2, 2, 8, 2, 10, 1, 1, 4)
OPERATIONS = bench_operations.Sizes(400, 1, 15, 20, 8, 2, 100.0)
PAPER = bench_paper.Sizes(400, 400, 1, 1, 1, (1, 20), 40, (300, 600), 100.0)
COST = cost.Sizes((100, 300), (2, 3), (0.1, 0.2), least=0.0, most=20.0)
TREE = {
    "FULL": bench_tree.Sizes(300, 1, 1, 20.0, 20.0, 500, 1.0, COST),
    "benchmarks.streams.curves.EPSILONS": (0.5, 0.1),
}
IGBDT = {"SETS": ("abalone",), "SMALL_BATCHES": (10, 20), "FULL": bench_igbdt.Sizes(200, 3, 1, 5.0)}
ATTACKS = {"SETS": ("adult", "abalone"), "ROWS": 400, "TRIES": 2}
UNSEEN = {"SETS": ("electricity", "abalone"), "LABELED": ("electricity",)}
FEW = {"ROWS": 400, "LABELED_ROWS": 200, "JUDGES": 20}
ADULT_ALONE = [f"benchmarks.paper.{name}.SETS" for name in ("accuracy_by_q", "accuracy_after_unlearning", "boost")]
RUN = ("training", "mutations", "shares", "prediction", "batch-prediction", "stream", "batches")
COSTLY, LEAVERS = "low tree explained costs", {"ROWS": 200, "COST_ROUNDS": 2}
SCRIPTS = [
    *(
        Script("boosting", names, f"--sets adult pendigits abalone digits --only {' '.join(names)}", BOOSTING)
        for names in TOGETHER
    ),
    Script("influence", tuple(bench_influence.QUESTIONS), "", {"FULL": INFLUENCE}),
    Script("operations", RUN, "--only training mutations dare prediction stream batches", {"FULL": OPERATIONS}),
    Script("paper", tuple(bench_paper.QUESTIONS), "", {"FULL": PAPER, **dict.fromkeys(ADULT_ALONE, ("adult",))}),
    Script("tree", tuple(bench_tree.QUESTIONS), "", TREE),
    Script("attacks", tuple(bench_attacks.QUESTIONS), "--rounds 2", ATTACKS),
    Script("leaver", tuple(COSTLY.split()), f"--only {COSTLY} --sets electricity --leavers 4", LEAVERS),
    Script("unseen", ("coverage", "labels"), "", UNSEEN | FEW),
    Script("export", ("rows",), "", {"SETS": ("abalone", "electricity"), "ROWS": 300, "TREES": 3}),
    Script("shap", ("boosting",), "--only boosting", {"SETS": ("electricity",), "SIZES": (300, 10, 3, 2), "ROUNDS": 1}),
    Script("igbdt", tuple(bench_igbdt.QUESTIONS), "", IGBDT),
    Script("limits", (), "--rows 800", {"SMALL": 500, "LARGE": 1_000, "ASKED": (300, 500, 1_000)}),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: " ".join((script.name, *script.sections[:1])))
def test_every_question_has_a_table(
    script: Script, tmp_path: Path, data: Path, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = tmp_path / "figures"
    monkeypatch.setattr(sections, "FIGURES", figures)
    module = f"benchmarks.bench_{script.name}"
    for place, value in script.smaller.items():
        monkeypatch.setattr(place if "." in place else f"{module}.{place}", value)
    folders = ["--data", str(data), "--cache", str(tmp_path / "cache")]
    import_module(module).main([*folders, *script.options.split(), "--write-results"])
    text = text_of(pages)
    for name in script.sections:
        body = text.partition(f"<!-- {script.name}-{name}: begin -->")[2].partition("<!--")[0]
        assert body.count("\n|") >= 4, name
        assert "Machine: " in body
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in figures.glob("*"))
    for line in text.splitlines():
        assert "digests different" not in line or line.endswith("| 0 | at most 0 | yes |"), line


def test_all_questions_about_boosting_are_tried() -> None:
    assert [name for asked in TOGETHER for name in asked] == list(bench_boosting.QUESTIONS)


def test_servers_are_measured(tmp_path: Path) -> None:
    # In a process of its own: the client keeps to one core from then on.
    command = [sys.executable, "-m", "benchmarks.bench_durability", "--quick", "--cache", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| at least 0.7 |") == 4  # both routes with both settings
    for part in ("| 3,000 | 200 |", "| at most 10 |"):
        assert part in done.stdout
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "data directories are left"


@pytest.mark.parametrize(
    ("name", "options"),
    [("defaults", "--sets adult --seeds 1 --rows 150 --settings q=0.1"), ("losses", "--sets abalone --folds 2")],
)
def test_other_scripts_write_a_page(name: str, options: str, data: Path, pages: Path) -> None:
    import_module(f"benchmarks.bench_{name}").main([*options.split(), "--data", str(data), "--write-results"])
    assert f"<!-- {name}" in text_of(pages).replace("boosting-", "")
