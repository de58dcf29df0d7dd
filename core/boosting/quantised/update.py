"""The update of the trees for samples that come and go, with the trees that a fresh fit would give.

Each iteration concerns the samples whose derivatives in it have changed: those that come and go, and *touched* ones,
whose scores have moved so far that a rounded derivative is another.

    1. the differences are added to totals and histograms along the samples' old paths
    2. the nodes whose sums changed are searched again, from the root down; where another split is best, everything
       below is rebuilt from the samples there; leaves get the values that follow from their totals
    3. where values or leaves changed, the scores of the samples there move (they *drift*)

As long as nothing drifts, only the samples that come and go are looked at.

Differences of derivatives are collected where the samples are, and added to totals and histograms of the nodes above.
Then nodes are checked from the root down. Where another split is the best, the subtree is rebuilt from its samples.

Samples *drift* when their scores differ from those before the update. While few drift, only their scores are known,
before and after. The score of another sample is a few additions away: the score kept last, and the values of its leaves
since. It is looked up when the sample's leaf gets another value, and the sample is listed from then on, or when the
sample is in a subtree that is rebuilt.
"""

import numpy as np

from oubli.core.boosting.quantised import derivatives, grow
from oubli.core.boosting.quantised import state as s
from oubli.core.boosting.quantised.split import CUT, FEATURE, MISSING_LEFT
from oubli.core.jit.policy import inner, kernel, pasted

# States of the nodes of the tree at hand.
CLEAN = 0
DIRTY = 1  # sums changed
MOVED = 3  # samples came or went, too
STALE = 4  # everything below is to be rebuilt
GONE = 5  # below a stale one
_DERIVE_ALL = 0.75  # a larger share of all samples is derived with all others, which is faster a sample


@inner
def _route(forest, tree, bins, slot, max_depth):
    """Label of the leaf that a sample's codes lead to."""
    node = np.int64(0)
    depth = np.int64(0)
    while forest.nodes[tree, node]["feature"] >= 0:
        low, width, extra = grow.split_range(forest.nodes, tree, node, bins)
        code = np.int64(bins.codes[np.int64(forest.nodes[tree, node]["feature"]), np.uint64(slot)])
        is_left = np.uint64(code - low) <= np.uint64(width) or code == extra
        node = 2 * node + (1 if is_left else 2)
        depth += 1
    return grow.label_of(node, depth, max_depth)


@inner
def _leaf_at(forest, tree, label, max_depth):
    """The leaf with a label."""
    node = np.int64(0)
    depth = max_depth
    while forest.nodes[tree, node]["feature"] >= 0:
        depth -= 1
        node = 2 * node + 1 + ((label >> depth) & 1)
    return node


@inner
def _add_to_path(forest, tree, bins, places, rules, change, slot, label, delta, first, count):
    """Add a sample's differences at once to all nodes from the root to its leaf.

    count : 1 of a sample that comes, -1 of one that goes; and 0.
    first : that many times its derivative at F_0.
    """
    row = np.uint64(slot)
    node = np.int64(0)
    depth = np.int64(0)
    while True:
        forest.nodes[tree, node]["total"] += delta
        forest.nodes[tree, node]["count"] += np.int32(count)
        if depth <= rules.top:
            forest.nodes[tree, node]["first_total"] += first
        change.states[node] |= MOVED if count != 0 else DIRTY
        block = np.int64(forest.nodes[tree, node]["block"])
        value = first if depth < rules.top else delta
        if block != s.NO_BLOCK and value != 0:
            histogram = forest.pool[block]
            for column in range(bins.rows.shape[1]):
                histogram[np.uint64(places[np.uint64(bins.rows[row, column])])] += value
        if forest.nodes[tree, node]["feature"] < 0:
            return
        depth += 1
        node = 2 * node + 1 + ((label >> (rules.depth - depth)) & 1)


@inner
def _note_row(bins, places, change, slot, node, delta):
    """Note what is to be added to a node's histogram for a sample."""
    deltas = change.deltas[node]
    row = np.uint64(slot)
    for column in range(bins.rows.shape[1]):
        deltas[np.uint64(places[np.uint64(bins.rows[row, column])])] += delta


