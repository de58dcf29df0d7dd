"""How ours and the peers look in the plots of streams."""

from __future__ import annotations

from typing import Any

from benchmarks.streams.learners import ARF, EFDT, HAT

GREENS = ("#0b6e4f", "#3fa37c", "#7bc8a4", "#b5e2cf")
_PEERS = {EFDT: ("#d1495b", "s"), HAT: ("#edae49", "D"), ARF: ("#30638e", "^")}
_OURS = {"window 100": 0, "window 300": 1, "window 1000": 2, "incremental": 3}


def style_of(name: str) -> dict[str, Any]:
    """Colour and marker of a learner."""
    if name in _PEERS:
        colour, marker = _PEERS[name]
        return {"color": colour, "marker": marker}
    if name.startswith("oubli forest"):
        return {"color": GREENS[0], "marker": "P"}
    return {"color": GREENS[_OURS[name.removeprefix("oubli, ")]], "marker": "o", "markeredgecolor": GREENS[0]}


def logarithmic(axis: Any) -> None:
    """Make the x axis logarithmic, with plain numbers at 1, 2 and 5 of each power of ten."""
    axis.set_xscale("log")
    low, high = axis.get_xlim()
    ticks = [digit * 10.0**power for power in range(-3, 8) for digit in (1, 2, 5)]
    shown = [tick for tick in ticks if low <= tick <= high]
    axis.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axis.minorticks_off()
