"""Times and periods as they are written; the clock, whatever is done to that of the machine."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oubli.app.times import LARGEST_LEAP_MS, TimeError, parse_future, parse_period, parse_time, to_text
from tests.unit.app.service.simulated import DAY, NOON, Machine


def test_a_time_with_its_zone():
    for text, moment in (
        *(("1970-01-01T00:00:00Z", 0), ("1970-01-01T01:00:00+01:00", 0), ("1970-01-01T00:00:00-00:00", 0)),
        *(("1970-01-01t00:00:01z", 1000), ("1970-01-01T00:00:00.5Z", 500), ("1970-01-01T00:00:00.1239Z", 123)),
        *(("1969-12-31T19:30:00.007-04:30", 7), ("1969-12-31T23:59:59.750Z", -250)),
        *(("2028-02-29T12:00:00Z", 1835438400000), ("9999-12-31T23:59:59.999Z", 253402300799999)),
    ):
        assert parse_time(text) == moment


WRONG = (
    None, True, 1893456000, 1893456000000, [], "", {"SECRET": 1}, "never SECRET", "2030-01-31T12:00:00Z SECRET",
    "2030-01-31", "2030-01-31 12:00:00Z", "2030-01-31T12:00Z", "2030-01-31T12:00:00.Z", "2030-01-31T12:00:00,5Z",
    "2030-01-31T12:00:00 Z", "2030-01-31T12:00:00+0100", "2030-01-31T12:00:00+01", "2030-01-31T12:00:00+24:00",
    "2030-01-31T12:00:00Z\n", " 2030-01-31T12:00:00Z", "20300131T120000Z", "2030-W05-4T12:00:00Z",
    "2030-1-31T12:00:00Z", "+2030-01-31T12:00:00Z", "\uff12030-01-31T12:00:00Z", "2030-02-30T12:00:00Z",
    "2029-02-29T12:00:00Z", "2030-13-01T12:00:00Z", "0000-01-01T12:00:00Z", "0001-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59-01:00", "2030-01-31T24:00:00Z", "2030-01-31T12:60:00Z", "2030-01-31T12:00:60Z",
)  # fmt: skip
ZONELESS = ("2030-01-31T12:00:00", "2030-01-31T12:00:00.5")


def test_everything_else_is_refused_without_being_repeated():
    for value in (*WRONG, *ZONELESS):
        with pytest.raises(TimeError, match="zone" if value in ZONELESS else "must ") as caught:
            parse_time(value)
        assert caught.value.rule.startswith("must ")
        assert "SECRET" not in caught.value.rule


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - the zone is drawn apart
    st.integers(-23 * 60, 23 * 60),
)
def test_what_is_written_is_read(naive, minutes):
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert (parse_time(moment.isoformat()), parse_time(to_text(expected))) == (expected, expected)


def test_the_future_is_later_than_now():
    now = parse_time("2030-01-01T00:00:00Z")
    assert parse_future("2030-01-01T00:00:00.001Z", now) == now + 1
    assert parse_future("2030-01-01T01:00:01+01:00", now) == now + 1000
    past = ("2030-01-01T00:00:00Z", "2030-01-01T00:30:00+01:00", "1970-01-01T00:00:00Z")
    for text, words in (*((text, "future") for text in past), ("2031-01-01T00:00:00", "zone")):
        with pytest.raises(TimeError, match=words):
            parse_future(text, now)


def test_periods():
    for text, seconds in (("1s", 1), ("90d", 90 * 86_400), ("12h", 43_200), ("5m", 300), ("2w", 1_209_600)):
        assert parse_period(text) == seconds * 1000
    for text in ("", "d", "90", "0d", "-1d", "1.5h", "1y", "90 d", "1d2h", "101000w", "1D", "\u0661d"):
        with pytest.raises(TimeError, match="unit"):
            parse_period(text)


# --- the clock


CONFIRM = "confirm"
# The time that was written down before the start, and steps: what elapses, how the clock is set meanwhile, what the
# time is then, and why it is paused.
HISTORIES = {
    "time goes by": (None, (0, 0, 0, ""), (1234, 0, 1234, ""), (400 * DAY, 0, 1234 + 400 * DAY, "")),
    "it stands still while the clock is behind": (
        *(None, (1000, 0, 1000, ""), (0, -3 * DAY, 1000, ""), (DAY, 0, 1000, "")),
        *((2 * DAY, 0, 1000, ""), (7, 0, 1007, "")),
    ),
    "a clock that was set back may be set right again": (None, (1000, -3 * DAY, 0, ""), (0, 3 * DAY, 1000, "")),
    "it begins at what was written down, and the clock is set right": (
        *(5 * DAY, (0, 0, 5 * DAY, ""), (1000, 0, 5 * DAY, ""), (0, 5 * DAY, 5 * DAY + 1000, "")),
    ),
    "a day ahead is no leap": (None, (0, LARGEST_LEAP_MS, LARGEST_LEAP_MS, "")),
    "a day of rest is no leap": (-LARGEST_LEAP_MS, (0, 0, 0, "")),
    "a leap pauses until it is confirmed": (
        *(None, (1000, 3 * DAY, 1000, "3.0 days"), (60_000, 0, 61_000, "3.0 days"), CONFIRM),
        *((0, 0, 3 * DAY + 61_000, ""), (0, 2 * DAY, 3 * DAY + 61_000, "2.0 days")),
    ),
    "small steps add up to a leap": (*(None, (0, DAY // 2, DAY // 2, ""), (0, DAY // 2 + 1, DAY // 2, "1.0 days")),),
    "a leap that was taken back is confirmed all the same": (
        *(None, (0, 3 * DAY, 0, "3.0 days"), (1000, -3 * DAY, 1000, "days"), CONFIRM, (0, 0, 1000, "")),
    ),
    "a long rest is a leap": (
        *(-2 * DAY, (0, 0, -2 * DAY, "2.0 days"), (500, 0, 500 - 2 * DAY, "2.0 days"), CONFIRM, (0, 0, 500, "")),
    ),
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_the_clock(history):
    machine = Machine()
    highest, *steps = history
    clock = machine.clock(None if highest is None else NOON + highest)
    for step in steps:
        if step == CONFIRM:
            clock.confirm()
            continue
        elapsed, drift, now, paused = step
        machine.wait(elapsed, drift)
        assert paused in clock.paused if paused else clock.paused is None, step
        assert clock.now_ms() == NOON + now, step


def test_a_key_ends_when_its_time_has_elapsed():
    machine = Machine()
    clock, end = machine.clock(), NOON + DAY
    machine.wait(DAY // 2, -DAY)
    assert clock.latest_ms() < end
    machine.wait(DAY // 2)
    assert clock.latest_ms() >= end, "the clock is still behind"
    machine.wait(0, 2 * DAY)
    assert clock.latest_ms() == NOON + 2 * DAY, "a clock that is ahead is believed while it is"
    machine.wait(0, -DAY)
    assert clock.latest_ms() == NOON + DAY


def test_a_clock_that_is_behind_what_was_written_down_says_so():
    machine = Machine()
    clock = machine.clock(NOON + 3 * DAY)
    assert clock.behind is not None
    assert all(part in clock.behind for part in ("3.0 days behind", "set the clock"))
    machine.wait(0, 3 * DAY)
    assert clock.behind is None
    machine.wait(0, -3_600_000)  # while it runs
    assert "1.0 hours behind" in str(clock.behind)
    machine.wait(0, 3_600_000 - 30_000)  # a correction of half a minute is nothing to tell
    assert clock.behind is None


class Clocks(RuleBasedStateMachine):
    """Whatever is done to the machine's clock, and however often the server starts."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.clock = self.machine.clock()
        self.highest = 0

    @rule(ms=st.integers(0, 10 * DAY))
    def wait(self, ms: int) -> None:
        self.machine.wait(ms)

    @rule(ms=st.integers(-10 * DAY, 10 * DAY))
    def set(self, ms: int) -> None:
        self.machine.wait(0, ms)

    @rule(ms=st.integers(-DAY, DAY))
    def witness(self, ms: int) -> None:
        self.clock.witness(self.highest + ms)

    @rule()
    def confirm(self) -> None:
        self.clock.confirm()
        assert self.clock.paused is None
        assert self.clock.now_ms() >= self.machine.wall

    @rule(rest=st.integers(0, 10 * DAY))
    def restart(self, rest: int) -> None:
        written = self.clock.now_ms()
        self.machine.wait(rest)
        self.machine.elapsed = 0
        self.clock = self.machine.clock(written)
        assert (self.clock.paused is not None) == (self.machine.wall - written > LARGEST_LEAP_MS)

    @precondition(lambda self: self.clock.paused is None)
    @rule()
    def follows_the_machine(self) -> None:
        assert self.clock.now_ms() >= self.machine.wall

    @invariant()
    def never_runs_backwards(self) -> None:
        now = self.clock.now_ms()
        assert now >= self.highest
        self.highest = now


Clocks.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestClocks = Clocks.TestCase