@inner
def _note_difference(forest, tree, bins, places, rules, change, slot, leaf, delta):
    """Note what is to be added at a leaf for a sample; `_add_differences` carries it up to the root."""
    change.states[leaf] |= DIRTY
    change.totals[leaf] += delta
    node = leaf
    if forest.nodes[tree, node]["block"] == s.NO_BLOCK and node > 0:
        node = (node - 1) >> 1  # inner nodes have histograms
    if forest.nodes[tree, node]["block"] != s.NO_BLOCK and grow.depth_of(node) >= rules.top:
        _note_row(bins, places, change, slot, node, delta)


@inner
def _note_move(forest, tree, bins, places, rules, change, slot, leaf, delta, count):
    """The same for a sample that comes (count 1) or goes (-1), whose derivative at F_0 is `delta`, or the negative."""
    change.states[leaf] |= MOVED
    change.counts[leaf] += count
    change.first_totals[leaf] += delta
    node = leaf
    while node > 0 and (forest.nodes[tree, node]["block"] == s.NO_BLOCK or grow.depth_of(node) >= rules.top):
        node = (node - 1) >> 1
    if forest.nodes[tree, node]["block"] != s.NO_BLOCK and rules.top > 0:
        _note_row(bins, places, change, slot, node, delta)


@inner
def _add_differences(forest, tree, rules, change):
    """Add what was noted to totals, counts and histograms, from the leaves up."""
    nodes = forest.nodes
    first_of_top = (1 << rules.top) - 1
    first_below = 2 * first_of_top + 1
    first_inside = (2 << rules.levels) - 1  # nodes above have no histograms
    for place in range(nodes.shape[1]):
        node = nodes.shape[1] - 1 - place
        if change.states[node] == CLEAN:
            continue
        parent = (node - 1) >> 1
        nodes[tree, node]["total"] += change.totals[node]
        if node < first_below:
            nodes[tree, node]["first_total"] += change.first_totals[node]
        nodes[tree, node]["count"] += change.counts[node]
        if node > 0:
            change.states[parent] |= change.states[node]
            change.totals[parent] += change.totals[node]
            change.first_totals[parent] += change.first_totals[node]
            change.counts[parent] += change.counts[node]
        change.totals[node] = 0
        change.first_totals[node] = 0
        change.counts[node] = 0
        block = np.int64(nodes[tree, node]["block"])
        if block == s.NO_BLOCK or (node < first_of_top and change.states[node] != MOVED):
            continue
        histogram, deltas = forest.pool[block], change.deltas[node]
        # The histograms of nodes at depth `top` and of their parents are of different derivatives.
        if node >= first_inside and not first_of_top <= node < first_below:
            above = change.deltas[parent]
            for i in range(deltas.shape[0]):
                above[i] += deltas[i]
        for i in range(deltas.shape[0]):
            histogram[i] += deltas[i]
            deltas[i] = 0


@pasted
def _has_other_split(model, tree, node, depth, key):
    """Search a node's best split; whether it is not the one that it has."""
    grow.search_node(model, tree, node, depth, key)
    found, nodes = model.space.found, model.forest.nodes
    if found[FEATURE] != nodes[tree, node]["feature"]:
        return True
    return found[FEATURE] >= 0 and (
        found[CUT] != nodes[tree, node]["cut"] or found[MISSING_LEFT] != nodes[tree, node]["missing_left"]
    )


