import io

from rich.console import Console

from oubli.app.cli.load_test import viewing
from oubli.client.load.plan import Step
from oubli.client.load.records import Effort, Measured, Operation, Record


def shown(*, terminal: bool) -> str:
    text = io.StringIO()
    record = Record()
    record.operations["predict"] = Operation()
    record.operations["predict"].statuses.update({200: 40, 503: 2})
    record.operations["predict"].durations.record(1_500_000)
    with viewing(Console(file=text, force_terminal=terminal, width=120, color_system=None)) as show:
        for seconds in (1.0, 2.0):
            show(Measured(Step(20.0, 8, 10.0), record, [Effort(1.0, 0.5)], {}, seconds), 0)
    return text.getvalue()


def test_a_terminal_shows_the_step_so_far_and_without_one_nothing_is_drawn() -> None:
    text = shown(terminal=True)
    assert all(part in text for part in ("20 requests/s: 2 of 10 s", "client busy 50%"))
    assert all(part in text for part in ("predict", "p99.9", "1.50", "refused"))
    assert "p99" not in shown(terminal=False)
