"""UPDATE (Algorithm 1): samples come and go, and subtrees that have seen too many updates are rebuilt.

Every node counts the updates that came through since it was built, c(v), and remembers the number of samples
it was built on, s(v). At the first node from the root with c(v) > epsilon s(v) the highest node above with
s <= 2^ceil(log2 s(v)) is rebuilt: the proactive rule, which saves a factor of the height.

Differs from the paper:

    a) the subtree to be rebuilt is first turned into a leaf with a tag that lists all its samples. When rebuilding is
       lazy, the tag stays until a query meets it. Updates that reach the tag are listed there and go no further: no
       rule is checked at a node that will be rebuilt;
    b) class counts are kept at every node, not only at leaves: an empty leaf answers with those above it;
    c) s(v) = 0 counts as a bound of 0, where the paper's logarithm is not defined;
    d) a sample of weight w counts as w updates, and s(v) is a sum of weights. As the pruning size k is one of samples,
       a node that comes to more than k samples, or to k again, is rebuilt as well if epsilon < 1 / (k + 1). Without
       weights that changes nothing: a node built on at most k samples is rebuilt by any update, and one built on more
       is rebuilt before it has lost all but k.
"""

import numpy as np

from oubli.core.jit.nodes import NIL, goes_right
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.targets import amount_of, field_of, value_of
from oubli.core.tree.grow import OK, build, go_on, leave_off
from oubli.core.tree.state import (
    NEXT,
    PREVIOUS,
    ROOT,
    TAGGED,
    append_member,
    clear_tag,
    free_pair,
    remove_member,
    set_tag,
    size_class,
)
from oubli.core.tree.workspace import EPSILON, PRUNING_SIZE

# Instead of a node to be built: a build that found the pool full is continued, or leaves tags where it stopped.
GO_ON = -2
LEAVE_OFF = -3
OVERDUE = -4  # nothing is built: the nodes that have seen too many updates get tags

NEVER = np.iinfo(np.int64).max


@pasted
def _join(tree, node, leaf):
    """Put the list of a leaf behind that of a node."""
    nodes, links = tree.nodes, tree.links
    head, tail = np.int64(nodes[leaf]["head"]), np.int64(nodes[node]["tail"])
    if head == NIL:
        return
    if tail == NIL:
        nodes[node]["head"] = np.int32(head)
    else:
        links[tail, NEXT] = np.int32(head)
        links[head, PREVIOUS] = np.int32(tail)
    nodes[node]["tail"] = nodes[leaf]["tail"]


@inner
def collapse(tree, scratch, root):
    """Free everything below a node, which becomes a leaf with all samples there were; O(nodes).

    Tags below go. Its counters stay as they are.
    """
    nodes, pending = tree.nodes, scratch.pending
    if nodes[root]["child"] == NIL:
        return
    pending[0] = nodes[root]["child"]
    size = 1
    while size > 0:
        size -= 1
        pair = pending[size]
        for node in range(pair, pair + 2):
            child = np.int64(nodes[node]["child"])
            if child != NIL:
                pending[size] = child
                size += 1
            else:
                clear_tag(tree, node)
                _join(tree, root, node)
        free_pair(tree, pair)
    nodes[root]["child"] = np.int32(NIL)
    nodes[root]["category"] = np.uint64(0)
    nodes[root]["attribute"] = np.int32(0)
    nodes[root]["kind"] = np.uint8(0)


@inner
def _update(tree, samples, scratch, slot, sign):
    """Add (sign 1) or delete (-1) the sample in a slot; returns the node that was tagged, or NIL."""
    nodes, path, rule = tree.nodes, scratch.path, scratch.rule
    value, amount = value_of(samples.targets[slot]), amount_of(field_of(samples.targets[slot]))
    n_crossing = rule[PRUNING_SIZE] + np.float64(sign > 0)  # samples of a node that has come to k, or just beyond it
    node = np.int64(ROOT)
    depth = 0
    offender = np.int64(NIL)
    crossing = np.int64(NIL)
    while True:
        path[depth] = node
        nodes[node]["n_samples"] += np.int32(sign)
        tree.counts[node, value] += np.int32(sign * amount)
        if not nodes[node]["flags"] & TAGGED:
            nodes[node]["touched"] += amount
            if offender == NIL and nodes[node]["touched"] > rule[EPSILON] * np.float64(nodes[node]["built"]):
                offender = depth
            if crossing == NIL and nodes[node]["n_samples"] == n_crossing:
                crossing = depth
        if nodes[node]["child"] == NIL:
            break
        node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, samples.cells, slot, samples.category_hashes)
        depth += 1
    if sign > 0:
        append_member(tree, node, slot)
    else:
        remove_member(tree, node, slot)
    if rule[EPSILON] * (rule[PRUNING_SIZE] + 1.0) >= 1.0:
        crossing = np.int64(NIL)
    if offender == NIL and crossing == NIL:
        return np.int64(NIL)
    top = 0
    if offender == NIL:
        top = crossing
    else:
        bound = size_class(np.int64(nodes[path[offender]]["built"]))
        while nodes[path[top]]["built"] > bound and top != crossing:
            top += 1
    collapse(tree, scratch, path[top])
    set_tag(tree, path[top])
    return path[top]


