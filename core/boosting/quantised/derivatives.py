"""The loss: F_0 and units, derivatives of samples that train, and the loss of those that validate; all on grids.

Derivatives are rounded up or down by a hash of the sample's id. Let N be the number of steps of the grid, p the
probability of a class by the scores so far, r 1 if the sample is of the class and 0 if not, and u in [0, 1) the
sample's offset. Then

    q = floor(N p + u)      is N p on average over u
    g = q - N r             the gradient, in steps of 1 / N
    h = H[q]                the hessian, in steps of 1 / 64: 64 (q / N) (1 - q / N), rounded

so a sample's derivatives change only when one integer, q, does. u = (hash(seed, id) + iteration * 0x9E3779B9 + class *
0x85EBCA6B) mod 2^32 / 2^32 is a Weyl sequence: over the iterations the errors of a sample average out. Scores are
sums of integer leaf values, and p is read from tables of integers, so everything here is integers, except

    regression      g = floor((F - y) / (grid * spread) + u), clipped, and h = 1, F and y as float64

    the others      g = floor(g(F, y) / grid + u), and h = floor(h(F, y) c + v) alike, see `core/boosting/loss.py`

whose few float64 operations are the same everywhere.

A sample of weight w has (see `core/boosting/weights.py`)

    g = floor((N p - N r) w + u),    h = floor(H[q] w + v),    in a regression floor((F - y) / (grid * spread) w + u)

and w clipped and h accordingly: right on average over u and v, which is drawn by the id, too. So a sample of weight 2
is like two equal samples, which have offsets of their own, and not the same. All that counts samples counts weights,
in units of 1 / 256, but for what depends on how much of all a single sample is: steadiness and regions, whose
numbers of samples are numbers.

F_0 and the units of scores are functions of the set of samples that hardly ever move:

*   Classes: the log-odds of the second of two classes, or the logarithm of the number of samples of each, on a grid of
    BASE_GRID with an offset drawn from the seed. One is added to every count, so that no class has none.
*   Numbers: see `core/boosting/targets.py`.

The validation loss is an integer, so that its sum does not depend on the order of the samples.
"""

import numpy as np
import numpy.typing as npt

from oubli.core.boosting import loss as losses
from oubli.core.boosting.histogram import HESSIAN_BITS, pack
from oubli.core.boosting.loss import BAND, HUBER, QUANTILE, curvature_scale, exp, log, ordinary_curvature, sigmoid
from oubli.core.boosting.parameters import VALIDATION
from oubli.core.boosting.quantised.state import TRAINS, VALIDATES, Loss
from oubli.core.boosting.targets import BASE_GRID, START, Start
from oubli.core.boosting.weights import units_at, weighed
from oubli.core.jit.policy import inner, kernel, pasted
from oubli.core.jit.targets import GRID
from oubli.core.rng import combine, mix, unit

BINARY, MULTICLASS, REGRESSION = range(3)  # and HUBER, QUANTILE, POISSON

