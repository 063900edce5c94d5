"""What a sweep shows while it runs: every trial under way on a terminal, lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from chaos.sweep.progress import SweepProgress
from chaos.sweep.results import Ending, Result
from chaos.sweep.trials import Trial

FIRST, SECOND, THIRD = (Trial(f"rank{n}/step.end/1", (), ()) for n in range(3))


def result(trial: Trial, ending: Ending = Ending.VALID) -> Result:
    return Result(trial.name, "step.end", "rank", 0, ending, 1, 1, True, (), 1.0, "" if ending == "valid" else "w\x07")


@pytest.fixture
def shown() -> io.StringIO:
    return io.StringIO()


def test_a_terminal_shows_all_trials_under_way(shown: io.StringIO) -> None:
    with SweepProgress(Console(file=shown, force_terminal=True, width=160)) as progress:
        progress.begin(3, 0)
        progress.trial(FIRST)
        progress.trial(SECOND)
        progress.result(result(FIRST))
        progress.trial(THIRD)
        shown.truncate(0)
        progress._bar.refresh()
        assert "rank1/step.end/1  rank2/step.end/1" in shown.getvalue()
        assert "rank0/step.end/1" not in shown.getvalue()
        assert "1/3" in shown.getvalue()


def test_elsewhere_a_failure_is_a_line_at_once_and_every_twentieth_trial_another(shown: io.StringIO) -> None:
    with SweepProgress(Console(file=shown, width=40)) as progress:
        progress.begin(30, 8)
        progress.result(result(FIRST, Ending.UNKNOWN))
        for _ in range(15):
            progress.trial(SECOND)
            progress.result(result(SECOND))
    assert shown.getvalue().splitlines() == [
        "30 trials, 8 of them done before", "rank0/step.end/1: unknown: w\\x07", "20 of 30 trials, 1 failed",
    ]  # fmt: skip
