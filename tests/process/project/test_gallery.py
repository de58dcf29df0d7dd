"""The notebooks run on the wheel, and the pages of the gallery show what is in them."""

import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.serving import ROOT, output_of

sys.path.insert(0, str(ROOT / "docs" / "scripts"))

import gallery

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the notebooks and their data, beside a folder `site` with what the wheel installs."""
    place = tmp_path_factory.mktemp("wheel")
    output_of(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place)
    shutil.unpack_archive(next(place.glob("*.whl")), place / "site", "zip")
    shutil.copytree(ROOT / "examples" / "notebooks", place / "notebooks")
    shutil.copy(ROOT / "examples" / "adult.csv.gz", place)
    return place


def texts_of(book: Any) -> list[str]:
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs]
    return [text for text in texts if " ms;" not in text]  # a time is another each time


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_what_it_said(examples: Path, notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(examples / "site"))
    copy = examples / "notebooks" / notebook.name
    book = nbformat.read(copy, as_version=4)
    book.cells.append(nbformat.v4.new_code_cell("import oubli; print(oubli.__file__)"))
    nbformat.write(book, copy)
    *found, place = texts_of(gallery.run(copy))
    assert place.startswith(str(examples / "site"))
    assert found == texts_of(nbformat.read(notebook, as_version=4))


def test_the_pages_are_those_of_the_notebooks() -> None:
    assert len(NOTEBOOKS) >= 4
    for notebook in NOTEBOOKS:
        for file, content in gallery.page_of(notebook).items():
            assert file.read_bytes() == content, f"run docs/scripts/gallery.py: {file} is out of date"