HESSIAN_STEPS = 64  # H[q] is at most 16: sums over a size below 2**24 stay below 2**28
NUMBER_STEPS = 16  # of a regression's hessian, which is the weight, or of the largest: the same
GRADIENT_LIMIT = 2**11  # of a regression's gradient: sums over a size below 2**24 stay below 2**35
_STEPS_OF_UNITS = np.int64(GRADIENT_LIMIT // GRID)
_UNIT = 1.0 / GRID
_LOW_BYTE = np.uint32(255)

_ITERATION_STEP = np.uint32(0x9E3779B9)
_CLASS_STEP = np.uint32(0x85EBCA6B)
_SHIFT_32 = np.uint64(32)

_TWO_TO_MINUS_32 = 1.0 / 4294967296.0

_REACH = 16.0  # scores beyond +-16 are taken for +-16: p is 1e-7 from 0 or 1 there

ROUNDING = np.uint64(8)

_STEPS = 1048576.0  # a loss of 1 is 2**20
_LARGEST_LOSS = 1073741824.0  # of one sample: sums over a size of 2**24 stay below 2**55


@kernel
def _fill_sigmoids(table, zero, unit):
    for i in range(table.shape[0]):
        table[i] = np.int64(np.floor(sigmoid(unit * (i - zero)) * 4294967296.0))


@kernel
def _fill_powers(table, unit):
    for i in range(table.shape[0]):
        table[i] = np.int64(np.floor(exp(-unit * i) * 1073741824.0))


def hessian_steps(kind: int, level: float) -> float:
    """The hessian of an ordinary sample of weight 1 as an integer: what parameters count in."""
    return NUMBER_STEPS * ordinary_curvature(kind, level) if kind >= REGRESSION else HESSIAN_STEPS


def make_loss(
    kind: int, gradient_grid: float, unit: float, base: float = 0.0, spread: float = 1.0, level: float = 0.0
) -> Loss:
    """Make the tables.

    Parameters
    ----------
    gradient_grid : 1 / N, rounded to such a number.
    unit : what raw scores are multiples of; in a regression in the targets' own units, or in logarithms of them.
    level : of the loss, as in `core/boosting/loss.py`; 0 of Huber's: the spread.
    """
    level = spread if kind == HUBER and level == 0.0 else level
    steps = max(round(1.0 / gradient_grid), 1)
    q = np.arange(steps + 1, dtype=np.int64)
    # 64 q (N - q) / N^2 to the nearest integer.
    weights = (2 * HESSIAN_STEPS * q * (steps - q) + steps * steps) // (2 * steps * steps)
    zero = int(np.ceil(_REACH / unit)) if kind == BINARY else 0
    table = np.zeros(1, np.int64)
    if kind == BINARY:
        table = np.zeros(2 * zero + 1, np.int64)
        _fill_sigmoids(table, zero, unit)
        table *= steps
    elif kind == MULTICLASS:
        table = np.zeros(int(np.ceil(_REACH / unit)) + 1, np.int64)
        _fill_powers(table, unit)
        table[-1] = 0
    inverse_grid = 1.0 / gradient_grid if kind == QUANTILE else 1.0 / (gradient_grid * spread)
    curvature = NUMBER_STEPS * curvature_scale(kind, level, base, spread)
    return Loss(
        kind, steps, table, zero, weights, base, unit, inverse_grid, 1.0 / spread, level, BAND * spread, curvature
    )


@inner
def offset_of(rounding, iteration, group):
    """A sample's offset u in steps of 2**-32, as int64."""
    shifted = np.uint32(rounding) + np.uint32(iteration) * _ITERATION_STEP + np.uint32(group) * _CLASS_STEP
    return np.int64(np.uint32(shifted))


@inner
def binary_level(loss, score):
    """N p of the second of two classes, in steps of 2**-32."""
    place = min(max(score + loss.zero, 0), loss.table.shape[0] - 1)
    return loss.table[np.uint64(place)]


@inner
def pack_level(loss, q, is_class):
    """A packed derivative by q and r."""
    return pack(q - (loss.steps if is_class else 0), loss.weights[np.uint64(q)])


@pasted
def _weighed_hessian(h, units, rounding):
    """A hessian times a weight, rounded up or down by the last byte of the sample's hash."""
    return weighed(np.int64(h), units, np.int64(rounding & _LOW_BYTE))


@inner
def pack_weighed(loss, level, offset, is_class, units, rounding):
    """A packed derivative by N p in steps of 2**-32 and r, of a sample of some units.

    The difference to N r is at most 2**40 in size, and units are below 2**23: the product stays within int64.
    """
    q = (level + offset) >> 32
    if units == GRID:
        return pack_level(loss, q, is_class)
    difference = level - (np.int64(loss.steps) << 32 if is_class else 0)
    g = (weighed(difference, units, 0) + offset) >> 32
    return pack(g, _weighed_hessian(loss.weights[np.uint64(q)], units, rounding))


@inner
def regression_step(loss, score, y, offset, units):
    """G of a regression."""
    weight, limit = units * _UNIT, units * _STEPS_OF_UNITS
    step = np.floor((loss.base + loss.unit * score - y) * loss.inverse_grid * weight + offset * (1.0 / 4294967296.0))
    return np.int64(min(max(step, -limit), limit))


@inner
def _derive_number(loss, scores, samples, iteration, place, packed):
    """Write the packed derivative of a sample that trains by one of the other losses.

    Both parts are rounded up or down by offsets that move with the iteration.
    """
    rounding, units = samples.rounding[place], units_at(samples.units, place)
    weight, limit = units * _UNIT, units * _STEPS_OF_UNITS
    score, y = loss.base + loss.unit * np.int64(scores[0, place]), samples.y[place]
    g = losses.gradient_at(loss.kind, loss.level, loss.band, score, y) * loss.inverse_grid
    h = min(losses.curvature_at(loss.kind, loss.level, loss.band, score, y) * loss.curvature, NUMBER_STEPS)
    step = np.floor(g * weight + offset_of(rounding, iteration, 0) * _TWO_TO_MINUS_32)
    height = np.floor(h * weight + offset_of(rounding, iteration, 1) * _TWO_TO_MINUS_32)
    packed[0, place] = pack(np.int64(min(max(step, -limit), limit)), np.int64(height))


@inner
def derive_one(loss, scores, samples, iteration, slot, packed):
    """Write the packed derivatives of a sample for all groups to packed[:, slot]; of one that validates, 0."""
    place = np.uint64(slot)
    if samples.roles[place] & TRAINS == 0:
        for k in range(scores.shape[0]):
            packed[k, place] = 0
        return
    rounding, units = samples.rounding[place], units_at(samples.units, place)
    offset = offset_of(rounding, iteration, 0)
    if loss.kind == BINARY:
        level = binary_level(loss, np.int64(scores[0, place]))
        packed[0, place] = pack_weighed(loss, level, offset, samples.labels[place] == 1, units, rounding)
        return
    if loss.kind == REGRESSION:
        step = regression_step(loss, np.int64(scores[0, place]), samples.y[place], offset, units)
        packed[0, place] = pack(step, _weighed_hessian(NUMBER_STEPS, units, rounding))
        return
    if loss.kind > REGRESSION:
        _derive_number(loss, scores, samples, iteration, place, packed)
        return
    _derive_classes(loss, scores, samples, iteration, place, packed)


@inner
def _derive_classes(loss, scores, samples, iteration, place, packed):
    """Write the packed derivatives of a sample that trains, for each of several classes."""
    rounding, units = samples.rounding[place], units_at(samples.units, place)
    n_groups = scores.shape[0]
    largest = np.int64(scores[0, place])
    for k in range(1, n_groups):
        largest = max(largest, np.int64(scores[k, place]))
    total = np.int64(0)
    end = loss.table.shape[0] - 1
    for k in range(n_groups):
        power = loss.table[np.uint64(min(largest - scores[k, place], end))]
        packed[k, place] = power
        total += power
    for k in range(n_groups):
        # At most 2**30 is shifted by 32; the quotient is at most 2**32.
        share = np.int64((np.uint64(packed[k, place]) << _SHIFT_32) // np.uint64(total))
        offset = offset_of(rounding, iteration, k)
        packed[k, place] = pack_weighed(loss, share * loss.steps, offset, samples.labels[place] == k, units, rounding)


@inner
def derive_some(loss, scores, samples, iteration, slots, n, packed):
    """Write the packed derivatives of the first n samples of `slots`, as `derive_one` does."""
    if loss.kind == BINARY and samples.units.shape[0] == 0:
        own, to = scores[0], packed[0]
        for i in range(n):
            slot = np.uint64(slots[i])
            level = binary_level(loss, np.int64(own[slot]))
            q = (level + offset_of(samples.rounding[slot], iteration, 0)) >> 32
            to[slot] = pack_level(loss, q, samples.labels[slot] == 1) * (samples.roles[slot] & TRAINS)
        return
    for i in range(n):
        derive_one(loss, scores, samples, iteration, slots[i], packed)


@inner
def derive_binary(loss, scores, samples, iteration, packed, begin, end):
    """Write the packed derivatives of slots `begin` to `end` - 1, 0 where no sample trains.

    Without branches where all weights are 1.
    """
    if samples.units.shape[0] > 0:
        for slot in range(begin, end):
            derive_one(loss, scores, samples, iteration, slot, packed)
        return
    own, to = scores[0], packed[0]
    last = loss.table.shape[0] - 1
    shift = np.uint32(iteration) * _ITERATION_STEP
    for i in range(begin, end):
        slot = np.uint64(i)
        place = min(max(np.int64(own[slot]) + loss.zero, 0), last)
        offset = np.int64(np.uint32(samples.rounding[slot] + shift))
        q = (loss.table[np.uint64(place)] + offset) >> 32
        g = q - loss.steps * samples.labels[slot]
        to[slot] = ((g << HESSIAN_BITS) + loss.weights[np.uint64(q)]) * (samples.roles[slot] & TRAINS)


@inner
def list_other(new, old, listed):
    """List the slots whose score is another; returns how many.

    Without branches: a slot that does not belong in the list is overwritten by the next one.
    """
    n = np.uint64(0)
    for slot in range(new.shape[0]):
        listed[n] = slot
        n += np.uint64(new[slot] != old[slot])
    return np.int64(n)


@inner
def list_other_binary(loss, new, old, samples, iteration, slots, n, listed):
    """List those of the first n slots whose samples train and have another derivative by the new scores.

    `listed` may be `slots`. Returns how many are in it. With weights all that train are: g may move while q stays.
    """
    are_weighed = samples.units.shape[0] > 0
    last = loss.table.shape[0] - 1
    shift = np.uint32(iteration) * _ITERATION_STEP
    n_listed = np.uint64(0)
    for i in range(n):
        slot = np.uint64(slots[np.uint64(i)])
        place = min(max(np.int64(new[slot]) + loss.zero, 0), last)
        other = min(max(np.int64(old[slot]) + loss.zero, 0), last)
        offset = np.int64(np.uint32(samples.rounding[slot] + shift))
        q = (loss.table[np.uint64(place)] + offset) >> 32
        p = (loss.table[np.uint64(other)] + offset) >> 32
        listed[n_listed] = np.int32(slot)
        n_listed += np.uint64(((p != q) | are_weighed) & (samples.roles[slot] == TRAINS))
    return np.int64(n_listed)


@inner
def mark_regression(loss, new, old, samples, iteration, marks):
    """Mark the slots whose derivative, if the sample trains and its weight is 1, is another by the new scores."""
    shift = np.uint32(iteration) * _ITERATION_STEP
    for slot in range(new.shape[0]):
        offset = np.int64(np.uint32(samples.rounding[slot] + shift))
        q = regression_step(loss, np.int64(new[slot]), samples.y[slot], offset, GRID)
        p = regression_step(loss, np.int64(old[slot]), samples.y[slot], offset, GRID)
        marks[slot] = p != q


@inner
def mark_drifted(new, old, marks):
    """Mark the slots whose scores of any group are others."""
    for slot in range(new.shape[1]):
        marks[slot] = 0
    for k in range(new.shape[0]):
        for slot in range(new.shape[1]):
            marks[slot] |= new[k, slot] != old[k, slot]


@inner
def derive_all(model, iteration, slots):
    """Write the packed derivatives of all samples to space.packed; slots: where they are."""
    loss, scores, packed = model.loss, model.scores.new, model.space.packed
    if loss.kind == BINARY:
        derive_binary(loss, scores, model.samples, iteration, packed, 0, scores.shape[1])
    else:
        derive_some(loss, scores, model.samples, iteration, slots, slots.shape[0], packed)


@kernel
def _round_log(count, other, seed, draw):
    """log(count / other) on the grid, in its steps."""
    u = unit(combine(combine(mix(seed), START), np.uint64(draw)))
    return np.int64(np.floor(log(count / other) / BASE_GRID + u))


def class_start(counts: npt.NDArray[np.int64], n_groups: int, step: float, seed: int) -> Start:
    """Start from the weights of training samples by rank of their class, in units; `step` is the unit of scores."""
    key, weights = np.uint64(seed), (counts / GRID + 1.0).tolist()
    if n_groups == 1:
        rounded = [_round_log(weights[1], weights[0], key, 2)]
    else:
        rounded = [_round_log(weight, 1.0, key, 2 + k) for k, weight in enumerate(weights)]
    return Start(np.rint(np.array(rounded) * BASE_GRID / step).astype(np.int32), 0.0, 1.0)


@kernel
def enter(roles, labels, rounding, id_hashes, class_codes, ranks, slots, seed, validation_limit, is_classification):
    """Write role, rounding and label of some samples; those whose hash is below the limit validate."""
    rounding_key = combine(mix(seed), ROUNDING)
    validation_key = combine(mix(seed), VALIDATION)
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        validates = combine(validation_key, id_hashes[slot]) < validation_limit
        roles[slot] = VALIDATES if validates else TRAINS
        rounding[slot] = np.uint32(combine(rounding_key, id_hashes[slot]) >> _SHIFT_32)
        labels[slot] = ranks[class_codes[slot]] if is_classification else np.int32(0)


@kernel
def derive_first(loss, start_scores, samples, slots):
    """Write the derivatives of some samples at F_0, by which the uppermost nodes of all trees are split.

    As the others, with a finer grid: the gradient in steps of 1/64 (of a spread), the hessian 64 p (1 - p)
    rounded like it. No product with units, below 2**23, passes 2**61.
    """
    n_groups = samples.first.shape[0]
    for i in range(slots.shape[0]):
        slot = np.uint64(slots[i])
        if samples.roles[slot] & TRAINS == 0:
            for k in range(n_groups):
                samples.first[k, slot] = 0
            continue
        units = units_at(samples.units, slot)
        if loss.kind >= REGRESSION:
            weight, limit = units * _UNIT, units * _STEPS_OF_UNITS
            g, scale = loss.base - samples.y[slot], loss.inverse_spread
            if loss.kind > REGRESSION:
                g = losses.gradient_at(loss.kind, loss.level, loss.band, loss.base, samples.y[slot])
            if loss.kind == QUANTILE:  # slopes have no unit
                scale = 1.0 / np.sqrt(loss.level * (1.0 - loss.level))
            step = np.floor(g * scale * HESSIAN_STEPS * weight + 0.5)
            h = _weighed_hessian(NUMBER_STEPS, units, samples.rounding[slot])
            samples.first[0, slot] = pack(np.int64(min(max(step, -limit), limit)), h)
            continue
        for k in range(n_groups):
            share = first_share(loss, start_scores, k)
            offset = offset_of(samples.rounding[slot], 0, k)
            r = samples.labels[slot] == (1 if loss.kind == BINARY else k)
            g = (share - (4294967296 if r else 0)) * HESSIAN_STEPS
            h = (share >> 16) * ((4294967296 - share) >> 16) * HESSIAN_STEPS
            samples.first[k, slot] = pack((weighed(g, units, 0) + offset) >> 32, (weighed(h, units, 0) + offset) >> 32)


@inner
def first_share(loss, start_scores, group):
    """P of a group at F_0, in steps of 2**-32."""
    if loss.kind == BINARY:
        place = min(max(np.int64(start_scores[0]) + loss.zero, 0), loss.table.shape[0] - 1)
        return loss.table[place] // loss.steps
    largest = np.int64(start_scores[0])
    for k in range(start_scores.shape[0]):
        largest = max(largest, np.int64(start_scores[k]))
    end = loss.table.shape[0] - 1
    total = np.int64(0)
    for k in range(start_scores.shape[0]):
        total += loss.table[min(largest - np.int64(start_scores[k]), end)]
    power = loss.table[min(largest - np.int64(start_scores[group]), end)]
    return np.int64((np.uint64(power) << _SHIFT_32) // np.uint64(total))


@kernel
def write_shares(loss, start_scores, shares):
    """Write P at F_0 of each group, in steps of 2**-32."""
    for k in range(shares.shape[0]):
        shares[k] = first_share(loss, start_scores, k)


@inner
def loss_of(loss, scores, samples, slot):
    """Log-loss, or another loss in spreads, of a sample times its weight, in steps of 2**-20."""
    place = np.uint64(slot)
    if loss.kind == REGRESSION:
        error = (loss.base + loss.unit * scores[0, place] - samples.y[place]) * loss.inverse_spread
        value = error * error
    elif loss.kind > REGRESSION:
        value = losses.loss_at(loss.kind, loss.level, loss.base + loss.unit * scores[0, place], samples.y[place])
        value *= loss.inverse_spread
        if loss.kind == HUBER:
            value *= loss.inverse_spread
    elif loss.kind == BINARY:
        margin = loss.unit * scores[0, place]
        value = log(1.0 + exp(-margin if samples.labels[place] == 1 else margin))
    else:
        largest = np.int64(scores[0, place])
        for k in range(1, scores.shape[0]):
            largest = max(largest, np.int64(scores[k, place]))
        total = 0.0
        for k in range(scores.shape[0]):
            total += exp(loss.unit * (scores[k, place] - largest))
        value = log(total) - loss.unit * (scores[np.uint64(samples.labels[place]), place] - largest)
    return weighed(np.int64(np.floor(min(value * _STEPS, _LARGEST_LOSS))), units_at(samples.units, place), 0)


@inner
def total_loss(loss, scores, samples, begin, end):
    """Sum of the losses of the samples in some slots that validate, but for those that are coming or going."""
    total = np.int64(0)
    for slot in range(begin, end):
        if samples.roles[slot] == VALIDATES:
            total += loss_of(loss, scores, samples, slot)
    return total


@inner
def should_stop(losses, iteration, best, patience):
    """The iteration with the lowest loss up to this one, and whether that is so long ago that training ends."""
    if iteration == 0 or losses[iteration] < losses[best]:
        best = np.int64(iteration)
    return best, patience > 0 and iteration - best >= patience