@inner
def _tag_overdue(tree, scratch):
    """Tag the highest nodes that have seen too many updates."""
    nodes, walk = tree.nodes, scratch.path
    walk[0] = ROOT
    size = 1
    while size > 0:
        size -= 1
        node = walk[size]
        child = np.int64(nodes[node]["child"])
        if nodes[node]["flags"] & TAGGED:
            continue
        if nodes[node]["touched"] > scratch.rule[EPSILON] * np.float64(nodes[node]["built"]):
            collapse(tree, scratch, node)
            set_tag(tree, node)
        elif child != NIL:
            walk[size] = child
            walk[size + 1] = child + 1
            size += 2


@kernel
def run_updates(tree, samples, scratch, slots, n_added, is_lazy, done, node):
    """Add the samples slots[:n_added] and delete the others, one after the other; from slots[done] on.

    node  a tagged leaf to be built first; or NIL, or GO_ON or LEAVE_OFF the build that found the pool full; or OVERDUE

    Returns OK, FULL or TOO_MANY; the number of slots that are done; and the node whose building, the last thing
    tried, found too little room. One kernel for all that builds, because that takes long to compile.
    """
    status = OK
    if node == LEAVE_OFF:
        leave_off(tree, scratch)
        node = np.int64(NIL)
    if node == OVERDUE:
        _tag_overdue(tree, scratch)
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
        target = targets[slots[i]]
        append_member(tree, np.int64(ROOT), slots[i])
        tree.counts[ROOT, value_of(target)] += np.int32(amount_of(field_of(target)))
    tree.nodes[ROOT]["n_samples"] = np.int32(slots.shape[0])
    set_tag(tree, np.int64(ROOT))


# -- the size of the next rebuilds, for callers that must not block ----------------------------------


@kernel
def count_short_updates(nodes, epsilon, n_samples, walk):
    """How many updates there can be, whatever they are, until one of them rebuilds on more than `n_samples` samples.

    Counts samples and updates by their weights.

    By the proactive rule a node v sets off the building of at most 2^ceil(log2 s(v)) samples, give or take those that
    came since. So only nodes with more need a look; they are few, and at the top.

    walk  int64[STACK_SIZE], working space
    """
    walk[0] = ROOT
    size = 1
    left = NEVER
    while size > 0:
        size -= 1
        node = walk[size]
        built = np.int64(nodes[node]["built"])
        if size_class(max(built, np.int64(nodes[node]["n_samples"]))) <= n_samples:
            continue
        if not nodes[node]["flags"] & TAGGED:
            left = min(left, np.int64(np.floor(epsilon * np.float64(built))) - nodes[node]["touched"])
        child = np.int64(nodes[node]["child"])
        if child != NIL:
            walk[size] = child
            walk[size + 1] = child + 1
            size += 2
    return max(left, np.int64(0))


@kernel
def count_built(nodes, epsilon, cells, row, category_hashes, amount):
    """How many samples are rebuilt on, at most and roughly, when one with these features is added or deleted.

    Counts them by their weights; `amount` is that of the one.
    """
    node = np.int64(ROOT)
    while True:
        built = np.int64(nodes[node]["built"])
        is_tagged = nodes[node]["flags"] & TAGGED != 0
        if not is_tagged and np.float64(nodes[node]["touched"] + amount) > epsilon * np.float64(built):
            return size_class(built)
        if nodes[node]["child"] == NIL:
            return np.int64(0)
        node = np.int64(nodes[node]["child"]) + goes_right(nodes, node, cells, row, category_hashes)
