"""exp, log, sigmoid and softmax by + - * / in a fixed order, so that every machine gives the same bits."""

import math
from collections.abc import Sequence

LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # 33 bits of ln 2
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # the rest


def exp(x: float) -> float:
    """e^x = 2^k e^r with x = k ln 2 + r; e^r by its series up to r^13. Arguments end at +-700."""
    x = min(max(x, -700.0), 700.0)
    k = math.floor(x * 1.4426950408889634 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    series = 1.0 + r / 13.0
    for n in reversed(range(1, 13)):
        series = 1.0 + r * series / n  # Horner: 1 + r/1 (1 + r/2 (1 + ... (1 + r/13)))
    return math.ldexp(series, k)


def log(x: float) -> float:
    """ln x = k ln 2 + ln m with m around 1; ln m = 2 (z + z^3/3 + ... + z^25/25), z = (m - 1) / (m + 1)."""
    m, k = math.frexp(x)  # 1/2 <= m < 1
    if m < 0.7071067811865476:
        m, k = 2.0 * m, k - 1
    z = (m - 1.0) / (m + 1.0)
    series = 1.0 / 25.0
    for power in range(23, 0, -2):
        series = series * (z * z) + 1.0 / power
    return k * LN2_HIGH + (k * LN2_LOW + 2.0 * z * series)


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), by the exponential that is at most 1."""
    if x >= 0.0:
        return 1.0 / (1.0 + exp(-x))
    return exp(x) / (1.0 + exp(x))


def softmax(scores: Sequence[float]) -> list[float]:
    """e^(x_k - max) over their sum, taken from the first to the last."""
    powers = [exp(x - max(scores)) for x in scores]
    total = 0.0
    for power in powers:
        total += power
    return [power / total for power in powers]
