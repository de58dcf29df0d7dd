"""UPDATE (Algorithm 1): samples come and go, and subtrees that have seen too much are built anew.

Every node counts the updates that came through since it was built, c(v), and remembers the number of samples
it was built on, s(v). At the first node from the root with c(v) > epsilon s(v) the highest node above with
s <= 2^ceil(log2 s(v)) is built anew: the proactive rule, which saves a factor of the height.

Differs from the paper:

    a) the subtree to be built is first turned into a leaf with a tag. When rebuilding is lazy, the tag stays until a
       query meets it. Updates that reach the tag are listed there and go no further: no rule is checked at a node that
       will be built anew;
    b) class counts are kept at every node, not only at leaves: an empty leaf answers with those above it;
    c) s(v) = 0 counts as a bound of 0, where the paper's logarithm is not defined.
"""

import numpy as np

from oubli.core.jit.policy import inner, kernel
from oubli.core.tree.collapse import collapse
from oubli.core.tree.grow import OK, build, go_on, leave_off
from oubli.core.tree.split import goes_right
from oubli.core.tree.state import NIL, ROOT, TAGGED, TreeArrays, append_member, remove_member, set_tag, size_class
from oubli.core.tree.workspace import EPSILON, PATH, Samples, scratch_of

# Instead of a node to be built: a build that found the pool full goes on, or leaves tags where it came to.
GO_ON = -2
LEAVE_OFF = -3


@inner
def _update(tree, samples, scratch, slot, sign):
    """Add (sign 1) or delete (-1) the sample in a slot; returns the node that was tagged, or NIL."""
    nodes, path = tree.nodes, scratch.walk[PATH]
    target = samples.targets[slot]
    node = np.int64(ROOT)
    depth = 0
    offender = np.int64(NIL)
    while True:
        path[depth] = node
        nodes[node]["n_samples"] += np.int32(sign)
        tree.counts[node, target] += np.int32(sign)
        if not nodes[node]["flags"] & TAGGED:
            nodes[node]["touched"] += 1
            if offender == NIL and nodes[node]["touched"] > scratch.rule[EPSILON] * np.float64(nodes[node]["built"]):
                offender = depth
        if nodes[node]["child"] == NIL:
            break
        node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, samples.cells, slot, samples.category_hashes)
        depth += 1
    if sign > 0:
        append_member(tree, node, slot)
    else:
        remove_member(tree, node, slot)
    if offender == NIL:
        return np.int64(NIL)
    bound = size_class(np.int64(nodes[path[offender]]["built"]))
    top = 0
    while nodes[path[top]]["built"] > bound:
        top += 1
    collapse(tree, scratch, path[top])
    set_tag(tree, path[top])
    return path[top]


@kernel
def run_updates(
    nodes, counts, links, meta, cells, targets, category_hashes, lists, keys, arena, slots, n_added, is_lazy, done, node
):
    """Add the samples slots[:n_added] and delete the others, one after the other; from slots[done] on.

    node  a tagged leaf to be built first; or NIL, or GO_ON or LEAVE_OFF the build that found the pool full

    Returns OK, FULL or TOO_MANY; the number of slots that are done; and the node whose building, the last thing
    tried, found too little room. One kernel for all that builds, because that takes long to compile.
    """
    tree = TreeArrays(nodes, counts, links, meta)
    samples = Samples(cells, targets, category_hashes)
    scratch = scratch_of(cells, lists, keys, arena)
    status = OK
    if node == LEAVE_OFF:
        leave_off(tree, scratch)
        node = np.int64(NIL)
    while True:
        if node == GO_ON:
            status = go_on(tree, samples, scratch)
        elif node != NIL:
            status = build(tree, samples, scratch, node)
        if status != OK or done == slots.shape[0]:
            return status, done, node
        node = _update(tree, samples, scratch, slots[done], 1 if done < n_added else -1)
        done += 1
        if is_lazy:
            node = np.int64(NIL)


@kernel
def list_samples(tree, targets, slots):
    """Put samples into the root of an empty tree, and tag it."""
    for i in range(slots.shape[0]):
        append_member(tree, np.int64(ROOT), slots[i])
        tree.counts[ROOT, targets[slots[i]]] += 1
    tree.nodes[ROOT]["n_samples"] = np.int32(slots.shape[0])
    set_tag(tree, np.int64(ROOT))
