"""Digest and verification of a tree: is all that it keeps what the samples held say."""

from typing import TYPE_CHECKING, Any

import numpy as np

from oubli.core.digests import model_digest, named_classes
from oubli.core.tree.engine import Tree
from oubli.core.tree.feasibility import find_broken_promises
from oubli.core.tree.state import NIL, ROOT
from oubli.core.verification import TreeComparison, Verification

if TYPE_CHECKING:
    from oubli.core.tree.estimator import DynamicTreeClassifier


def header(model: "DynamicTreeClassifier") -> dict[str, Any]:
    """All but the tree that decides a prediction; part of the digest."""
    settings = model.tree_.settings
    return {
        "format": 1,  # one more whenever the same samples would give another tree
        "kind": model.kind,
        "task": model.task.value,
        "max_depth": settings.max_depth,
        "pruning_size": settings.pruning_size,
        "alpha": settings.alpha,
        "epsilon": settings.epsilon,
        "types": [f"{column.type.value}:{column.dtype}" for column in model.schema_.columns],
        "classes": named_classes(model.samples_.classes.values(model.class_order())),
    }


def digest(model: "DynamicTreeClassifier") -> str:
    """Digest of the model; resolves all tags."""
    model.resolve()
    return model_digest(header(model), [model.tree_.digest(model.class_order())])


def fresh_fit(model: "DynamicTreeClassifier") -> "DynamicTreeClassifier":
    """Fit anew on the samples held, read one by one and in another order, with the same types."""
    fresh = type(model)(**{**model.get_params(), "random_state": model.seed_})
    fresh.begin(model.schema_, model.parameters_)
    names = sorted(model.samples_.ids())
    if names:
        held = [model.samples_.get(name) for name in names]
        rows = [sample.features for sample in held]
        labels = [sample.label for sample in held]
        fresh.samples_.commit(fresh.samples_.prepare(rows, labels, names))
    fresh.grow_all()
    return fresh


def verify(model: "DynamicTreeClassifier") -> Verification:
    """Count all that a model keeps anew from the samples it holds, and check what it promises; resolves all tags.

    The tree depends on its history, so that a fresh fit need not be the same; but it must be when there is none.
    """
    model.resolve()
    tree, data, slots = model.tree_, model.data(), model.samples_.slots()
    wrong: list[str] = []
    recounted = tree
    try:
        model.samples_.check_invariants()
        recounted = Tree.from_arrays(tree.settings, tree.width, tree.arrays(), data, slots)
    except (AssertionError, ValueError) as error:
        wrong.append(str(error))
    else:
        wrong += _compare(tree, recounted)
    wrong += _check_counters(tree)
    if model.n_mutations_since_scrub_ == 0:
        fresh_model = fresh_fit(model)
        recounted, order = fresh_model.tree_, fresh_model.class_order()
    else:
        order = model.class_order()
    live, fresh = tree.digest(model.class_order()), recounted.digest(order)
    broken = find_broken_promises(tree.arrays_, model.parameters_, data, slots) if model.parameters_.is_feasible else []
    digests = [model_digest(header(model), [part]) for part in (live, fresh)]
    return Verification(digests[0], digests[1], [TreeComparison(0, live, fresh)], wrong, broken)


def _compare(live: Tree, recounted: Tree) -> list[str]:
    """List what differs between a tree and the one whose counts were made anew; both have the same links."""
    ours, theirs = live.arrays_, recounted.arrays_
    differing: dict[str, int] = {}
    level = np.array([ROOT]), np.array([ROOT])
    while len(level[0]):
        records = ours.nodes[level[0]], theirs.nodes[level[1]]
        for field, what in (("n_samples", "samples"), ("depth", "depth")):
            differing[what] = differing.get(what, 0) + int((records[0][field] != records[1][field]).sum())
        counts = (ours.counts[level[0]] != theirs.counts[level[1]]).any(axis=1)
        differing["class counts"] = differing.get("class counts", 0) + int(counts.sum())
        left = [record["child"][record["child"] != NIL].astype(np.int64) for record in records]
        level = np.concatenate([left[0], left[0] + 1]), np.concatenate([left[1], left[1] + 1])
    return [f"the {what} of {n} nodes" for what, n in differing.items() if n]


def _check_counters(tree: Tree) -> list[str]:
    """Check the counters of Algorithm 1, which only an update reads: Lemma 3.4, and that nothing has to be rebuilt."""
    nodes = tree.arrays_.nodes
    used = _used(tree)
    built, touched = nodes["built"][used].astype(np.int64), nodes["touched"][used]
    n_overdue = int((touched > tree.settings.epsilon * built).sum())
    n_impossible = int((abs(nodes["n_samples"][used] - built) > touched).sum())
    found = []
    if n_overdue:
        found.append(f"the updates of {n_overdue} nodes that should have been built anew")
    if n_impossible:
        found.append(f"the updates of {n_impossible} nodes that have seen more samples come and go")
    return found


def _used(tree: Tree) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """The rows of all nodes of a tree."""
    child = tree.arrays_.nodes["child"]
    levels = [np.array([ROOT], np.int64)]
    while len(levels[-1]):
        left = child[levels[-1]]
        left = left[left != NIL].astype(np.int64)
        levels.append(np.concatenate([left, left + 1]))
    return np.concatenate(levels)
