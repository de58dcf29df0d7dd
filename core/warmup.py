"""Compiling the kernels ahead of the first request.

Numba compiles a kernel when it is first called with new types. `call_kernels` calls them all on a tiny model of the
types to come; with a filled kernel cache this takes well under a second. `warm_up` fills the cache by other processes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from oubli.core.boosting.quantised.split import parting_few
from oubli.core.boosting.rows import without_grain
from oubli.core.concurrency.threads import sharing_all
from oubli.core.data.encoding import convert, is_clean
from oubli.core.data.schema import Column, ColumnType, LabelType, Schema, Task
from oubli.core.errors import InputError, UnavailableError
from oubli.core.estimators import KINDS
from oubli.core.jit.compilation import Compilation, Lines
from oubli.core.jit.policy import NotKeptError, compiling_here, compiling_log, is_writable, note_filled, only_kept
from oubli.core.model import grow_some
from oubli.core.registry import parameters_of, variant_of
from oubli.core.rng import mix
from oubli.core.samples.set_tree import DEPTH, HASH_BYTES, Kept, hash_tree
from oubli.core.unseen.scoring import out_of_bag

STEPS = ("encode", "grow", "predict", "save", "add", "delete", "resolve", "check", "load")
FIT_STEPS = STEPS[:2]  # those of them that have everything ready that `fit` runs
PREDICTION_STEPS = STEPS[:4]  # and that a server runs before it answers predictions, where there are no tags
_N_SAMPLES = 64  # so many that one more is learned in place and not by planting all again


What = Literal["model", "influence"]
WHAT: tuple[What, ...] = get_args(What)


class Usage(NamedTuple):
    """What is done with models of some types, which decides what is compiled.

    Attributes
    ----------
    what : all that a model does, or the questions about the influence of samples.
    kind, task, cell_dtype : of the models.
    variant : `variant_of` their parameters, as JSON.
    """

    what: What
    kind: str
    task: str
    cell_dtype: str
    variant: str = "{}"


def do(usage: Usage, progress: Callable[[int, int], None] | None = None, steps: Sequence[str] = STEPS) -> None:
    """Do all that is done with such models, or the first steps of it: compiles here what is not in the cache."""
    what, kind, task, cell_dtype, variant = usage
    parameters = json.loads(variant)
    with compiling_here():
        if what == "influence":
            call_influence_kernels(task, cell_dtype, kind=kind, parameters=parameters)
        else:
            call_kernels(task, cell_dtype, progress, kind=kind, parameters=parameters, steps=steps)
    if steps == STEPS or what == "influence":
        note_filled(usage)


def _do_listed(*arguments: Any) -> None:
    """Do what `Compilation` asks for."""
    *usage, progress = arguments
    do(Usage(*usage), lambda n_done, _: progress(n_done))


Progressing = Callable[[str, int, int], object]
_running: dict[tuple[Usage, ...], Compilation] = {}


def running(*usages: Usage) -> Compilation | None:
    """Return the processes that compile this, None when there are none."""
    compilation = _running.get(usages)
    return None if compilation is None or compilation.is_over else compilation


def compilation_of(*usages: Usage, niceness: int = 0) -> Compilation:
    """Begin to compile in other processes, unless some do; raises OSError when none can be started."""
    compilation = running(*usages) or Compilation(f"{__name__}:{_do_listed.__name__}", usages, niceness)
    _running[usages] = compilation
    return compilation


def warm_up(*kinds: str, progress: Progressing | None = None) -> None:
    """Compile all that models of some kinds use, or of all kinds, and keep it for this and later processes.

    As many processes as there are cores compile, as far as memory allows. Afterwards nothing compiles that has to do
    with models of these kinds, for any task, type of numbers and number of threads, as long as the cache stays.

    Parameters
    ----------
    kinds : of `"forest"`, `"tree"`, `"online-boosting"` and `"incremental-boosting"`.
    progress : called with a stage, and how many kernels are compiled and how many there are, 0 while that is not known.
        When left out, the logger `oubli.kernels.compiling` tells it every 10 seconds.

    Raises
    ------
    InputError
        When there is no such kind.

    Examples
    --------
    >>> warm_up("forest", "incremental-boosting")  # takes minutes the first time  # doctest: +SKIP
    """
    known = list(dict.fromkeys(kind for kind, _ in KINDS))
    for kind in kinds:
        if kind not in known:
            raise InputError(f"there is no kind {kind!r}: choose among {', '.join(known)}")
    for kind in kinds or known:
        usages = [
            Usage(what, kind, task.value, dtype, variant)
            for task in Task
            if (kind, task) in KINDS
            for dtype in ("float32", "float64")
            for variant in _variants(kind)
            for what in WHAT
        ]
        _compile(usages, progress)


def fill_cache(usage: tuple[Any, ...]) -> None:
    """Have other processes compile what models use that this process has; see `Keepable.expect_kernels`.

    Numba holds its lock meanwhile: nothing is done here, because a thread that helps would wait for the lock forever.
    """
    _compile_elsewhere([Usage(*usage)], None)


def _compile(usages: Sequence[Usage], progress: Progressing | None) -> None:
    """Compile in other processes what is not in the cache, and here what they leave."""
    if _are_kept(usages) or _compile_elsewhere(usages, progress):
        return
    for usage in usages:
        do(usage)


def _compile_elsewhere(usages: Sequence[Usage], progress: Progressing | None) -> bool:
    """Compile in other processes; whether nothing is left. Tells the logger where nothing takes the progress."""
    stage = f"compiling the kernels of {usages[0].kind}, which later processes load from the cache"
    report = partial(Lines(compiling_log.warning) if progress is None else progress, stage)
    report(0, 0)
    if is_writable():
        with suppress(OSError), compilation_of(*usages) as compilation:
            return bool(compilation.wait(report=report) == 0)
    return False


def _are_kept(usages: Sequence[Usage]) -> bool:
    """Load all kernels; False when one is not in the cache."""
    with suppress(NotKeptError), only_kept():
        for usage in usages:
            do(usage)
        return True
    return False


def _variants(kind: str) -> list[str]:
    """All that `variant_of` gives, as JSON."""
    names = [parameter.name for parameter in parameters_of(kind) if parameter.chooses_kernels]
    return ["{}", *(json.dumps({name: None}) for name in names)]


def call_kernels(
    task: Task | str = Task.CLASSIFICATION,
    cell_dtype: Any = np.float32,
    progress: Callable[[int, int], None] | None = None,
    *,
    kind: str = "forest",
    parameters: Mapping[str, Any] | None = None,
    steps: Sequence[str] = STEPS,
) -> None:
    """Compile every kernel that a model of this kind, task and cell type uses.

    Parameters
    ----------
    task : classification or regression.
    cell_dtype : float32 or float64, `Schema.cell_dtype` of the model to come.
    progress : callable(done, total), optional
        Called after each step.
    kind : one of those in `oubli.core.registry`.
    parameters : mapping, optional
        Of the model to come; the defaults when left out.
    steps : the first of `STEPS`, or all of them.
    """
    task = Task(task)
    estimator = KINDS[kind, task]
    variant = variant_of(kind, parameters)
    # With more than two classes there is a tree for each where trees are boosted.
    n_targets = (2, 3) if task is Task.CLASSIFICATION and estimator.is_boosted else (2,)
    histories = [
        _steps(estimator(**small, **variant), task, np.dtype(cell_dtype), n)
        for small in estimator.small_parameters
        for n in n_targets
    ]
    for done, step in enumerate(steps):
        for history in histories:
            history[step]()
        if progress is not None:
            progress(done + 1, len(steps))


def _steps(model: Any, task: Task, cell_dtype: np.dtype[Any], n_targets: int) -> dict[str, Callable[[], object]]:
    """What to do with a model, by the names of the steps; labels have `n_targets` values."""
    columns = (
        Column("x0", ColumnType.NUMERIC, "float64" if cell_dtype == np.float64 else "float32"),
        Column("x1", ColumnType.CATEGORICAL),
    )
    schema = Schema(columns, task, LabelType.INTEGER if task is Task.CLASSIFICATION else LabelType.NUMBER)
    rows = [[float(i), str(i % 3)] for i in range(_N_SAMPLES)]
    labels = [i % n_targets for i in range(_N_SAMPLES)]

    def encode() -> None:
        cells = np.zeros((1, 1), cell_dtype)
        is_clean(cells)
        mix(np.uint64(0))  # what any other kind begins with
        for dtype in (np.float32, np.float64):
            convert(np.zeros((1, 1), dtype), cells, np.ones(1, np.bool_))
        store = model.start(schema).samples_
        for cell in (1, 0.5, None):
            for n_rows in (1, 2, 64):
                store.encode_queries([[cell, None]] * n_rows)

    def grow() -> None:
        model.fit(rows, labels, schema=schema)
        if model.is_boosted:
            with parting_few():
                model.refit()
            with without_grain():
                model.engine_.n_threads = 2
                model.refit()
                model.engine_.n_threads = 1
            return
        with sharing_all():
            model.engine_.n_threads = 2
            model.refit()
            model.take_threads()

    def add() -> None:
        model.add(rows[:1], labels[:1])
        if model.is_boosted:  # what was best is not any more: trees are retrained, bins merged
            model.add(rows[::4], [1 - min(label, 1) for label in labels[::4]])

    def delete() -> None:
        model.delete("0")
        if model.is_boosted:
            model.delete(model.samples_.ids()[2:20])
            model.delete("1")
            model.add(rows[:20], labels[:20])

    def resolve() -> None:
        model.query(rows[:1], frozen=True)
        model.query(rows[:1])
        model.resolve()
        with sharing_all():
            model.engine_.n_threads = 2
            model.delete(model.samples_.ids()[0])
            model.resolve()
            model.take_threads()
        plan = model.plan_delete(model.samples_.ids()[:2])
        if model.can_be_sliced(plan):
            for before in model.change_in_slices(plan):
                before.query(rows[:1])

    def check() -> None:
        _ = model.feature_importances_
        out_of_bag(model, _N_SAMPLES)
        with suppress(UnavailableError):
            model.shap_values(rows[:1])
            model.nearest_change(rows[0], columns=2, target=None if task is Task.CLASSIFICATION else 0.5)
        model.verify()
        if model.engine_.has_separate_trees:
            grow_some(type(model)(**model.get_params()).start(schema), [0], rows, labels, ids=range(_N_SAMPLES))
        # The tree over the samples, whatever the kind.
        hashes, numbers = np.zeros((0, HASH_BYTES), np.uint8), np.zeros(0, np.int32)
        hash_tree(np.zeros(0, np.uint64), hashes, DEPTH, Kept(hashes, hashes.ravel(), numbers, numbers, hashes))

    return {
        "encode": encode,
        "grow": grow,
        # Many rows are read by kernels of their own.
        "predict": lambda: (model.query(rows[:1]), model.query(rows[:2]), model.query(rows * 8)),
        "save": lambda: (model.digest(), model.to_parts()),
        "add": add,
        "delete": delete,
        "resolve": resolve,
        "check": check,
        "load": lambda: type(model).read_parts(*model.to_parts())[0],
    }


def call_influence_kernels(
    task: Task | str, cell_dtype: Any, *, kind: str, parameters: Mapping[str, Any] | None = None
) -> None:
    """Compile every kernel that questions about the influence of samples use; nothing for kinds without answers.

    Parameters are those of `call_kernels`.
    """
    from oubli.core.influence.methods import influence  # takes long to import, and many programs never ask

    task = Task(task)
    estimator = KINDS[kind, task]
    small = {**estimator.small_parameters[0], **variant_of(kind, parameters)}
    for n_targets in (2, 3) if task is Task.CLASSIFICATION else (2,):
        model: Any = estimator(**small)
        steps = _steps(model, task, np.dtype(cell_dtype), n_targets)
        steps["grow"]()
        rows = [[float(i), str(i % 3)] for i in range(24)]
        labels = [i % 2 for i in range(24)]
        for method in model.influence_methods:
            if method == "leave-one-out" or kind == "forest":
                for some in (1, 24):  # a forest is only read for a few rows
                    influence(model, rows[:some], labels[:some], method=method)
                continue
            for update_set in ("all", "single", 2):
                influence(model, rows[:2], labels[:2], method=method, update_set=update_set)
