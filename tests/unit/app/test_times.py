from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oubli.app.times import LARGEST_LEAP_MS, Clock

DAY = 86_400_000
NOON = 20_000 * DAY


class Machine:
    """A machine whose clock can be set."""

    def __init__(self, wall: int = NOON) -> None:
        self.wall = wall
        self.elapsed = 5_000

    def clock(self, highest: int | None = None) -> Clock:
        return Clock(highest, wall_ms=lambda: self.wall, elapsed_ms=lambda: self.elapsed)

    def wait(self, ms: int) -> None:
        self.wall += ms
        self.elapsed += ms


def test_time_goes_by():
    machine = Machine()
    clock = machine.clock()
    assert clock.now_ms() == NOON
    machine.wait(1234)
    assert clock.now_ms() == NOON + 1234
    machine.wait(400 * DAY)
    assert clock.now_ms() == NOON + 1234 + 400 * DAY
    assert clock.paused is None


def test_time_stands_still_while_the_clock_is_behind():
    machine = Machine()
    clock = machine.clock()
    machine.wait(1000)
    assert clock.now_ms() == NOON + 1000
    machine.wall -= 3 * DAY
    assert clock.now_ms() == NOON + 1000
    machine.wait(DAY)
    assert clock.now_ms() == NOON + 1000
    machine.wait(2 * DAY + 7)
    assert clock.now_ms() == NOON + 1007
    assert clock.paused is None


def test_a_clock_that_was_set_back_may_be_set_right_again():
    machine = Machine()
    clock = machine.clock()
    machine.wall -= 3 * DAY
    machine.wait(1000)
    clock.now_ms()
    machine.wall += 3 * DAY
    assert clock.now_ms() == NOON + 1000
    assert clock.paused is None


def test_time_begins_at_what_was_written_down():
    machine = Machine()
    clock = machine.clock(NOON + 5 * DAY)
    assert clock.now_ms() == NOON + 5 * DAY
    assert clock.paused is None
    machine.wait(1000)
    assert clock.now_ms() == NOON + 5 * DAY
    machine.wall += 5 * DAY  # the clock was wrong at the start, and is set right
    assert clock.now_ms() == NOON + 5 * DAY + 1000
    assert clock.paused is None


def test_a_day_ahead_is_no_leap():
    machine = Machine()
    clock = machine.clock()
    machine.wall += LARGEST_LEAP_MS
    assert clock.now_ms() == NOON + LARGEST_LEAP_MS
    assert clock.paused is None
    assert Machine(NOON).clock(NOON - LARGEST_LEAP_MS).paused is None


def test_a_leap_pauses_until_it_is_confirmed():
    machine = Machine()
    clock = machine.clock()
    machine.wall += 3 * DAY
    machine.wait(1000)
    assert clock.now_ms() == NOON + 1000
    assert "3.0 days" in str(clock.paused)
    machine.wait(60_000)
    assert clock.now_ms() == NOON + 61_000
    clock.confirm()
    assert clock.paused is None
    assert clock.now_ms() == NOON + 3 * DAY + 61_000
    machine.wall += 2 * DAY
    assert clock.paused is not None


def test_a_leap_is_seen_by_whoever_asks_whether_there_was_one():
    machine = Machine()
    clock = machine.clock()
    machine.wall += 30 * DAY
    assert "30.0 days" in str(clock.paused)


def test_small_steps_add_up_to_a_leap():
    machine = Machine()
    clock = machine.clock()
    machine.wall += DAY // 2
    assert clock.now_ms() == NOON + DAY // 2
    machine.wall += DAY // 2 + 1
    assert clock.paused is not None
    assert clock.now_ms() == NOON + DAY // 2


def test_a_leap_that_was_taken_back_is_confirmed_all_the_same():
    machine = Machine()
    clock = machine.clock()
    machine.wall += 3 * DAY
    assert clock.paused is not None
    machine.wall -= 3 * DAY
    machine.wait(1000)
    assert clock.paused is not None
    clock.confirm()
    assert clock.paused is None
    assert clock.now_ms() == NOON + 1000


def test_a_long_rest_is_a_leap_and_a_restart_confirms_nothing():
    machine = Machine()
    clock = machine.clock(NOON - 2 * DAY)
    assert "2.0 days" in str(clock.paused)
    assert clock.now_ms() == NOON - 2 * DAY
    machine.wait(500)
    written = clock.now_ms()
    assert written == NOON - 2 * DAY + 500
    again = machine.clock(written)
    assert again.paused is not None
    again.confirm()
    assert again.now_ms() == NOON + 500
    assert machine.clock(again.now_ms()).paused is None


def test_the_first_start_has_nothing_to_compare_with():
    clock = Machine().clock(None)
    assert clock.paused is None
    assert clock.now_ms() == NOON


def test_a_witnessed_time_counts_as_given():
    machine = Machine()
    clock = machine.clock()
    clock.witness(NOON + 40 * DAY)
    assert clock.now_ms() == NOON + 40 * DAY
    clock.witness(NOON)
    assert clock.now_ms() == NOON + 40 * DAY
    machine.wall += 40 * DAY
    machine.wait(10)
    assert clock.now_ms() == NOON + 40 * DAY + 10
    assert clock.paused is None


def test_the_clock_of_this_machine():
    clock = Clock()
    first = clock.now_ms()
    assert first > 1_700_000_000_000
    assert clock.now_ms() >= first
    assert clock.paused is None


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
        self.machine.wall += ms

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


def test_a_clock_that_is_behind_what_was_written_down_says_so():
    wall, elapsed = [1_000_000_000], [0]
    clock = Clock(1_000_000_000 + 3 * 86_400_000, wall_ms=lambda: wall[0], elapsed_ms=lambda: elapsed[0])
    assert clock.behind is not None
    assert "3.0 days behind" in clock.behind
    assert "set the clock" in clock.behind
    wall[0] += 3 * 86_400_000
    assert clock.behind is None
    wall[0] -= 3_600_000  # while it runs
    assert "0.0 days" not in str(clock.behind)
    assert "1.0 hours behind" in str(clock.behind)
    wall[0] += 3_600_000 - 30_000  # a correction of half a minute is nothing to tell
    assert clock.behind is None
