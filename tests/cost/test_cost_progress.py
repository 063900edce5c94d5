"""What is said on standard error while intervals are measured."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from chaos.cost.progress import IntervalsProgress, said_time
from chaos.cost.values import Run
from trainers.events import AttemptStarted, StepDone


def test_a_line_for_every_run_where_there_is_no_terminal() -> None:
    out = StringIO()
    with IntervalsProgress(Console(file=out, width=200, markup=False, highlight=False)) as progress:
        watch = progress.watch
        watch.begin(4, 1)
        watch.run("every5-kills-0", 1)
        watch.event(AttemptStarted(1))
        watch.event(StepDone(1, 0, 3, 0.5))
        watch.done(Run("every5-kills-0", 5, "f", 1, "valid", "", 12.4), 130.0)
        watch.done(Run("every5-kills-1", 5, "f", 2, "invalid", "3 no gaps: w", 12.4), 40.0)
        watch.done(Run("every5-kills-2", 5, "f", 2, "valid", "", 12.4), 0.0)
    assert out.getvalue().splitlines() == [
        "1 of 4 runs were done before",
        "2 of 4 runs: every5-kills-0, 1 kill: valid, 12 s; about 2 min left",
        "3 of 4 runs: every5-kills-1, 2 kills: invalid: 3 no gaps: w, 12 s; less than a minute left",
        "4 of 4 runs: every5-kills-2, 2 kills: valid, 12 s",
    ]


def test_on_a_terminal_the_step_is_shown_and_only_what_failed_stays() -> None:
    out = StringIO()
    console = Console(file=out, width=120, force_terminal=True, markup=False, highlight=False, color_system=None)
    with IntervalsProgress(console) as progress:
        watch = progress.watch
        watch.begin(2, 0)
        watch.run("every5-undisturbed", 0)
        watch.event(AttemptStarted(0))
        watch.event(StepDone(0, 0, 3, 0.5))
        watch.done(Run("every5-undisturbed", 5, "f", 0, "valid", "", 12.4), 4000.0)
        watch.run("every5-kills-0", 3)
    assert "every5-kills-0, 3 kills; about 1.1 h left" in out.getvalue()
    assert "every5-undisturbed, no kill: valid" not in out.getvalue()


@pytest.mark.parametrize(
    ("seconds", "said"), [(59.0, "less than a minute"), (61.0, "about 1 min"), (7200.0, "about 2.0 h")]
)
def test_times(seconds: float, said: str) -> None:
    assert said_time(seconds) == said
