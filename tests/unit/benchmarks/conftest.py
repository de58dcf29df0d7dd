"""Data sets as the benchmarks read them, with few rows: Adult of the example of the project, others made up."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import results
from tests.serving import EXAMPLE


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with Adult, and stand-ins for Pendigits, Abalone, Electricity and weather."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    frame = pd.read_csv(EXAMPLE, dtype=str, keep_default_na=False, nrows=800).rename(columns={"income": "label"})
    frame[:600].to_csv(folder / "adult_train.csv.gz", index=False)
    frame[600:].to_csv(folder / "adult_test.csv.gz", index=False)
    for part in ("train", "test"):
        X = pd.DataFrame(rng.integers(0, 100, (200, 6))).add_prefix("x")
        X.assign(label=(X["x0"] + X["x1"]) // 67).to_csv(folder / f"pendigits_{part}.csv.gz", index=False)
    X = pd.DataFrame(rng.random((300, 3))).add_prefix("x").assign(sex=rng.choice(["F", "I", "M"], 300))
    X.assign(label=10 * X["x0"] + (X["sex"] == "I")).to_csv(folder / "abalone.csv.gz", index=False)
    price = rng.random(400)
    stream = pd.DataFrame({"price": price, "day": rng.integers(1, 8, 400)})
    stream.assign(label=np.where(price > 0.5, "UP", "DOWN")).to_csv(folder / "electricity.csv.gz", index=False)
    stream.assign(label=(price > 0.5).astype(int)).to_csv(folder / "weather.csv.gz", index=False)
    return folder


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for pages of results, empty at the beginning."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")
    return results.FOLDER


def text_of(pages: Path) -> str:
    """All pages, one after the other."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(pages.glob("*.md")))