@inner
def _check_nodes(model, change, tree, key):
    """Mark the uppermost nodes that are to be rebuilt as stale; refresh the leaves whose sums changed.

    Returns (number of stale nodes, whether a leaf's value changed).
    """
    forest, nodes, rules = model.forest, model.forest.nodes, model.rules
    n_stale = 0
    has_changed = False
    start, end = 0, 1
    for depth in range(rules.depth + 1):
        for node in range(start, end):
            if node > 0 and change.states[(node - 1) >> 1] >= STALE:
                change.states[node] = GONE
                continue
            if change.states[node] == CLEAN or depth < rules.levels:
                continue
            splits = grow.may_split(forest, tree, node, depth, rules)
            is_stale = splits != (nodes[tree, node]["block"] != s.NO_BLOCK)
            if splits and not is_stale and (depth >= rules.top or change.states[node] == MOVED):
                change.report[s.N_WORK] += _searching_work(model.plans, 1)
                is_stale = _has_other_split(model, tree, node, depth, key)
            if is_stale:
                change.states[node] = STALE
                n_stale += 1
            elif nodes[tree, node]["feature"] < 0 and rules.directions.shape[0] == 0:
                value = np.int32(grow.leaf_value(nodes[tree, node]["total"], key, node, rules))
                if value != nodes[tree, node]["value"]:
                    nodes[tree, node]["value"] = value
                    has_changed = True
        start, end = 2 * start + 1, 2 * end + 1
    return n_stale, has_changed


@inner
def _list_members(forest, tree, space, change, max_depth):
    """List the samples below each stale node; returns how many there are.

    space.first and space.last say where. No branch depends on a sample: the others are written behind the last
    place, one over the other.
    """
    n_stale, last_stale = 0, 0
    nodes = forest.nodes
    n_labels = 1 << max_depth
    owners = change.values[change.values.shape[0] - 1]
    others = nodes.shape[1]
    for label in range(n_labels + 1):
        owners[label] = others
    n_members = np.int64(0)
    for node in range(nodes.shape[1]):
        if change.states[node] == STALE:
            n_stale, last_stale = n_stale + 1, node
            space.first[node] = n_members
            space.last[node] = n_members
            n_members += np.int64(nodes[tree, node]["count"])
            depth = grow.depth_of(node)
            label = grow.label_of(node, depth, max_depth)
            for i in range(np.int64(1) << (max_depth - depth)):
                owners[label + i] = node
    labels = forest.leaf_of[tree]
    # Those of one node are in their place at once; those of several are separated in a second step.
    listed = space.members if n_stale == 1 else space.spare
    n_listed = np.uint64(0)
    for slot in range(labels.shape[0]):
        listed[n_listed] = slot
        n_listed += np.uint64(owners[np.uint64(labels[slot])] != others)
    if n_stale == 1:
        space.last[last_stale] = n_members
        return n_members
    for i in range(n_members):
        slot = listed[np.uint64(i)]
        owner = np.uint64(owners[np.uint64(labels[np.uint64(slot)])])
        place = space.last[owner]
        space.members[np.uint64(place)] = slot
        space.last[owner] = place + 1
    return n_members


@inner
def _growing_work(bins, n_levels):
    """What growing so many levels takes for a sample, in cells added to histograms, as measured."""
    return bins.rows.shape[1] * max(n_levels - 1, 0) // 2 + 3 * n_levels + 10


@inner
def _searching_work(plans, n_nodes):
    """What filling and searching the histograms of so many nodes takes, whatever samples there are, in the same."""
    return 3 * n_nodes * plans.cuts.shape[1]


