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


class Pages:
    """A folder of pages of results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> str:
        """All pages, one after the other."""
        return "\n".join(path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("*.md")))


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pages:
    """Pages to write to, none at the beginning."""
    folder = tmp_path / "results"
    monkeypatch.setattr(results, "FOLDER", folder)
    return Pages(folder)
