"""Adult as the benchmarks read it, with few rows, made of the example that ships with the project."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import results
from tests.serving import EXAMPLE


@pytest.fixture(scope="session")
def few_adults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the training and the test part, label last."""
    folder = tmp_path_factory.mktemp("data")
    frame = pd.read_csv(EXAMPLE, dtype=str, keep_default_na=False, nrows=800).rename(columns={"income": "label"})
    frame[:600].to_csv(folder / "adult_train.csv.gz", index=False)
    frame[600:].to_csv(folder / "adult_test.csv.gz", index=False)
    return folder


@pytest.fixture
def results_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A RESULTS.md to write to, with one section."""
    path = tmp_path / "RESULTS.md"
    path.write_text("# Results\n\n## One\n\n<!-- one: begin -->\nold\n<!-- one: end -->\n", encoding="utf-8")
    monkeypatch.setattr(results, "RESULTS", path)
    return path
