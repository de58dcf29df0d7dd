"""BUILD (Algorithm 2): a subtree from the samples that a leaf lists.

Numeric columns are sorted once, at the start; their lists are divided among the children on the way down,
and never sorted again. Categorical columns have histograms (`split.py`).

The subtree is a pure function of the parameters, the column types and the multiset of (features, label):
of equal scores the lower column wins, then the lower threshold (with missing values right before left), or the
category with the lower hash (missing values before all).

Differs from the paper:

    a) several classes, missing values, and categories with any number of values;
    b) the child with fewer samples is built first, so that few nodes wait (a smaller child has at most half of
       the samples, and the depth is limited) and their histograms fit in a bounded room;
    c) a column that is constant at a node is left out of everything below it;
    d) a build that finds the pool of nodes full stops, and resumes there when the pool has been enlarged;
    e) a sample of weight w counts as w equal ones, but as one where a node with few samples becomes a leaf
       (`pruning_size`, k). So with k = 1 weights give the tree of so many equal samples: those are a leaf anyway.
"""

import numpy as np

from oubli.core.jit.nodes import MISSING_LEFT, MISSING_RIGHT, NIL, ONE_VS_REST, n_available
from oubli.core.jit.policy import inner, pasted
from oubli.core.jit.targets import total_of
from oubli.core.tree.presort import (
    divide,
    keep_side,
    list_order,
    place_by_category,
    place_left,
    place_side,
    presort_column,
    weigh_left,
)
from oubli.core.tree.split import (
    clear_histogram,
    count_range,
    first_missing,
    is_nearly_pure,
    midpoint,
    n_histograms,
    number_categories,
    scan,
    scan_categories,
    scan_samples,
    scan_two_classes,
    squares_of,
)
from oubli.core.tree.state import NEXT, PAIRS, allocate_pair, append_member, clear_tag, set_tag
from oubli.core.tree.workspace import (
    CLASS_BITS,
    DEPTH_LIMIT,
    HALF_ALPHA,
    HISTOGRAM,
    IS_WEIGHED,
    N_CATEGORIES,
    N_WAITING,
    NODE,
    ORDER,
    ORDER_START,
    OTHER,
    PRUNING_SIZE,
    START,
    STRIDE,
)

OK = 0
FULL = 1  # the pool of nodes is; with more room `go_on` does the rest, else `leave_off`
TOO_MANY = 2  # samples for the working space; nothing has been done


@pasted
def _must_be_leaf(tree, rule, node):
    """Whether BUILD stops at a node (Algorithm 2, line 3), which knows what it is built on."""
    n_samples = np.int64(tree.nodes[node]["n_samples"])
    if n_samples <= rule[PRUNING_SIZE] or tree.nodes[node]["depth"] == rule[DEPTH_LIMIT]:
        return True
    return is_nearly_pure(np.int64(tree.nodes[node]["built"]), squares_of(tree.counts, node), rule[HALF_ALPHA])


@inner
def _collect(tree, scratch, node):
    """Give the samples of a leaf their positions, and empty its list; returns their number."""
    slot = np.int64(tree.nodes[node]["head"])
    n = 0
    while slot != NIL:
        scratch.slots[n] = slot
        n += 1
        slot = np.int64(tree.links[slot, NEXT])
    tree.nodes[node]["head"] = np.int32(NIL)
    tree.nodes[node]["tail"] = np.int32(NIL)
    return n


