"""The numeric columns of the samples at hand in sorted order: sorted once a build, then divided among the children.

Values are compared by keys: their bits as a signed integer, those of a negative number inverted but for
the sign, which puts the integers in the order of the numbers. Missing values have the largest key.

Dividing is stable, so that lists stay sorted. `sides` says where each position goes. The last bit of an entry, whether
its value differs from that of the one before, becomes the OR of the bits since the last entry of the same side.
"""

import numpy as np

from oubli.core.jit.aligned import trailing_zeros
from oubli.core.jit.policy import inner, pasted
from oubli.core.jit.targets import amount_of, field_of, value_of
from oubli.core.tree.workspace import CLASS_BITS, DIGIT_BITS, IS_WEIGHED, ORDER, OTHER, SPARE, STRIDE

_MOST_BY_RANK = 192  # samples up to which comparing each with each is fastest
_FEW = 1024  # samples up to which the radix sort takes digits of 8 bits
_FEW_BITS = 8


@pasted
def _largest_key(keys):
    return np.int64(0x7FFFFFFF) if keys.itemsize == 4 else np.int64(0x7FFFFFFFFFFFFFFF)


@pasted
def _load_keys(cells, column, scratch, n):
    """Write the keys of a column to keys[0], and whether a value is missing; returns the bits in which keys differ."""
    values, keys, slots = scratch.values[0], scratch.keys[0], scratch.slots
    column = np.uint64(column)
    for position in range(n):
        values[position] = cells[np.uint64(slots[position]), column] + 0.0  # no negative zero
    largest = _largest_key(keys)
    n_missing = np.int64(0)
    for position in range(n):
        key = np.int64(keys[position])
        is_missing = values[position] != values[position]
        key ^= (key >> 63) & largest
        keys[position] = largest if is_missing else key
        n_missing += np.int64(is_missing)
    scratch.has_missing[column] = n_missing > 0
    first = np.int64(keys[0])
    differing = np.int64(0)
    for position in range(n):
        differing |= np.int64(keys[position]) ^ first
    return differing


@pasted
def _count_smaller(keys, ranks, n):
    """Write to ranks[i] how many keys are below keys[i].

    Over a multiple of 16 places and four keys at a time, so that all of it runs through vector registers.
    """
    n_padded = (n + 15) // 16 * 16
    for i in range(n_padded):
        ranks[np.uint64(i)] = 0
    whole = n // 4 * 4
    for j in range(0, whole, 4):
        a, b, c, d = keys[j], keys[j + 1], keys[j + 2], keys[j + 3]
        for i in range(n_padded):
            key = keys[np.uint64(i)]
            ranks[np.uint64(i)] += np.int32(a < key) + np.int32(b < key) + np.int32(c < key) + np.int32(d < key)
    for j in range(whole, n):
        a = keys[j]
        for i in range(n_padded):
            ranks[np.uint64(i)] += np.int32(a < keys[np.uint64(i)])


@pasted
def _sort_by_rank(keys, ranks, equals, lists, source, target, n):
    """Sort few samples by counting the smaller ones of each; stable. Marks the entries whose value differs."""
    _count_smaller(keys, ranks, n)
    for i in range(n):
        equals[np.uint64(i)] = 0
    for i in range(n):
        rank = np.uint64(ranks[np.uint64(i)])
        n_equal = np.int64(equals[rank])
        equals[rank] = n_equal + 1
        entry = np.int64(lists[np.uint64(source + i)])
        lists[np.uint64(target + np.int64(rank) + n_equal)] = entry | np.int64(n_equal == 0)


@pasted
def _highest_bit(bits, width):
    """Number of the highest of `width` bits that is set; `bits` is not 0."""
    place = width - 1
    while (bits >> place) & 1 == 0:
        place -= 1
    return place


@pasted
def _count_digit(keys, digit, n, shift, mask):
    for value in range(mask + 1):
        digit[value] = 0
    for i in range(n):
        digit[np.uint64((np.int64(keys[i]) >> shift) & mask)] += 1


@pasted
def _start_values(digit, n_values, flip):
    """Turn the counts of a digit into the places where its values begin."""
    total = np.int64(0)
    for value in range(n_values):
        count = np.int64(digit[np.uint64(value ^ flip)])
        digit[np.uint64(value ^ flip)] = total
        total += count


@pasted
def _move(keys, other_keys, digit, lists, source, target, n, shift, mask):
    """Move samples to the places of one digit's values."""
    for i in range(n):
        key = keys[i]
        value = np.uint64((np.int64(key) >> shift) & mask)
        place = np.int64(digit[value])
        digit[value] = place + 1
        other_keys[np.uint64(place)] = key
        lists[np.uint64(target + place)] = lists[np.uint64(source + i)]


@inner
def _sort_by_digits(keys, digits, differing, lists, source, target, other_target, n):
    """Sort samples from keys[0] by their digits, the last one first; stable.

    differing  the bits in which keys differ: the digits are those from the lowest to the highest

    Returns the row of `keys` and the list where they have come to: `source`, `target` or `other_target`.
    """
    row = 0
    if differing == 0:
        return row, source
    width = 8 * keys.itemsize
    low, high = trailing_zeros(np.uint64(differing)), _highest_bit(differing, width)
    most_bits = _FEW_BITS if n <= _FEW else DIGIT_BITS
    n_digits = (high - low + most_bits) // most_bits
    n_bits = (high - low + n_digits) // n_digits
    for d in range(n_digits):
        shift = low + d * n_bits
        n_bits_here = min(n_bits, high + 1 - shift)
        mask = (1 << n_bits_here) - 1
        if (differing >> shift) & mask == 0:
            continue
        _count_digit(keys[row], digits[0], n, shift, mask)
        # Of the digit with the sign, the negative values come first.
        _start_values(digits[0], mask + 1, 1 << (n_bits_here - 1) if shift + n_bits_here == width else 0)
        _move(keys[row], keys[1 - row], digits[0], lists, source, target, n, shift, mask)
        row = 1 - row
        source, target, other_target = target, other_target, target
    return row, source


