"""Run the notebooks in examples/notebooks, and write the pages of docs/gallery from them.

    python docs/scripts/gallery.py            run all, keep their outputs, write the pages
    python docs/scripts/gallery.py --check    write nothing; exit 1 when a page is not what its notebook says

A page is the notebook with the outputs that are in it; pictures are files beside the page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOKS = ROOT / "examples" / "notebooks"
PAGES = ROOT / "docs" / "gallery"
SECONDS = 300  # of a cell, kernels that compile included


def run(notebook: Path) -> nbformat.NotebookNode:
    """Run a notebook in its folder and return it with its outputs; an exception of a cell is raised."""
    book = nbformat.read(notebook, as_version=4)
    NotebookClient(book, timeout=SECONDS, resources={"metadata": {"path": str(notebook.parent)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # when it ran
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    return book


def page_of(notebook: Path) -> dict[Path, bytes]:
    """The page of a notebook and its pictures: contents by file."""
    book = nbformat.read(notebook, as_version=4)
    name = notebook.stem
    text, resources = MarkdownExporter().from_notebook_node(
        book, {"unique_key": name, "output_files_dir": f"{name}_files"}
    )
    text = f"{text.strip()}\n\nThe notebook is `examples/notebooks/{name}.ipynb`.\n"
    files = {PAGES / place: content for place, content in resources["outputs"].items()}
    return {PAGES / f"{name}.md": text.encode(), **files}


def main() -> None:
    """Write or check all pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    wrong = []
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not arguments.check:
            nbformat.write(run(notebook), notebook)
        for file, content in page_of(notebook).items():
            if arguments.check:
                wrong += [file] if not file.exists() or file.read_bytes() != content else []
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
    if wrong:
        sys.exit("run docs/scripts/gallery.py, these pages are out of date:\n" + "\n".join(map(str, wrong)))


if __name__ == "__main__":
    main()