@inner
def _rebuild(model, change, tree, key):
    """Rebuild what is below the stale nodes; returns how many samples are there."""
    forest, rules, samples = model.forest, model.rules, model.samples
    n_members = _list_members(forest, tree, model.space, change, rules.depth)
    change.report[s.N_WORK] += 3 * samples.roles.shape[0]
    _derive_members(model, change, tree // model.scores.new.shape[0], n_members)
    for node in range(forest.nodes.shape[1]):
        if change.states[node] != STALE:
            continue
        grow.remove_below(forest, tree, node)
        depth = grow.depth_of(node)
        count, n_levels = np.int64(forest.nodes[tree, node]["count"]), rules.depth - depth
        n_nodes = min(count, np.int64(1) << n_levels)
        change.report[s.N_WORK] += count * _growing_work(model.bins, n_levels) + _searching_work(model.plans, n_nodes)
        if not grow.may_split(forest, tree, node, depth, rules):
            grow.free_block(forest, tree, node)
        elif forest.nodes[tree, node]["block"] == s.NO_BLOCK:
            grow.give_histogram(model, tree, node, depth)
        grow.grow_below(model, tree, node, key)
    return n_members


@inner
def _derive_members(model, change, iteration, n_members):
    """Derive the samples that are in a subtree to be rebuilt, unless another tree of the iteration has needed it."""
    scores, samples, space, loss = model.scores, model.samples, model.space, model.loss
    n_slots = samples.roles.shape[0]
    n_fresh = np.int64(0)
    for i in range(n_members):
        slot = np.uint64(space.members[i])
        space.spare[n_fresh] = slot
        n_fresh += change.derived[slot] != iteration
        change.derived[slot] = iteration
    if change.report[s.DRIFTS] == 0:
        _find_scores(model.forest, scores, change, iteration, space.spare, 0, n_fresh)
    if loss.kind == derivatives.BINARY and n_fresh > _DERIVE_ALL * n_slots:
        derivatives.derive_binary(loss, scores.new, samples, iteration, space.packed, 0, n_slots)
    else:
        derivatives.derive_some(loss, scores.new, samples, iteration, space.spare, n_fresh, space.packed)
    change.report[s.N_WORK] += n_fresh * _deriving_work(scores.new.shape[0])


@inner
def _deriving_work(n_groups):
    """What finding a sample's scores and deriving it takes, in cells."""
    return 25 * n_groups


# -- scores -----------------------------------------------------------------------------------------

_NO_MARK = np.uint64(0)
_MANY = 4  # more than one sample in so many drifts: the scores of all are kept; less than half of that: a list again


@inner
def _past_row(iteration, group, n_groups):
    """The row of `change.past` with the values of a tree's leaves."""
    return (iteration % s.EVERY) * n_groups + group


@inner
def _find_scores(forest, scores, change, iteration, slots, begin, end):
    """Set the new scores of the samples slots[begin:end] to those before an iteration, by the trees as they are."""
    n_groups = scores.new.shape[0]
    for k in range(n_groups):
        target, kept = scores.new[k], scores.kept[iteration // s.EVERY, k]
        for i in range(begin, end):
            slot = np.uint64(slots[i])
            target[slot] = kept[slot]
        for earlier in range(iteration - iteration % s.EVERY, iteration):
            labels = forest.leaf_of[earlier * n_groups + k]
            values = change.past[_past_row(earlier, k, n_groups)]
            for i in range(begin, end):
                slot = np.uint64(slots[i])
                target[slot] += values[np.uint64(labels[slot])]


@inner
def _enlist(samples, change, slot):
    """List a sample, unless it is listed, or comes or goes itself."""
    role = samples.roles[slot]
    if change.is_listed[slot] == 0 and (role in (s.TRAINS, s.VALIDATES)):
        change.is_listed[slot] = 1
        change.drifting[change.report[s.N_LISTED]] = slot
        change.report[s.N_LISTED] += 1


@inner
def _list_drifting(model, change, tree, n_members):
    """List the samples whose leaf in a tree has another value than before; the first n_members were in stale nodes."""
    forest, scores, samples, space = model.forest, model.scores, model.samples, model.space
    n_groups = scores.new.shape[0]
    iteration, group = tree // n_groups, tree % n_groups
    labels = forest.leaf_of[tree]
    before, after = change.values[group], change.past[_past_row(iteration, group, n_groups)]
    owners, others = change.values[n_groups], forest.nodes.shape[1]
    first = change.report[s.N_LISTED]
    old_labels = change.labels[group]
    for i in range(n_members):
        slot = np.uint64(space.members[i])
        if before[np.uint64(old_labels[slot])] != after[np.uint64(labels[slot])]:
            _enlist(samples, change, slot)
    # What is left of `before` differs from `after` where a leaf that stays has got another value.
    has_other = False
    for label in range(before.shape[0]):
        is_other = before[label] != after[label] and (n_members == 0 or owners[label] == others)
        owners[label] = is_other
        has_other |= is_other
    if has_other:
        for slot in range(labels.shape[0]):
            change.marks[slot] = owners[np.uint64(labels[slot])]
        for word in range(change.mark_words.shape[0]):
            if change.mark_words[word] != _NO_MARK:
                for slot in range(8 * word, min(8 * word + 8, labels.shape[0])):
                    if change.marks[slot] != 0:
                        _enlist(samples, change, np.uint64(slot))
    last = change.report[s.N_LISTED]
    _find_scores(forest, scores, change, iteration, change.drifting, first, last)
    for k in range(n_groups):
        for i in range(first, last):
            slot = np.uint64(change.drifting[i])
            scores.old[k, slot] = scores.new[k, slot]


@inner
def _advance(forest, scores, change, iteration):
    """Take the scores past an iteration: of all samples or those listed, and of those that come and go."""
    n_groups, n_slots = scores.new.shape
    has_all, n_listed = change.report[s.DRIFTS] != 0, change.report[s.N_LISTED]
    for k in range(n_groups):
        labels = forest.leaf_of[iteration * n_groups + k]
        old_labels = change.labels[k] if change.is_rebuilt[k] else labels
        before, after = change.values[k], change.past[_past_row(iteration, k, n_groups)]
        old, new = scores.old[k], scores.new[k]
        if has_all:
            grow.roll(old, old_labels, before, 0, n_slots)
            grow.roll(new, labels, after, 0, n_slots)
        for i in range(n_listed):
            slot = np.uint64(change.drifting[i])
            old[slot] += before[np.uint64(old_labels[slot])]
            new[slot] += after[np.uint64(labels[slot])]
        for i in range(change.slots.shape[0]):
            slot = np.uint64(change.slots[i])
            if not change.joins[i]:
                old[slot] += change.steps[k, i]
            elif not has_all:
                new[slot] += after[np.uint64(labels[slot])]
    if has_all:
        grow.keep(scores, iteration + 1, 0, n_slots)
        return
    for i in range(n_listed):
        slot = np.int64(change.drifting[i])
        grow.keep(scores, iteration + 1, slot, slot + 1)
    for i in range(change.slots.shape[0]):
        slot = np.int64(change.slots[i])
        if change.joins[i]:
            grow.keep(scores, iteration + 1, slot, slot + 1)


@inner
def _is_same(scores, slot):
    is_same = True
    for k in range(scores.new.shape[0]):
        is_same &= scores.new[k, slot] == scores.old[k, slot]
    return is_same


@inner
def _forget_still(scores, change):
    """Take those off the list whose scores are again what they were."""
    n_left = np.int64(0)
    for i in range(change.report[s.N_LISTED]):
        slot = np.uint64(change.drifting[i])
        if _is_same(scores, slot):
            change.is_listed[slot] = 0
        else:
            change.drifting[n_left] = slot
            n_left += 1
    change.report[s.N_LISTED] = n_left


@inner
def _choose_form(forest, scores, samples, change, iteration, max_depth):
    """Change from a list to the scores of all samples, or back, if that is better before an iteration."""
    report, n_samples = change.report, samples.roles.shape[0]
    if report[s.DRIFTS] == 0:
        if _MANY * report[s.N_LISTED] > n_samples:
            _find_all(forest, scores, change, iteration, max_depth)
        return
    n_other = np.int64(0)
    for k in range(scores.new.shape[0]):
        new, old = scores.new[k], scores.old[k]
        for slot in range(new.shape[0]):
            n_other += new[slot] != old[slot]
    if 2 * _MANY * n_other < n_samples:
        report[s.DRIFTS] = 0
        for slot in range(samples.roles.shape[0]):
            if not _is_same(scores, np.uint64(slot)):
                _enlist(samples, change, np.uint64(slot))


@inner
def _find_all(forest, scores, change, iteration, max_depth):
    """Find the scores of all samples; none is listed any more."""
    for i in range(change.slots.shape[0]):
        # The scores of those that go are known, and not to be read from trees that they have left.
        change.is_listed[np.uint64(change.slots[i])] = 1
    n_groups = scores.new.shape[0]
    grow.roll_to(forest, scores, iteration, max_depth, change.values[n_groups])
    for k in range(n_groups):
        for slot in range(scores.new.shape[1]):
            if change.is_listed[slot] == 0:
                scores.old[k, slot] = scores.new[k, slot]
    for slot in range(change.is_listed.shape[0]):
        change.is_listed[slot] = 0
    change.report[s.N_LISTED] = 0
    change.report[s.DRIFTS] = 1


# -- an update --------------------------------------------------------------------------------------

_BUSY_ITERATIONS = 2  # in a row that were more work than growing them from nothing, as the rest is then


@inner
def _find_touched(model, change, iteration):
    """List the samples held whose derivatives change, with these before and after; returns how many."""
    scores, samples, loss = model.scores, model.samples, model.loss
    slots, n = change.touched, np.int64(0)
    if change.report[s.DRIFTS] == 0:
        slots, n = change.drifting, change.report[s.N_LISTED]
    elif loss.kind == derivatives.BINARY:
        n = derivatives.list_other(scores.new[0], scores.old[0], change.touched)
    elif loss.kind == derivatives.REGRESSION and samples.units.shape[0] == 0:
        derivatives.mark_regression(loss, scores.new[0], scores.old[0], samples, iteration, change.marks)
        n = _list_marked(samples, change)
    else:
        derivatives.mark_drifted(scores.new, scores.old, change.marks)
        n = _list_marked(samples, change)
    if loss.kind == derivatives.BINARY:
        new, old = scores.new[0], scores.old[0]
        n = derivatives.list_other_binary(loss, new, old, samples, iteration, slots, n, change.touched)
        slots = change.touched
    derivatives.derive_some(loss, scores.old, samples, iteration, slots, n, change.before)
    derivatives.derive_some(loss, scores.new, samples, iteration, slots, n, model.space.packed)
    n_touched = 0
    for i in range(n):
        slot = np.uint64(slots[i])
        is_touched = 0
        for k in range(change.before.shape[0]):
            is_touched |= np.int64(change.before[k, slot] != model.space.packed[k, slot])
        change.touched[n_touched] = slot
        n_touched += is_touched
    return n_touched


@inner
def _list_marked(samples, change):
    """List the slots that are marked and whose samples train as touched; returns how many there are."""
    n_marked = 0
    for word in range(change.mark_words.shape[0]):
        if change.mark_words[word] == _NO_MARK:
            continue
        for slot in range(8 * word, min(8 * word + 8, samples.roles.shape[0])):
            if change.marks[slot] != 0 and samples.roles[slot] == s.TRAINS:
                change.touched[n_marked] = slot
                n_marked += 1
    return n_marked


@inner
def _derive_moved(model, change, iteration):
    """Derivatives of samples that come and go: nothing after for those that go, nothing before for those that come."""
    scores, samples, packed, loss = model.scores, model.samples, model.space.packed, model.loss
    n_groups = scores.new.shape[0]
    for i in range(change.slots.shape[0]):
        slot = np.uint64(change.slots[i])
        if change.joins[i]:
            derivatives.derive_one(loss, scores.new, samples, iteration, slot, packed)
            for k in range(n_groups):
                change.before[k, slot] = 0
        else:
            derivatives.derive_one(loss, scores.old, samples, iteration, slot, change.before)
            for k in range(n_groups):
                packed[k, slot] = 0


@inner
def _note_all(model, change, tree, n_touched):
    """Add what touched samples, and those that come and go, change in a tree's sums; the latter move, too."""
    forest, bins, rules, samples, max_depth = model.forest, model.bins, model.rules, model.samples, model.rules.depth
    n_groups = model.scores.new.shape[0]
    group, places = tree % n_groups, model.plans.places[tree // n_groups]
    before, after = change.before[group], model.space.packed[group]
    labels = forest.leaf_of[tree]
    n_labels = np.int64(1) << max_depth
    n_noted = change.slots.shape[0]
    for i in range(n_touched):
        slot = np.uint64(change.touched[i])
        n_noted += after[slot] != before[slot]
    is_direct = n_noted * bins.rows.shape[1] <= change.deltas.shape[1]
    for i in range(n_touched):
        slot = np.uint64(change.touched[i])
        delta = after[slot] - before[slot]
        if delta == 0:
            continue
        label = np.int64(labels[slot])
        if is_direct:
            _add_to_path(forest, tree, bins, places, rules, change, slot, label, delta, 0, 0)
        else:
            leaf = _leaf_at(forest, tree, label, max_depth)
            _note_difference(forest, tree, bins, places, rules, change, slot, leaf, delta)
        change.report[s.N_TOUCHED] += 1
    for i in range(change.slots.shape[0]):
        slot = np.uint64(change.slots[i])
        if change.joins[i]:
            label = _route(forest, tree, bins, slot, max_depth)
            labels[slot] = label
        else:
            label = np.int64(labels[slot])
            labels[slot] = n_labels
            change.steps[group, i] = change.values[group, label]
        count = 1 if change.joins[i] else -1
        delta, first = after[slot] - before[slot], count * samples.first[group, slot]
        if is_direct:
            _add_to_path(forest, tree, bins, places, rules, change, slot, label, delta, first, count)
        else:
            leaf = _leaf_at(forest, tree, label, max_depth)
            _note_difference(forest, tree, bins, places, rules, change, slot, leaf, delta)
            _note_move(forest, tree, bins, places, rules, change, slot, leaf, first, count)
    if not is_direct:
        _add_differences(forest, tree, rules, change)


@inner
def _update_tree(model, change, tree, n_touched):
    """Update one tree; the derivatives before and after stand. Returns whether it changed."""
    forest, n_groups, key = model.forest, model.scores.new.shape[0], grow.leaf_key(model.seed_key, tree)
    group = tree % n_groups
    for node in range(change.states.shape[0]):
        change.states[node] = CLEAN
    values = change.values[group]
    grow.leaf_values(forest, tree, model.rules.depth, values)
    _note_all(model, change, tree, n_touched)
    if change.report[s.CHECKS_ALL] != 0:
        for node in range(change.states.shape[0]):
            if forest.nodes[tree, node]["feature"] >= s.LEAF:
                change.states[node] = MOVED
    n_stale, has_changed = _check_nodes(model, change, tree, key)
    change.is_rebuilt[group] = n_stale > 0
    n_members = np.int64(0)
    if n_stale > 0:
        labels, old_labels = forest.leaf_of[tree], change.labels[group]
        for slot in range(labels.shape[0]):
            old_labels[slot] = labels[slot]
        n_members = _rebuild(model, change, tree, key)
        change.report[s.N_NODES] += n_stale
        change.report[s.N_MEMBERS] += n_members
    has_changed |= grow.bound_leaves(forest, tree, key, model.rules)
    after = change.past[_past_row(tree // n_groups, group, n_groups)]
    if not has_changed and n_stale == 0:
        for label in range(after.shape[0]):
            after[label] = values[label]
        return False
    grow.leaf_values(forest, tree, model.rules.depth, after)
    if change.report[s.DRIFTS] == 0:
        _list_drifting(model, change, tree, n_members)
    return True


@inner
def _renew_loss(scores, samples, change, loss, iteration):
    """Bring the validation loss after an iteration up to date."""
    if change.report[s.DRIFTS] != 0:
        scores.losses[iteration] = derivatives.total_loss(loss, scores.new, samples, 0, scores.new.shape[1])
    for i in range(change.report[s.N_LISTED]):
        slot = np.uint64(change.drifting[i])
        if samples.roles[slot] == s.VALIDATES:
            scores.losses[iteration] += derivatives.loss_of(loss, scores.new, samples, slot)
            scores.losses[iteration] -= derivatives.loss_of(loss, scores.old, samples, slot)
    for i in range(change.slots.shape[0]):
        slot = np.uint64(change.slots[i])
        if samples.roles[slot] & s.VALIDATES == 0:
            continue
        if change.joins[i]:
            scores.losses[iteration] += derivatives.loss_of(loss, scores.new, samples, slot)
        elif change.report[s.DRIFTS] == 0:
            scores.losses[iteration] -= derivatives.loss_of(loss, scores.old, samples, slot)


@inner
def _growing(bins, plans, rules, n_samples, n_regions, n_groups):
    """What growing an iteration in some regions takes, in cells added to histograms."""
    depth = rules.depth - rules.levels
    cells = n_samples * (_growing_work(bins, depth) + bins.rows.shape[1] // 2 + _deriving_work(1))
    return n_groups * (cells + _searching_work(plans, min(n_samples, n_regions << depth)))


@inner
def _updating_work(bins, change, n_touched, n_groups, n_slots):
    """What an iteration of an update takes, but for what is rebuilt and searched: N_WORK."""
    width = bins.rows.shape[1]
    n_drifting = n_slots if change.report[s.DRIFTS] != 0 else change.report[s.N_LISTED]
    moving = change.slots.shape[0] * n_groups * (2 * width + 50) + n_touched * (2 * width + 20)
    per_drifting = 3 if change.report[s.DRIFTS] != 0 else _deriving_work(2) + 10
    return moving + n_drifting * n_groups * per_drifting


@kernel
def update_iterations(model, change, n_samples, n_regions, begin, end, patience):
    """Update the iterations from `begin` to `end`, or until validation ends training.

    The samples that come and go are marked as MOVING; `scores.new` of those that come and `scores.old` of those that go
    hold their scores before iteration `begin`, and so do both of those that drift already.

    n_samples, n_regions : held in the regions of the samples that come and go, and these.

    Returns (iterations that are up to date, status). With NO_BLOCKS to be called again from there, with TOO_MUCH
    the others are to be grown from `scores.new`.
    """
    forest, scores, samples, report, loss = model.forest, model.scores, model.samples, change.report, model.loss
    n_groups = scores.new.shape[0]
    n_needed = n_groups * ((1 << model.rules.depth) - 1)
    growing = _growing(model.bins, model.plans, model.rules, n_samples, n_regions, n_groups)
    for iteration in range(begin, end):
        if forest.meta[s.N_FREE] < n_needed:
            return iteration, grow.NO_BLOCKS
        if report[s.N_BUSY] >= _BUSY_ITERATIONS:
            return iteration, grow.TOO_MUCH
        _choose_form(forest, scores, samples, change, iteration, model.rules.depth)
        n_touched = _find_touched(model, change, iteration)
        _derive_moved(model, change, iteration)
        n_work, n_before = report[s.N_WORK], report[s.N_TOUCHED]
        for tree in range(iteration * n_groups, (iteration + 1) * n_groups):
            if _update_tree(model, change, tree, n_touched):
                report[s.N_TREES] += 1
                if report[s.FIRST_TREE] < 0:
                    report[s.FIRST_TREE] = tree
        _advance(forest, scores, change, iteration)
        n_work, n_touched = report[s.N_WORK] - n_work, report[s.N_TOUCHED] - n_before
        n_work += _updating_work(model.bins, change, n_touched, n_groups, samples.roles.shape[0])
        report[s.N_BUSY] = report[s.N_BUSY] + 1 if n_work > growing else 0
        if patience > 0:
            _renew_loss(scores, samples, change, loss, iteration)
            best, stops = derivatives.should_stop(scores.losses, iteration, report[s.BEST_ITERATION], patience)
            report[s.BEST_ITERATION] = best
            if stops:
                return iteration + 1, grow.DONE
        _forget_still(scores, change)
    return end, grow.DONE


@kernel
def reach(forest, scores, change, iteration, max_depth):
    """Make `scores.new` those before an iteration for all samples."""
    grow.roll_to(forest, scores, iteration, max_depth, change.values[scores.new.shape[0]])
