"""Progress of what takes long: told to a function of the caller, or shown as a bar by tqdm or rich."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module

Progress = bool | Callable[[float], object]
"""Whether to show a bar; or what is called with the share that is done, from 0 to 1."""
_FORM = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"


@contextmanager
def reporting(progress: Progress | None, name: str) -> Iterator[Callable[[float], object]]:
    """Return what is to be called with the share that is done, until the block ends.

    Parameters
    ----------
    progress
        As the caller has passed it.
    name
        What is going on, for the bar.

    Raises
    ------
    ImportError
        When a bar is asked for, and neither tqdm nor rich is installed.
    """
    if callable(progress):
        yield progress
    elif not progress:
        yield lambda share: None
    else:
        try:
            bars = import_module("tqdm.auto").tqdm(total=1.0, desc=name, bar_format=_FORM)
        except ImportError:
            with _rich(name) as tell:
                yield tell
        else:
            with bars as bar:
                yield lambda share: bar.update(share - bar.n)


@contextmanager
def _rich(name: str) -> Iterator[Callable[[float], object]]:
    try:
        shown = import_module("rich.progress").Progress()
    except ImportError:
        raise ImportError("progress=True needs tqdm or rich: install one, or pass a function", name="tqdm") from None
    with shown:
        task = shown.add_task(name, total=1.0)
        yield lambda share: shown.update(task, completed=share)
