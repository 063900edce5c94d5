"""What a soak draws, and what it takes for a leak; its runs on Ray are `killpoint soak`'s own affair."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from chaos.experiment import packaged_experiment, parse_experiment
from chaos.sweep.soak import KILLS_A_RUN, Footprint, Soaked, _slope, draw

RUN = packaged_experiment("soak.yaml").run
BEFORE = Footprint(3, 20, 5, 1 << 20)


def soaked(verdict: str, after: Footprint) -> Soaked:
    swept: Any = SimpleNamespace(summary=SimpleNamespace(verdict=verdict))
    return Soaked(swept, 1, BEFORE, after, 0.0)


def test_so_many_kills_are_drawn_one_an_attempt_and_each_run_can_be_read() -> None:
    trials = list(draw(RUN, 12, 1))
    assert [len(trial.faults) for trial in trials] == [KILLS_A_RUN, KILLS_A_RUN, 2]
    assert len({trial.name for trial in trials}) == 3
    for trial in trials:
        assert [fault["at"]["attempt"] for fault in trial.faults] == list(range(len(trial.faults)))
        text = yaml.safe_dump({"run": RUN.model_dump(mode="json"), "faults": list(trial.faults)})
        assert len(parse_experiment(text).faults) == len(trial.faults) < RUN.max_attempts
    assert {fault["at"]["role"] for trial in draw(RUN, 60, 1) for fault in trial.faults} == {"rank", "committer"}
    assert trials == list(draw(RUN, 12, 1)) != list(draw(RUN, 12, 2))


@pytest.mark.parametrize("name", ["processes", "shared"])
def test_what_is_left_behind_makes_a_valid_soak_invalid(name: str) -> None:
    after = replace(BEFORE, **{name: getattr(BEFORE, name) + 2})
    assert soaked("valid", after).leaks == [f"2 {name} left"]
    assert [soaked(verdict, after).verdict for verdict in ("valid", "unknown")] == ["invalid", "unknown"]
    assert soaked("valid", BEFORE).verdict == "valid"


def test_handles_are_judged_by_their_growth() -> None:
    more = replace(BEFORE, handles=31)
    assert soaked("valid", more).verdict == "valid"
    growing = replace(soaked("valid", more), handles_a_run=5.0)
    assert (growing.verdict, growing.leaks) == ("invalid", ["5.00 more file handles a run"])


def test_memory_that_grows_over_many_runs_is_a_leak() -> None:
    growing = replace(soaked("valid", BEFORE), growth_bytes_a_run=100 * 1024, runs=50)
    assert (growing.verdict, growing.leaks) == ("invalid", ["100.0 KiB more memory a run"])
    assert replace(growing, runs=49).verdict == "valid"
    assert replace(growing, growth_bytes_a_run=60 * 1024).verdict == "valid"


def test_the_growth_of_memory_is_a_slope() -> None:
    assert _slope([10, 13, 16, 19]) == pytest.approx(3.0)
    assert _slope([7]) == _slope([5, 5, 5]) == 0.0
