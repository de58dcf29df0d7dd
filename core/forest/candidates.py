"""Thresholds of a numeric attribute at a node: a grid whose phase is drawn, not its points.

The candidates of an attribute with values from lo to hi are the points of a regular grid between
them. The width of a cell is the largest g = 2^e or 1.5 * 2^e with (hi - lo) / g >= max(1, 0.8 s), so
that there are about s of them, and the phase is drawn for the node and the attribute:

    cell of x = floor(x / g + phase)                  candidate m, first <= m < last:  cell of x <= m

Differs from the paper's ERT nodes, which draw each threshold from [lo, hi): here the candidates stay
where they are while samples come and go, until hi - lo passes one of the widths' steps. A threshold
drawn from [lo, hi) moves whenever an end of the range does, at every node that a sample with an
extreme value has passed. And a sample finds its cell by one multiplication.

The cell is computed in float64 by one fixed expression, which never decreases in x; the threshold of a
split is the largest value of the cells' type that the expression sends left. So both ends of the
range are on different sides of every candidate. Where float64 cannot tell the cells apart (float64
columns with a range of a few units in the last place, or too wide for it), there is one candidate:
lo against the rest.
"""

import numpy as np

from oubli.core.jit.policy import kernel, pasted
from oubli.core.rng import coin, combine, unit

_PHASE = np.uint64(0)
_MISSING_COINS = np.uint64(1)
_THIRD = 0x5555555555555  # fraction bits of 4/3
_EXACT = 9007199254740992.0  # 2**53: cells beyond have no exact number


@pasted
def missing_goes_left(key, cell):
    """The coin of a candidate for missing values; `key` is the attribute's, `cell` the candidate m."""
    return coin(combine(combine(key, _MISSING_COINS), np.uint64(np.int64(cell))))


@pasted
def draw_phase(key):
    """Phase of an attribute's grid, in [0, 1); `key` is the attribute's."""
    return unit(combine(key, _PHASE))


@pasted
def fit_scale(lo, hi, n_thresholds, number, bits):
    """1 / g for the cell width g of a range lo < hi, in float64; 0 where g is next to float64's limits.

    number, bits  float64[1] and int64[1], the same memory: working space

    Half the range is taken, because the whole may overflow. Powers of two are read and made by their
    bits, several times faster than by `frexp` and `ldexp`.
    """
    n_wanted = max(np.float64(4 * n_thresholds) / 5.0, 1.0)
    number[0] = (hi * 0.5 - lo * 0.5) / n_wanted
    exponent = (bits[0] >> 52) - 1022  # of the whole range, g being 2^exponent or half as much again
    is_three_halves = (bits[0] >> 51) & 1
    if exponent < -1000 or exponent > 1000:
        return 0.0
    # 1 / g is 2^-exponent, or 4/3 * 2^-(exponent + 1).
    bits[0] = ((1023 - exponent - is_three_halves) << 52) | (is_three_halves * _THIRD)
    return number[0]


@pasted
def cell_number(x, scale, phase):
    """The cell of x, as a float64."""
    return np.floor(x * scale + phase)


@pasted
def is_usable(lo, hi, scale, phase, n_cells):
    """Whether float64 tells the cells of a range apart; false as well when a number is infinite or NaN."""
    first = cell_number(lo, scale, phase)
    last = cell_number(hi, scale, phase)
    return first > -_EXACT and last < _EXACT and last - first >= 1.0 and last - first < np.float64(n_cells)


@kernel
def above(value, cells):
    """Smallest value of the cells' type above `value`, as float64."""
    if cells.itemsize == 4:
        return np.float64(np.nextafter(np.float32(value), np.float32(np.inf)))
    return np.nextafter(value, np.inf)


@kernel
def below(value, cells):
    """Largest value of the cells' type below `value`, as float64."""
    if cells.itemsize == 4:
        return np.float64(np.nextafter(np.float32(value), np.float32(-np.inf)))
    return np.nextafter(value, -np.inf)


@pasted
def as_cell(value, cells):
    """Round a float64 to the cells' type."""
    if cells.itemsize == 4:
        return np.float64(np.float32(value))
    return value


@kernel
def threshold_of(number, lo, hi, scale, phase, cells):
    """Largest value of the cells' type whose cell is at most `number`.

    lo, hi  cell of lo <= number < cell of hi: they bound the search, and do not decide the result
    cells   any array of the cells' type
    """
    threshold = as_cell((number + 1.0 - phase) / scale, cells)
    threshold = min(max(threshold, lo), hi)
    while cell_number(threshold, scale, phase) > number:
        threshold = below(threshold, cells)
    following = above(threshold, cells)
    while cell_number(following, scale, phase) <= number:
        threshold = following
        following = above(threshold, cells)
    return threshold + 0.0  # stepping up to zero gives a negative one
