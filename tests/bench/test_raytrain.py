"""What `bench_raytrain.py` makes of marks, verdicts and times. Nothing is timed here."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from raytrain_marks import Marks, Recovery, read_marks, recoveries, strikes
from raytrain_plan import Failed, Job, compared, fault, kills_between, named_parts, recovery, require_planned
from raytrain_summary import Row, ratio, render, summary
from rich.console import Console

S = 1_000_000_000
JOB = Job("tiny", {}, 7, 2, 16, 4, 180, 20, 3, 3, kills_between(2, 60, 20, 2))


def mark(what: str, at_s: float, **fields: Any) -> dict[str, Any]:
    return {"what": what, "t_ns": int(at_s * S), **fields}


def history() -> list[dict[str, Any]]:
    """Two ranks; rank 1 dies in the 51st update, 10.0 s; the group comes back from step 40."""
    return [
        *(mark("step", 8 + step / 100, rank=rank, attempt=0, step=step) for step in (39, 40, 50) for rank in (0, 1)),
        mark("struck", 10.0, attempt=0, rank=1, step=50, microbatch=3),
        mark("step", 10.5, rank=0, attempt=0, step=50),  # of the old group, after the kill
        mark("detected", 11.5, attempt=1, ranks=[1]),
        mark("detected", 11.6, attempt=1, ranks=[0, 1]),
        mark("up", 15.0, rank=0, attempt=1), mark("up", 15.5, rank=1, attempt=1),
        mark("restored", 16.0, rank=1, attempt=1, step=40), mark("restored", 16.25, rank=0, attempt=1, step=40),
        mark("step", 17.0, rank=1, attempt=1, step=41), mark("step", 17.1, rank=0, attempt=1, step=41),
        mark("step", 19.0, rank=0, attempt=1, step=50), mark("step", 19.5, rank=1, attempt=1, step=50),
    ]  # fmt: skip


def test_instants_count_from_the_kill_and_wait_for_the_last_rank() -> None:
    assert recoveries(history(), 2) == [Recovery(1.5, 5.5, 6.25, 7.0, 9.0, 40, 10)]


@pytest.mark.parametrize("without", ["detected", "up", "restored"])
def test_a_recovery_that_is_not_whole_is_refused(without: str) -> None:
    rest = [each for each in history() if each["what"] != without or each.get("rank") == 1]
    rest = [each for each in rest if each["what"] != without or without != "detected"]
    with pytest.raises(ValueError, match="attempt 1"):
        recoveries(rest, 2)


def test_ranks_that_restored_different_steps_are_refused() -> None:
    changed = [each | {"step": 20} if each["what"] == "restored" and each["rank"] == 0 else each for each in history()]
    with pytest.raises(ValueError, match="different steps"):
        recoveries(changed, 2)


def test_a_strike_leaves_its_mark_and_comes_once(tmp_path: Path) -> None:
    code = "m = Marks(Path()); m.note('step', rank=1, attempt=0, step=3); m.strike(0, rank=1)"
    child = subprocess.Popen([sys.executable, "-c", f"from raytrain_marks import *; {code}"], cwd=tmp_path,
                             env={"PYTHONPATH": str(Path(__file__).parent)})  # fmt: skip
    assert child.wait() == -signal.SIGKILL
    assert strikes(tmp_path) == 1
    with (tmp_path / f"{child.pid}.jsonl").open("a") as file:
        file.write('{"what": "st')  # cut short
    assert [each["what"] for each in read_marks(tmp_path)] == ["step", "struck"]
    with pytest.raises(FileExistsError):
        Marks(tmp_path).strike(0, rank=1)


def test_kills_fall_between_two_saves_and_are_counted_from_the_restored_step() -> None:
    assert JOB.kills == ((50, 0), (110, 1))
    assert [fault(JOB, attempt)["at"]["hit"] for attempt in (0, 1)] == [50 * 4 + 3, (110 - 40) * 4 + 3]
    with pytest.raises(ValueError, match="multiple"):
        kills_between(2, 50, 20, 2)


def test_a_kill_at_another_step_than_planned_is_refused() -> None:
    found = [Recovery(0, 0, 0, 0, 0, 40, 10), Recovery(0, 0, 0, 0, 0, 80, 30)]
    require_planned(JOB, found)  # an older checkpoint and more to redo: the same kill
    with pytest.raises(Failed, match="after \\[50, 109\\]"):
        require_planned(JOB, [found[0], replace(found[1], redone_steps=29)])


def test_a_verdicts_durations_become_instants() -> None:
    verdict = {"detect_s": 0.25, "reacquire_s": 0.5, "load_s": 0.125, "redo_s": 1.0, "first_step_s": 0.9375,
               "restored_step": 40, "redo_steps": 10}  # fmt: skip
    assert recovery(verdict) == Recovery(0.25, 0.75, 0.875, 0.9375, 1.875, 40, 10)


def test_parts_are_compared_rank_by_rank() -> None:
    parts = {"model": "m", "rng.torch": "r", "progress": "p"}
    both = named_parts(0, parts) | named_parts(1, parts)
    assert both == {"model": "m", "0.rng.torch": "r", "1.rng.torch": "r"}
    assert compared(both, dict(both)) == "equal"
    assert compared({**both, "1.rng.torch": "x"}, both) == "differs in 1.rng.torch"
    assert compared({}, {"model": "m"}) == "differs in model"


def test_a_ratio_and_its_interval() -> None:
    exact = ratio([8.0] * 10, [0.5] * 10)
    assert (exact.times, exact.low, exact.high) == (16.0, 16.0, 16.0)
    spread = ratio([6.0, 7.0, 8.0, 9.0, 10.0], [0.4, 0.5, 0.6])
    assert spread.times == 16.0
    assert 6 / 0.6 <= spread.low < 16.0 < spread.high <= 10 / 0.4
    assert spread == ratio([6.0, 7.0, 8.0, 9.0, 10.0], [0.4, 0.5, 0.6])  # the same seed


@pytest.mark.parametrize(("warm_s", "met"), [(0.5, True), (0.6, False)])
def test_the_aim_is_judged_against_ray_train_with_its_defaults(warm_s: float, met: bool) -> None:
    def row(name: str, first_step_s: float, ended: str = "equal") -> Row:
        made = Row(name, {"setting": "value"})
        made.add([Recovery(0.1, 0.2, 0.3, first_step_s, 9.0, 40, redone) for redone in (10, 20, 10)], ended)
        return made

    rows = [row("Ray Train", 8.0), row("Ray Train, tuned", 6.0, "differs in model"), row("own, warm", warm_s)]
    result = json.loads(json.dumps(summary(rows, {"steps": 180}, "equal")))
    assert result["aim_met"] is met
    assert [each["kills"] for each in result["rows"]] == [3, 3, 3]
    assert result["rows"][0]["redone_steps"] == [10, 10, 20]
    assert result["rows"][2]["slower_than_warm"]["times"] == 1.0
    console = Console(file=io.StringIO(), width=200)
    console.print(render(result))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("aim 15 times: met" in text) is met
    assert "10 to 20" in text
    assert "Ray Train, tuned: differs in model" in text
    assert f"{8.0 / warm_s:.1f} times faster" in text
