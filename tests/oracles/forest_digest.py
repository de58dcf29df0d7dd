"""The digest of the oracle's forests: the canonical form of trees, hashed."""

import json
import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from tests.oracles.common import WORD
from tests.oracles.forest import Forest, Node, Rule, occurrences


def preorder(node: Node) -> Iterator[Node]:
    """The nodes of a tree: itself, its left subtree, its right subtree."""
    yield node
    if node["split"] is not None:
        yield from preorder(node["left"])
        yield from preorder(node["right"])


def rule_words(rule: Rule) -> tuple[int, int]:
    """Kind of a rule, and its 64 bits: of the threshold, the category's hash, or the candidate's key."""
    if rule["kind"] == "one-vs-rest":
        return 2, rule["category"]
    if rule["kind"] == "subset":
        return 3, rule["key"]
    (threshold_bits,) = struct.unpack("<Q", struct.pack("<d", rule["threshold"]))
    return int(rule["missing_left"]), threshold_bits


def node_words(node: Node, *, is_regression: bool) -> list[int]:
    """One node: 1, attribute, kind, bits; or a leaf: 0, number of samples (of a regression: amount), statistics."""
    if node["split"] is None:
        return [0, node["amount" if len(node["statistics"]) == 1 and is_regression else "n"], *node["statistics"]]
    attribute, _ = node["split"]
    return [1, attribute, *rule_words(node["rule"])]


def tree_words(forest: Forest, tree: int) -> list[int]:
    """All nodes of a tree in preorder; a tree without samples is a leaf of nothing."""
    root = forest.trees[tree]
    if root is None:
        return [0, 0] + [0] * (len(forest.classes) if forest.task == "classification" else 1)
    is_regression = forest.task == "regression"
    return [word % WORD for node in preorder(root) for word in node_words(node, is_regression=is_regression)]


def tree_digest(forest: Forest, tree: int) -> str:
    """SHA-256 of a tree's words, each as eight bytes, little-endian."""
    words = tree_words(forest, tree)
    return sha256(struct.pack(f"<{len(words)}Q", *words)).hexdigest()


def label_text(value: Any) -> str:
    """Text that tells any two labels of one type apart."""
    return value.hex() if isinstance(value, float) else str(value)


def header(forest: Forest) -> dict[str, Any]:
    """All but the trees that decides a prediction."""
    p = forest.parameters
    return {
        "format": 3, "kind": "forest", "task": forest.task, "seed": p.seed, "n_estimators": p.n_estimators,
        "occurrences": occurrences(p.n_estimators, p.occurrence),
        "max_depth": 2**31 - 1 if p.max_depth is None else p.max_depth, "min_samples_split": p.min_samples_split,
        "n_thresholds": p.n_thresholds, "max_features": p.n_attributes,
        **({"disclosure": "low"} if p.has_low_disclosure else {}),
        "criterion": ["gini", "entropy", "squared_error"].index(p.criterion),
        "types": [f"{column.type}:{column.dtype}" for column in forest.columns],
        "classes": [[type(c).__name__, label_text(c)] for c in forest.classes], "exponent": forest.exponent,
    }  # fmt: skip


def digest(forest: Forest) -> str:
    """SHA-256 of the header as canonical JSON and of the trees' digests, one a line."""
    text = json.dumps(header(forest), sort_keys=True, separators=(",", ":"))
    lines = [text] + [tree_digest(forest, t) for t in range(forest.parameters.n_estimators)]
    return sha256("\n".join(lines).encode("ascii")).hexdigest()
