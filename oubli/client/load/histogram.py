"""Durations in buckets whose width grows with them, as HdrHistogram has them.

A duration below 256 ns has a bucket of its own. Above, each power of two is divided into 128 buckets, so that a
percentile is at most 1/128 above the true one, and never below. Histograms with the same buckets are added by adding
counts: the percentiles of several processes are those of all durations together. (`hdrhistogram` does the same, but
ships no types, and brings `setuptools` and `pbr` to every installation.)
"""

from __future__ import annotations

import math
from typing import Any

_BITS = 7  # 2**7 buckets for each power of two


class Histogram:
    """Durations in nanoseconds."""

    __slots__ = ("counts", "longest", "n", "total")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.n = 0
        self.total = 0
        self.longest = 0

    def record(self, nanoseconds: int) -> None:
        """Take in one duration; one below zero, as clocks may have it, is zero."""
        nanoseconds = max(nanoseconds, 0)
        shift = max(0, nanoseconds.bit_length() - _BITS - 1)
        bucket = (shift << _BITS) + (nanoseconds >> shift)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1
        self.n += 1
        self.total += nanoseconds
        if nanoseconds > self.longest:
            self.longest = nanoseconds

    def add(self, other: Histogram) -> None:
        """Take in all durations of another one."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.n += other.n
        self.total += other.total
        self.longest = max(self.longest, other.longest)

    def percentile(self, percent: float) -> int:
        """The shortest time within which so many percent of the durations lie; 0 when there are none."""
        rank = max(1, math.ceil(self.n * percent / 100))
        for bucket in sorted(self.counts):
            rank -= self.counts[bucket]
            if rank <= 0:
                return min(_upper_end(bucket), self.longest)
        return self.longest

    @property
    def mean(self) -> float:
        """The mean; 0 when there are none."""
        return self.total / self.n if self.n else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return something that JSON can hold."""
        return {"counts": list(self.counts.items()), "n": self.n, "total": self.total, "longest": self.longest}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Histogram:
        """Return what `to_json` was called on."""
        found = cls()
        found.counts = {int(bucket): int(count) for bucket, count in content["counts"]}
        found.n, found.total, found.longest = content["n"], content["total"], content["longest"]
        return found


def _upper_end(bucket: int) -> int:
    """The longest duration of a bucket."""
    shift = max(0, (bucket >> _BITS) - 1)
    return ((bucket - (shift << _BITS) + 1) << shift) - 1
