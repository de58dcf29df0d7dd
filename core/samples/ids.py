"""Ids: what may name a sample, which names a DataFrame's index gives, and which are numbers.

| label of an index                        | id                                      |
|------------------------------------------|-----------------------------------------|
| text, integer                            | as everywhere                           |
| date, time                               | its ISO text, as everywhere in `core`   |
| all of them together 0, 1, ..., n - 1    | none: they only count the rows          |
| missing, repeated, of any other type     | none for any row, and a warning         |
"""

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import numpy as np

from oubli.core.array_types import Hashes
from oubli.core.data.values import ID_LENGTH, RefusedError, id_text
from oubli.core.errors import DuplicateIdError, IndexWarning, InputError

# Numbers from here on are not exact in JavaScript, nor needed: the counter never gets there.
COUNTER_LIMIT = 2**53
_COUNTER_DIGITS = len(str(COUNTER_LIMIT))


def read_ids(ids: Any) -> list[str]:
    """Return ids as texts.

    Raises
    ------
    InputError
        For a single text (a list of ids is meant), and with the row for what is not an id.
    """
    if type(ids) is list:
        values = ids.copy()
    elif isinstance(ids, (str, bytes, dict)) or not isinstance(ids, Iterable):
        raise InputError("ids must be a list: pass [id] for a single one", field="id")
    elif isinstance(ids, np.ndarray) and ids.ndim != 1:
        raise InputError("ids must be a 1d array or a list", field="id")
    else:
        values = ids.tolist() if isinstance(ids, np.ndarray) and ids.dtype.kind not in "mM" else list(ids)
    if _are_plain(values):
        return values
    names: list[str] = []
    for row, value in enumerate(values):
        try:
            names.append(id_text(value))
        except RefusedError as refused:
            raise InputError(refused.rule, row=row, field="id", value=value) from None
    return names


def _are_plain(values: list[Any]) -> bool:
    """Whether all are texts that need no closer look to be ids."""
    if len(values) == 1:
        (value,) = values
        return type(value) is str and 0 < len(value) <= ID_LENGTH and value.isascii()
    if set(map(type, values)) != {str}:
        return not values
    lengths = set(map(len, values))
    return min(lengths) > 0 and max(lengths) <= ID_LENGTH and "".join(values).isascii()


def refuse_repeated(names: Sequence[str]) -> None:
    """Raise DuplicateIdError for the first id that occurs a second time, if any."""
    seen: set[str] = set()
    for row, name in enumerate(names):
        if name in seen:
            raise DuplicateIdError("is repeated in this call: name every id once", row=row, field="id", value=name)
        seen.add(name)


def ids_of_index(X: Any) -> list[str] | None:
    """Return the labels of a DataFrame's index as ids, None when ids are to be generated; see the top of this file."""
    if not (hasattr(X, "columns") and hasattr(X, "index")):
        return None
    values = np.asarray(X.index)
    n = len(values)
    if values.dtype.kind in "iu" and np.array_equal(values, np.arange(n)):
        return None
    labels = list(X.index)
    names: list[str] = []
    for label in labels:
        with suppress(RefusedError):
            names.append(id_text(label))
    n_unusable = n - len(set(names))
    if n_unusable:
        warnings.warn(
            f"{n_unusable} of the {n} labels of X's index are repeated, missing, or neither text nor integers nor "
            "dates: ids are generated for all rows. Pass ids= to name the samples",
            IndexWarning,
            stacklevel=3,  # who called `fit` or `add`
        )
        return None
    return None if labels == list(range(n)) else names


def hash_ids(names: Iterable[str]) -> Hashes:
    """Hash ids as `oubli.core.rng.hash_text` does."""
    digests = [blake2b(data, digest_size=8).digest() for data in map(str.encode, names)]
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)


def end_of_numbers(names: Iterable[str]) -> int:
    """Return one more than the largest number that the counter could reach and whose decimal text is among ids.

    0 when there is none.
    """
    texts = [name for name in names if name.isdecimal() and len(name) <= _COUNTER_DIGITS]
    if not "".join(texts).isascii():
        texts = [text for text in texts if text.isascii()]
    numbers = [int(text) for text in texts if text[0] != "0" or text == "0"]
    return max((number for number in numbers if number < COUNTER_LIMIT), default=-1) + 1


def canonical_number(name: str) -> int | None:
    """Return the number whose decimal text an id is, when the counter could reach it."""
    end = end_of_numbers([name])
    return end - 1 if end else None