@pasted
def _write_entries(keys, lists, source, target, n):
    """Mark the entries whose value differs from the one before, and put them in place."""
    previous = keys[0]
    for i in range(n):
        key = keys[i]
        lists[np.uint64(target + i)] = np.int64(lists[np.uint64(source + i)]) | np.int64(key != previous)
        previous = key


@inner
def presort_column(cells, column, scratch, n):
    """Write list `column`: the entries of list ORDER in the order of the column's values."""
    lists, stride = scratch.lists, scratch.state[STRIDE]
    n_columns = cells.shape[1]
    order = (n_columns + ORDER) * stride
    target = column * stride
    differing = _load_keys(cells, column, scratch, n)
    if n <= _MOST_BY_RANK:
        _sort_by_rank(scratch.keys[0], scratch.digits[0], scratch.digits[1], lists, order, target, n)
        return
    row, source = _sort_by_digits(
        scratch.keys,
        scratch.digits,
        differing,
        lists,
        order,
        (n_columns + OTHER) * stride,
        (n_columns + SPARE) * stride,
        n,
    )
    _write_entries(scratch.keys[row], lists, source, target, n)


@inner
def list_order(samples, scratch, n):
    """Write list ORDER, an entry for each position, and what the samples count for."""
    stride, class_bits = scratch.state[STRIDE], scratch.state[CLASS_BITS]
    order = (samples.cells.shape[1] + ORDER) * stride
    fields = np.int64(0)
    for position in range(n):
        target = samples.targets[scratch.slots[position]]
        field = field_of(target)
        fields |= field
        scratch.amounts[position] = amount_of(field)
        scratch.lists[order + position] = (position << (class_bits + 1)) | (value_of(target) << 1)
    scratch.state[IS_WEIGHED] = np.int64(fields != 0)


@pasted
def place_side(lists, start, end, class_bits, sides, side):
    """Send the samples of a range to one side."""
    for i in range(start, end):
        sides[np.uint64(np.int64(lists[np.uint64(i)]) >> (class_bits + 1))] = np.uint8(side)


@inner
def place_left(lists, start, end, class_bits, sides, left):
    """Send the samples of a range left, and count their classes."""
    place_side(lists, start, end, class_bits, sides, 0)
    mask = (1 << class_bits) - 1
    for i in range(start, end):
        left[(np.int64(lists[i]) >> 1) & mask] += 1


@inner
def place_by_category(lists, codes, category, start, end, class_bits, sides, left):
    """Send the samples of one local category left and the others right, and count those to the left.

    codes  start of the list with the local category of each position
    """
    mask = (1 << class_bits) - 1
    for i in range(start, end):
        entry = np.int64(lists[i])
        position = entry >> (class_bits + 1)
        is_left = np.int64(np.int64(lists[codes + position]) == category)
        sides[position] = np.uint8(1 - is_left)
        left[(entry >> 1) & mask] += is_left


@inner
def weigh_left(scratch, start, end):
    """Count the samples of a range of list ORDER that go left again, by what they count for."""
    class_bits, left = scratch.state[CLASS_BITS], scratch.left
    mask = (1 << class_bits) - 1
    left[:] = 0
    for i in range(start, end):
        entry = np.int64(scratch.lists[i])
        position = entry >> (class_bits + 1)
        left[(entry >> 1) & mask] += (1 - np.int64(scratch.sides[position])) * np.int64(scratch.amounts[position])


@inner
def divide(lists, start, end, class_bits, sides, other):
    """Put the entries that go left first and the others behind them; returns how many go left.

    other  start of a list to be used as room for the right side
    """
    shift = class_bits + 1
    left_at, right_at = start, other
    left_bit = np.int64(0)
    right_bit = np.int64(0)
    for i in range(start, end):
        entry = np.int64(lists[np.uint64(i)])
        right = np.int64(sides[np.uint64(entry >> shift)])
        left_bit |= entry & 1
        right_bit |= entry & 1
        # Both sides are written; only one moves on. No branch, for the sides are as good as random.
        lists[np.uint64(left_at)] = entry | left_bit
        lists[np.uint64(right_at)] = entry | right_bit
        left_at += 1 - right
        right_at += right
        left_bit &= -right
        right_bit &= right - 1
    for i in range(right_at - other):
        lists[np.uint64(left_at + i)] = lists[np.uint64(other + i)]
    return left_at - start


@inner
def keep_side(lists, start, end, class_bits, sides, side):
    """Move the entries of one side to the start, and forget the others."""
    shift = class_bits + 1
    at = start
    bit = np.int64(0)
    for i in range(start, end):
        entry = np.int64(lists[np.uint64(i)])
        kept = np.int64(np.int64(sides[np.uint64(entry >> shift)]) == side)
        bit |= entry & 1
        lists[np.uint64(at)] = entry | bit
        at += kept
        bit &= kept - 1