@inner
def _prepare(samples, scratch, n):
    """Write all lists of the samples at hand; all columns may split."""
    state = scratch.state
    n_columns = samples.cells.shape[1]
    state[STRIDE] = ((n + 15) // 16 | 1) * 16  # as `stride_of` does
    state[N_CATEGORIES] = 0
    list_order(samples, scratch, n)
    scratch.first_category[0] = 0
    active = scratch.active[0]
    active[0] = n_columns
    for column in range(n_columns):
        active[column + 1] = column
        if scratch.categorical[column]:
            number_categories(samples, column, scratch, n)
        else:
            scratch.first_category[column + 1] = scratch.first_category[column]
            presort_column(samples.cells, column, scratch, n)


@inner
def _first_histogram(samples, scratch, n):
    """Count all samples at hand in the first histogram, if they are enough to keep one; returns its row, or NIL."""
    n_categories = scratch.state[N_CATEGORIES]
    if n_categories == 0:
        return NIL
    clear_histogram(scratch, n_histograms(scratch))  # the working space
    if n < n_categories or n_histograms(scratch) < 1:
        return NIL
    clear_histogram(scratch, 0)
    count_range(scratch, scratch.active[0], 0, n, 0, 1)
    return 0


@inner
def build(tree, samples, scratch, node):
    """Build the subtree of a leaf from the samples it lists; its tag goes.

    Returns OK, FULL or TOO_MANY.
    """
    nodes = tree.nodes
    n = np.int64(nodes[node]["n_samples"])
    if n > scratch.slots.shape[0]:
        return TOO_MANY
    clear_tag(tree, node)
    nodes[node]["built"] = np.int32(total_of(tree.counts, node))
    nodes[node]["touched"] = np.int64(0)
    if _must_be_leaf(tree, scratch.rule, node):
        return OK
    _collect(tree, scratch, node)
    _prepare(samples, scratch, n)
    stack = scratch.stack
    stack[0, NODE] = node
    stack[0, START] = 0
    stack[0, ORDER_START] = 0
    stack[0, HISTOGRAM] = _first_histogram(samples, scratch, n)
    scratch.state[N_WAITING] = 1
    return go_on(tree, samples, scratch)


@pasted
def go_on(tree, samples, scratch):
    """Split the nodes that wait on the stack; returns OK or FULL."""
    state = scratch.state
    while state[N_WAITING] > 0:
        if n_available(tree.meta, PAIRS, tree.nodes, 2) < 1:
            return FULL
        state[N_WAITING] -= 1
        _split(tree, samples, scratch, state[N_WAITING])
    return OK


@inner
def leave_off(tree, scratch):
    """Turn the nodes that wait on the stack into tagged leaves: there is no room to continue."""
    stack, state = scratch.stack, scratch.state
    order = (scratch.categorical.shape[0] + ORDER) * state[STRIDE]
    for top in range(state[N_WAITING]):
        node, start = stack[top, NODE], order + stack[top, ORDER_START]
        _list_members(tree, scratch, node, start, start + np.int64(tree.nodes[node]["n_samples"]))
        set_tag(tree, node)
    state[N_WAITING] = 0


@pasted
def _list_members(tree, scratch, node, start, end):
    """Make the samples of a range of list ORDER those of a leaf."""
    shift = scratch.state[CLASS_BITS] + 1
    for i in range(start, end):
        slot = scratch.slots[np.int64(scratch.lists[i]) >> shift]
        append_member(tree, node, np.int64(slot))


@pasted
def _scan_column(samples, scratch, column, start, end, best):
    """Find the first best split of a numeric column; see `scan`."""
    lists, class_bits = scratch.lists, scratch.state[CLASS_BITS]
    base = column * scratch.state[STRIDE]
    present_end = end
    if scratch.has_missing[column]:
        present_end = first_missing(samples.cells, column, scratch.slots, lists, base, start, end, class_bits)
    if present_end == end and scratch.totals.shape[0] == 2 and scratch.state[IS_WEIGHED] == 0:
        best, place = scan_two_classes(lists, base, start, end, scratch.totals[1], best)
        return best, place, MISSING_RIGHT
    return scan(lists, base, start, present_end, end, class_bits, scratch, best)


@pasted
def _choose(samples, scratch, top, n, total):
    """Find a node's best split; returns its column (NIL when there is none), its place or category, and its kind.

    Columns in which all samples are equal leave the list of those that may split.
    """
    stack, active, stride = scratch.stack, scratch.active, scratch.state[STRIDE]
    start, order_start = stack[top, START], stack[top, ORDER_START]
    order = (samples.cells.shape[1] + ORDER) * stride
    best = -1.0
    chosen, chosen_place, chosen_kind = np.int64(NIL), np.int64(0), np.int64(0)
    n_active = 0
    for i in range(1, active[top, 0] + 1):
        column = np.int64(active[top, i])
        kind = np.int64(ONE_VS_REST)
        if not scratch.categorical[column]:
            score, place, kind = _scan_column(samples, scratch, column, start, start + n, best)
        elif stack[top, HISTOGRAM] != NIL:
            score, place = scan_categories(scratch, column, total, stack[top, HISTOGRAM], best)
        else:
            score, place = scan_samples(scratch, column, order, order_start, order_start + n, total, best)
        if place == NIL:
            continue
        n_active += 1
        active[top, n_active] = column
        if score > best:
            best, chosen, chosen_place, chosen_kind = score, column, place, kind
    active[top, 0] = n_active
    return chosen, chosen_place, chosen_kind


@pasted
def _store_numeric(tree, samples, scratch, node, column, place, kind, start, end):
    """Write a numeric split to a node and send its samples to their sides."""
    nodes, lists, sides, left = tree.nodes, scratch.lists, scratch.sides, scratch.left
    class_bits = scratch.state[CLASS_BITS]
    base = column * scratch.state[STRIDE]
    present_end = end
    if scratch.has_missing[column]:
        present_end = first_missing(samples.cells, column, scratch.slots, lists, base, start, end, class_bits)
    if place == present_end:
        nodes[node]["threshold"] = np.inf
    else:
        low = scratch.slots[np.int64(lists[base + place - 1]) >> (class_bits + 1)]
        high = scratch.slots[np.int64(lists[base + place]) >> (class_bits + 1)]
        nodes[node]["threshold"] = midpoint(samples.cells[low, column], samples.cells[high, column], samples.cells)
    place_left(lists, base + start, base + place, class_bits, sides, left)
    place_side(lists, base + place, base + present_end, class_bits, sides, 1)
    if kind == MISSING_LEFT:
        place_left(lists, base + present_end, base + end, class_bits, sides, left)
    else:
        place_side(lists, base + present_end, base + end, class_bits, sides, 1)


@pasted
def _store_category(tree, scratch, node, column, category, order, order_start, order_end):
    """Write a categorical split to a node and send its samples to their sides."""
    first = np.int64(scratch.first_category[column])
    tree.nodes[node]["category"] = scratch.category_keys[first + category]
    place_by_category(
        scratch.lists, column * scratch.state[STRIDE], category, order + order_start, order + order_end,
        scratch.state[CLASS_BITS], scratch.sides, scratch.left,
    )  # fmt: skip


@pasted
def _fill_children(tree, scratch, node, pair, n_left):
    """Write the children's sizes and class counts."""
    nodes, counts, left = tree.nodes, tree.counts, scratch.left
    built_left = np.int64(0)
    for c in range(counts.shape[1]):
        built_left += left[c]
        counts[pair, c] = left[c]
        counts[pair + 1, c] = scratch.totals[c] - left[c]
    for side in range(2):
        size = n_left if side == 0 else np.int64(nodes[node]["n_samples"]) - n_left
        nodes[pair + side]["n_samples"] = np.int32(size)
        nodes[pair + side]["built"] = np.int32(built_left if side == 0 else nodes[node]["built"] - built_left)
        nodes[pair + side]["depth"] = np.uint8(nodes[node]["depth"] + 1)
    nodes[node]["child"] = np.int32(pair)


@pasted
def _divide_lists(samples, scratch, top, start, end, stays_left, stays_right):
    """Divide the lists of the numeric columns that may split among the children that are to be split."""
    lists, sides, class_bits = scratch.lists, scratch.sides, scratch.state[CLASS_BITS]
    stride = scratch.state[STRIDE]
    other = (samples.cells.shape[1] + OTHER) * stride
    for i in range(1, scratch.active[top, 0] + 1):
        column = np.int64(scratch.active[top, i])
        if scratch.categorical[column]:
            continue
        base = column * stride
        if stays_left and stays_right:
            divide(lists, base + start, base + end, class_bits, sides, other)
        else:
            keep_side(lists, base + start, base + end, class_bits, sides, np.int64(stays_right))


@pasted
def _hand_on_histogram(samples, scratch, top, row, start, n_left, n, is_split_small, is_split_large):
    """Make a node's histogram that of its larger child, and count the smaller one's samples in the next.

    Returns the rows for the smaller and the larger child, NIL for none. start: in list ORDER
    """
    if row == NIL:
        return NIL, NIL
    active = scratch.active[top]
    n_small = min(n_left, n - n_left)
    small_start = start if n_left == n_small else start + n_left
    n_categories = scratch.state[N_CATEGORIES]
    large_row, small_row = NIL, NIL
    if is_split_large and n - n_small >= n_categories:
        count_range(scratch, active, small_start, small_start + n_small, row, -1)
        large_row = row
    if is_split_small and n_small >= n_categories and row + 1 < n_histograms(scratch):
        small_row = row + 1
        clear_histogram(scratch, small_row)
        count_range(scratch, active, small_start, small_start + n_small, small_row, 1)
    return small_row, large_row


@pasted
def _push(scratch, top, active_row, node, start, order_start, row):
    stack, active = scratch.stack, scratch.active
    stack[top, NODE] = node
    stack[top, START] = start
    stack[top, ORDER_START] = order_start
    stack[top, HISTOGRAM] = row
    if top != active_row:
        for i in range(active[active_row, 0] + 1):
            active[top, i] = active[active_row, i]
    scratch.state[N_WAITING] = top + 1


@pasted
def _split(tree, samples, scratch, top):
    """Split one node that waited, or make it a leaf, and put its children on the stack."""
    stack, lists = scratch.stack, scratch.lists
    node, start, order_start, row = stack[top, NODE], stack[top, START], stack[top, ORDER_START], stack[top, HISTOGRAM]
    n = np.int64(tree.nodes[node]["n_samples"])
    order = (samples.cells.shape[1] + ORDER) * scratch.state[STRIDE]
    for c in range(tree.counts.shape[1]):
        scratch.totals[c] = tree.counts[node, c]
    column, place, kind = _choose(samples, scratch, top, n, np.int64(tree.nodes[node]["built"]))
    if column == NIL:
        _list_members(tree, scratch, node, order + order_start, order + order_start + n)
        return
    scratch.left[:] = 0
    if kind == ONE_VS_REST:
        _store_category(tree, scratch, node, column, place, order, order_start, order_start + n)
    else:
        _store_numeric(tree, samples, scratch, node, column, place, kind, start, start + n)
    tree.nodes[node]["attribute"] = np.int32(column)
    tree.nodes[node]["kind"] = np.uint8(kind)
    if scratch.state[IS_WEIGHED]:
        weigh_left(scratch, order + order_start, order + order_start + n)
    other = (samples.cells.shape[1] + OTHER) * scratch.state[STRIDE]
    n_left = divide(
        lists, order + order_start, order + order_start + n, scratch.state[CLASS_BITS], scratch.sides, other
    )
    pair = allocate_pair(tree)
    _fill_children(tree, scratch, node, pair, n_left)
    splits_left = not _must_be_leaf(tree, scratch.rule, pair)
    splits_right = not _must_be_leaf(tree, scratch.rule, pair + 1)
    if not splits_left:
        _list_members(tree, scratch, pair, order + order_start, order + order_start + n_left)
    if not splits_right:
        _list_members(tree, scratch, pair + 1, order + order_start + n_left, order + order_start + n)
    if not splits_left and not splits_right:
        return
    is_left_small = 2 * n_left <= n
    small_row, large_row = _hand_on_histogram(
        samples, scratch, top, row, order_start, n_left, n,
        splits_left if is_left_small else splits_right, splits_right if is_left_small else splits_left,
    )  # fmt: skip
    _divide_lists(samples, scratch, top, start, start + n, splits_left, splits_right)
    right_start = start + n_left if splits_left else start
    # The larger child first: it waits below the smaller one.
    for turn in range(2):
        is_right = is_left_small == (turn == 0)
        row = large_row if turn == 0 else small_row
        if is_right and splits_right:
            _push(scratch, scratch.state[N_WAITING], top, pair + 1, right_start, order_start + n_left, row)
        elif splits_left and not is_right:
            _push(scratch, scratch.state[N_WAITING], top, pair, start, order_start, row)
