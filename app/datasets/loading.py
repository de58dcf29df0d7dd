"""Data files as the input of an estimator: CSV or Parquet to rows, labels, ids, subjects, times of expiry and weights.

pyarrow reads both formats in parallel and returns every CSV field as it is written, which is what ids need and
what lets `oubli.app.datasets.columns` decide types by rules that are ours.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from oubli.app.datasets.columns import (
    Array,
    ColumnError,
    Feature,
    Labels,
    Note,
    as_input,
    column_of,
    convert_feature,
    convert_labels,
    infer_feature,
    infer_labels,
    plain_floats,
    verbatim,
)
from oubli.app.datasets.dialect import read_options
from oubli.app.datasets.readers import LoadError, Source, listed, located, open_source, tell_note
from oubli.app.datasets.understanding import Understood, count_classes, find_remarks
from oubli.app.progress import Ask, Progress, no_answer, silent
from oubli.app.settings import Settings
from oubli.app.times import TimeError, parse_time
from oubli.core.data.schema import COLUMN_RULES, Column, ColumnType, Schema, Task
from oubli.core.data.values import FLOAT64_EXACT
from oubli.core.errors import InputError
from oubli.core.samples.weights import read_weights

T = TypeVar("T")


def read_expiries(name: str, column: pa.ChunkedArray) -> list[int | None]:
    """Return when each sample expires, in milliseconds since 1970; None where the field is empty: never.

    Parameters
    ----------
    name
        Of the column.
    column
        Texts in RFC 3339 with a time zone, as the `expires_at` of a sample; or times of a Parquet file, with a zone.

    Raises
    ------
    ColumnError
        When a value is anything else.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        moments: list[int | None] = column.cast(pa.timestamp("ms", kind.tz), safe=False).cast(pa.int64()).to_pylist()
        return moments
    if pa.types.is_timestamp(kind):
        raise ColumnError(name, "holds times without a time zone: write them with one")
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if not (pa.types.is_null(column.type) or pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise ColumnError(name, f"holds {kind} values, expiries are texts in RFC 3339 or times: convert the column")
    known: dict[str | None, int | None] = {None: None}  # many samples expire at the same time
    found = []
    for row, text in enumerate(column.to_pylist()):
        if text not in known:
            try:
                known[text] = parse_time(text)
            except TimeError as error:
                raise ColumnError(name, f"the expiry {error.rule}; leave the field empty for never", row) from None
        found.append(known[text])
    return found


def read_column_of_weights(name: str, column: pa.ChunkedArray) -> Array:
    """Return the weight of each sample, float64[n]; 1 where the field is empty.

    Raises
    ------
    ColumnError
        When a value is no weight.
    """
    weights = convert_feature(Column(name, ColumnType.NUMERIC, "float64"), column)
    weights = np.where(np.isnan(weights), 1.0, weights)
    try:
        read_weights(weights, len(weights))
    except InputError as error:
        raise ColumnError(name, f"the weight {error.rule}", error.row) from None
    return weights


_MAX_ID_LENGTH = 256
_DROPPED, _UNDECLARED = "dropped", "not in the schema"  # columns that are not read
_OF_A_SCHEMA = ('"missing_columns": "missing" in the schema file', '--drop, or "extra_columns": "ignore" in it')
QUANTITIES, CLASSES = "quantities (regression)", "classes (classification)"  # answers
_FEW_NUMBERS = 100  # distinct whole numbers may be classes
_THREADS = 2  # that convert columns; each holds its column twice meanwhile
_CANDIDATES = 10  # for the target, that a message names
_EXAMPLES, _LOOKED_AT = 3, 100  # values that are shown, and rows that they are among


@dataclass(frozen=True)
class Table:
    """What ``fit`` takes: rows, labels, ids, weights and the schema; ``subjects`` and ``expires`` follow afterwards."""

    X: Any
    y: Array
    ids: list[str] | None
    subjects: list[str | None] | None
    schema: Schema
    about: Understood
    notes: tuple[str, ...] = ()
    expires: list[int | None] | None = None
    weights: Array | None = None

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Queries:
    """Rows to predict, and what the file held besides; labels only where they were asked for."""

    X: Any
    ids: list[str | None] | None
    ignored: tuple[str, ...]
    labels: Array | None = None

    def __len__(self) -> int:
        return len(self.X)


def load_table(
    settings: Settings,
    progress: Progress = silent,
    now_ns: Callable[[], int] = time.time_ns,
    ask: Ask = no_answer,
) -> Table:
    """Read the training data that the settings name. Rows that have expired are left out, and a note says so.

    Parameters
    ----------
    settings : Settings
        ``data``, ``target``, ``id_column``, ``subject_column``, ``expiry_column``, ``weight_column``, ``drop``,
        ``categorical``, ``schema_file``, ``task`` and ``read``.
    progress : callable
        ``(stage, done, total)``, called in bytes while the file is read and in columns while it is converted.
    now_ns : callable
        The time, in nanoseconds since 1970.
    ask : callable
        Asked which column is the target, and whether numbers are classes, where that is not said.

    Raises
    ------
    NoTargetError
        When no target is named and `ask` returns none.
    LoadError
        When the file, a row or a field cannot be used. Nothing is skipped in silence.
    """
    if settings.data is None:
        raise LoadError("no data file is named: give one with --data FILE.csv --target COLUMN")
    given = read_options(settings.read)
    declared = None
    if settings.schema_file is not None:
        declared, said = load_schema(settings.schema_file)
        given = {**said, **given}
    target = settings.target or (declared.label_name if declared is not None else None)
    categorical = {*settings.categorical, *(() if declared is None else _categorical(declared))}
    source = open_source(settings.data, given, progress=progress, categorical=categorical)
    require_columns(source, "--target", target)
    require_columns(source, "--id", settings.id_column)
    require_columns(source, "--subject", settings.subject_column)
    require_columns(source, "--expiry", settings.expiry_column)
    require_columns(source, "--weight", settings.weight_column)
    require_columns(source, "--drop", *settings.drop)
    require_columns(source, "--categorical", *settings.categorical)
    require_columns(source, "--read cycles", *source.reading.cycle_units)
    roles: dict[str | None, str] = {
        **({"column 1": "row names"} if source.reading.index == "yes" else {}),
        **dict.fromkeys(settings.drop, _DROPPED),
        settings.id_column: "ids",
        settings.subject_column: "subjects",
        settings.expiry_column: "expiries",
        settings.weight_column: "weights",
    }
    names = [name for name in source.header if name not in roles and name != target]
    if declared is not None:
        rules = {name: getattr(declared, name) for name in COLUMN_RULES}
        there = require_features(source, declared.names, (target, *roles), **rules, remedies=_OF_A_SCHEMA)
        roles |= dict.fromkeys(set(names).difference(there), _UNDECLARED)
        names = list(declared.names)
    if not names:
        raise LoadError(f"{source.path} has no column left to learn from besides {listed([str(target)])}")
    texts = {*settings.categorical, *filter(None, (target, *roles))}
    if declared is not None:
        texts |= {column.name for column in declared.columns if column.type is not ColumnType.NUMERIC}
    left_out = (_DROPPED, _UNDECLARED)
    table = source.read([name for name in source.header if roles.get(name) not in left_out], progress, texts)
    table, reading = _with_large_numbers(source, table), source.reading
    if table.num_rows == 0:
        raise LoadError(f"{source.path} holds a header but no rows: add rows, or start empty with --schema alone")
    fields, n_rows = dict(zip(table.column_names, table.columns, strict=True)), table.num_rows
    del table  # each column is let go of when it is converted
    read = (reading.format, *reading.options())
    about = Understood(source.path.name, read, n_rows, (), {name: role for name, role in roles.items() if name}, {})

    notes: list[Note] = []
    with located(source):
        columns, features, categories = _read_features(
            source, fields, n_rows, names, declared, settings, notes, progress
        )
        if target is None:
            remarks = find_remarks(columns, features, None, categories)
            about = replace(
                about, columns=tuple(features), remarks=remarks, categories=categories, examples=_examples(columns)
            )
            chosen = ask(f"Which column of {source.path.name} is to be predicted?", about.candidates())
            if chosen is None:
                raise NoTargetError(about)
            return load_table(settings.model_copy(update={"target": chosen}), progress, now_ns, ask)
        task = Task(settings.task) if settings.task else None
        if declared is not None:
            schema = declared
            labels = convert_labels(target, fields[target], schema.label_type, reading)
        else:
            found = infer_labels(target, fields[target], task, typed=source.typed, reading=reading)
            if task is None and (n_numbers := _few_whole_numbers(found)):
                chosen = ask(f"{target} has {n_numbers} distinct whole numbers. What are they?", (QUANTITIES, CLASSES))
                if chosen == CLASSES:
                    task = Task.CLASSIFICATION
                    found = infer_labels(target, fields[target], task, typed=source.typed, reading=reading)
                elif chosen is None:
                    hint = f"{n_numbers} distinct whole numbers are read as quantities: --task classification if not"
                    about = replace(about, hint=hint)
            schema = Schema(tuple(features), found.task, found.type, label_name=target, named=True)
            labels = found.values
        ids = _beside(settings.id_column, fields, _ids)
        subjects = _beside(settings.subject_column, fields, verbatim)
        weights = _beside(settings.weight_column, fields, read_column_of_weights)
        expires = _beside(settings.expiry_column, fields, read_expiries)
        if settings.expiry_column is not None and expires is not None:
            now = now_ns() // 1_000_000
            kept = [row for row, at in enumerate(expires) if at is None or at > now]
            if not kept:
                raise ColumnError(
                    settings.expiry_column, "the time of every row is over: there is nothing to learn from"
                )
            if len(kept) < n_rows:
                n_left_out = n_rows - len(kept)
                about = replace(about, left_out={"their time is over": n_left_out}, n_rows=len(kept))
                notes.append(Note(settings.expiry_column, f"says that the time of {n_left_out} rows is over: left out"))
                columns = {name: values[kept] for name, values in columns.items()}
                labels, expires = labels[kept], [expires[row] for row in kept]
                ids = [str(row) if ids is None else ids[row] for row in kept]
                subjects = None if subjects is None else [subjects[row] for row in kept]
                weights = None if weights is None else weights[kept]
    classes = count_classes(labels, schema)
    if len(classes) > schema.max_classes:
        raise LoadError(
            f"{source.path}, column {target!r}: has {len(classes):,} different labels, and a model holds at most "
            f"{schema.max_classes:,} classes: choose another --target, predict a number with --task regression, or "
            'declare more with "max_classes" of the label in a schema file (--schema)'
        )
    told = tuple(tell_note(source, note) for note in notes)
    remarks = find_remarks(columns, schema.columns, labels, categories)
    about = replace(
        about,
        columns=schema.columns,
        remarks=remarks,
        categories=categories,
        target=target,
        task=schema.task,
        classes=classes,
        examples=_examples(columns),
    )
    return Table(as_input(columns, schema), labels, ids, subjects, schema, about, told, expires, weights)


class NoTargetError(LoadError):
    """No target is named."""

    def __init__(self, about: Understood) -> None:
        types = about.types()
        candidates = ", ".join(f"{name!r} ({types[name]})" for name in about.candidates()[:_CANDIDATES])
        super().__init__(
            f"no column is named to predict: say which with --target COLUMN. {about.name} has, the likely ones first, "
            f"{candidates}"
        )
        self.about = about


def _few_whole_numbers(labels: Labels) -> int:
    """Return how many distinct numbers a target has that may be classes; 0: it is no such one."""
    values = labels.values
    if labels.task is not Task.REGRESSION or (values != np.rint(values)).any():
        return 0
    n_numbers = len(np.unique(values))
    return n_numbers if n_numbers <= _FEW_NUMBERS else 0


def _read_features(
    source: Source,
    fields: dict[str, pa.ChunkedArray],
    n_rows: int,
    names: Sequence[str],
    declared: Schema | None,
    settings: Settings,
    notes: list[Note],
    progress: Progress,
) -> tuple[dict[str, Array], list[Column], dict[str, int]]:
    """Convert the columns that are learned from, and let go of their fields; count the categories."""
    categories: dict[str, int] = {}
    columns: dict[str, Array] = {}
    features: list[Column] = []
    words: frozenset[str] = frozenset()
    reading, nothing = source.reading, pa.chunked_array([pa.nulls(n_rows)])

    def convert(name: str) -> Feature:
        column = fields.pop(name, nothing)
        if declared is None:
            is_categorical = name in settings.categorical
            return infer_feature(name, column, categorical=is_categorical, typed=source.typed, reading=reading)
        column_type = declared.columns[declared.index(name)]
        return Feature(column_type, convert_feature(column_type, column, reading))

    with ThreadPoolExecutor(_THREADS) as threads:
        for done, feature in enumerate(threads.map(convert, names)):
            name = names[done]
            progress(f"reading the columns of {source.path.name}", done, len(names))
            columns[name] = feature.values
            if declared is not None:
                continue
            features.append(feature.column)
            words |= feature.words
            if feature.n_categories is not None:
                categories[name] = feature.n_categories
            if feature.note is not None:
                notes.append(feature.note)
            if settings.id_column is None and name.lower() == "id":
                notes.append(Note(name, "is learned from like any other column; --id makes it the sample's id"))
    progress(f"reading the columns of {source.path.name}", len(names), len(names))
    late = words.difference(words if "missing" in reading.given else reading.missing)
    for one in features if late else ():  # they came behind the first part of the file
        if one.type is ColumnType.CATEGORICAL and one.name not in settings.categorical:
            columns[one.name][[value in late for value in columns[one.name].tolist()]] = None
    return columns, features, categories


def _categorical(schema: Schema) -> set[str]:
    return {column.name for column in schema.columns if column.type is ColumnType.CATEGORICAL}


def _examples(columns: Mapping[str, Array]) -> dict[str, tuple[str, ...]]:
    """Return the first values of each column."""
    shown = {}
    for name, values in columns.items():
        some = [value for value in values[:_LOOKED_AT].tolist() if value is not None and value == value]
        whole = (int(v) if type(v) is float and v.is_integer() else v for v in dict.fromkeys(some))
        shown[name] = tuple(map(str, islice(whole, _EXAMPLES)))
    return shown


def _with_large_numbers(source: Source, table: pa.Table) -> pa.Table:
    """Return a table with the fields of columns whose numbers a float may have rounded."""
    if source.typed:
        return table
    names = [name for name, kind in zip(table.column_names, table.schema.types, strict=True) if kind == pa.float64()]
    large = [name for name in names if (np.abs(plain_floats(table[name])) >= FLOAT64_EXACT).any()]
    if large:
        texts = source.read(large, silent, large)
        for name in large:
            table = table.set_column(table.column_names.index(name), name, texts[name])
    return table


def load_queries(
    path: Path,
    schema: Schema,
    *,
    id_column: str | None = None,
    label_column: str | None = None,
    read: Sequence[str] = (),
    progress: Progress = silent,
) -> Queries:
    """Read the rows of a file for prediction: columns by name, the target left aside unless it is named.

    The schema's rules say whether the file may have further columns, and lack some.

    Raises
    ------
    LoadError
        When the file, a row or a field cannot be used.
    """
    source = open_source(path, read_options(read), progress=progress, categorical=_categorical(schema))
    require_columns(source, "--id", id_column)
    require_columns(source, "--target", label_column)
    rules = {name: getattr(schema, name) for name in COLUMN_RULES}
    names = require_features(source, schema.names, (schema.label_name, id_column, label_column), **rules)
    wanted = list(dict.fromkeys([*names, *filter(None, (id_column, label_column))]))
    table, reading = source.read(wanted, progress, wanted), source.reading
    with located(source):
        columns = {one.name: convert_feature(one, column_of(table, one.name), reading) for one in schema.columns}
        ids = verbatim(id_column, table[id_column]) if id_column is not None else None
        labels = None
        if label_column is not None:
            labels = convert_labels(label_column, table[label_column], schema.label_type, reading)
    ignored = tuple(name for name in source.header if name not in (*wanted, schema.label_name))
    return Queries(as_input(columns, schema), ids, ignored, labels)


def load_schema(path: Path) -> tuple[Schema, dict[str, Any]]:
    """Read a schema from a JSON file, in the form of `oubli.core.data.schema`, and how data files are read.

    The latter is `read` of the file, a list of `KEY=VALUE`; see `dialect`.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        said = document.pop("read", []) if isinstance(document, dict) else []
        if not (isinstance(said, list) and all(isinstance(text, str) for text in said)):
            raise LoadError(f"the schema file {path}: 'read' must be a list of texts, KEY=VALUE")
        return Schema.from_dict(document), read_options(said)
    except OSError as error:
        raise LoadError(f"the schema file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LoadError(f"the schema file {path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise LoadError(f"the schema file {path} is not JSON: line {error.lineno}, column {error.colno}") from None
    except InputError as error:
        where = f" {error.field}:" if error.field else ""
        raise LoadError(f"the schema file {path} does not describe a model:{where} {error.rule}") from None


# --- checks and messages


def require_features(
    source: Source,
    names: Sequence[str],
    beside: Sequence[str | None],
    *,
    extra_columns: str,
    missing_columns: str,
    remedies: tuple[str, str] = ("--missing-columns missing", "--extra-columns ignore"),
) -> list[str]:
    """Return the columns of a model that a file has, and refuse columns by the rules of `Schema`.

    Parameters
    ----------
    source
        The file.
    names, beside
        Columns of the model, and others that the file may have in any case.
    extra_columns, missing_columns
        The rules.
    remedies
        What makes missing columns missing values, and has further columns left out.
    """
    missing = [name for name in names if name not in source.header]
    if missing and (missing_columns == "refuse" or len(missing) == len(names)):
        raise LoadError(
            f"{source.path} lacks {listed(missing)}, which the model needs: add them (an empty field is a missing "
            f"value), or take them as missing with {remedies[0]}. It has {listed(source.header)}."
        )
    known = {*names, *beside}
    extra = [name for name in source.header if name not in known]
    if extra and extra_columns == "refuse":
        raise LoadError(
            f"{source.path} has {listed(extra)}, which the model does not know: remove them from the file, or leave "
            f"them out with {remedies[1]}"
        )
    return [name for name in names if name in source.header]


def require_columns(source: Source, flag: str, *names: str | None) -> None:
    """Refuse a file that lacks a column that a flag names."""
    missing = [name for name in names if name is not None and name not in source.header]
    if missing:
        raise LoadError(
            f"{source.path} has no column {listed(missing)}, which {flag} names. "
            f"It has {listed(source.header)}: choose among them."
        )


def _beside(
    name: str | None, fields: Mapping[str, pa.ChunkedArray], read: Callable[[str, pa.ChunkedArray], T]
) -> T | None:
    """Read a column that is not learned from; None when there is none."""
    return None if name is None else read(name, fields[name])


def _ids(name: str, column: pa.ChunkedArray) -> list[str]:
    ids = verbatim(name, column)
    seen: dict[str, int] = {}
    for row, text in enumerate(ids):
        if text is None:
            raise ColumnError(name, "the id is missing: fill it in, or leave --id out to number the rows", row)
        if len(text) > _MAX_ID_LENGTH:
            raise ColumnError(name, f"the id is longer than {_MAX_ID_LENGTH} characters: use a shorter one", row)
        if text in seen:
            raise ColumnError(name, f"the id is also in row {seen[text] + 1}: make it unique", row)
        seen[text] = row
    return list(seen)
