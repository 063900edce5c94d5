"""Invariant 3 in the ranks' own record: updates that were repeated, left out or out of turn, and their samples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from audit_files import bodies, rechain
from judging import Judge
from simulated_run import F0, Settings, Simulation, one_kill, two_kills

from chaos.audit import audit_run

Bodies = list[dict[str, Any]]


def rewrite(run: Simulation, attempt: int, rank: int, change: Callable[[Bodies, list[int]], None]) -> str:
    """Changes the history of the process that trained as this rank; at: where its steps of this attempt stand.

    Heads of it that others recorded no longer fit, so invariant 10 is unknown: the order is judged all the same.
    """
    for path in sorted((run.folder / "history").glob("worker-*.jsonl")):
        lines = bodies(path)
        at = [n for n, b in enumerate(lines) if (b["event"], b["attempt"], b.get("rank")) == ("step", attempt, rank)]
        if at:
            change(lines, at)
            rechain(path, lines)
            return path.name
    raise AssertionError


def repeat(number: int) -> Callable[[Bodies, list[int]], None]:
    def change(lines: Bodies, at: list[int]) -> None:
        again = copy.deepcopy(lines[at[number]])
        again["ids"] = "xxh3-128:" + "0" * 32
        lines.insert(at[number], again)

    return change


def steps_first(*steps: int) -> Callable[[Bodies, list[int]], None]:
    def change(lines: Bodies, at: list[int]) -> None:
        lines[at[0] : at[0]] = [{**lines[at[0]], "step": step, "samples_seen": 8 * step} for step in steps]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (repeat(1), "rank 0 of attempt 2 trained step 8 after step 8, where 9 was next"),
        (steps_first(5, 6), "rank 0 of attempt 2 trained step 5 after restoring step 6, where 7 was next"),
        (steps_first(11), "rank 0 of attempt 2 trained step 11 after restoring step 6"),
        (lambda lines, at: lines.pop(at[0]), "rank 0 of attempt 2 trained step 8 after restoring step 6"),
        (lambda lines, at: lines.pop(at[2]), "rank 0 of attempt 2 trained step 10 after step 8, where 9 was next"),
        (lambda lines, at: lines.insert(at[-1], {**lines[at[-1]], "rank": 1}),
         "trained as rank 0 and as rank 1 of attempt 2"),
        (lambda lines, at: lines.insert(at[-1] + 1, {**lines[at[-1]], "attempt": 1, "step": 8}),
         "trained on in attempt 1 after it had begun attempt 2"),
    ],
)  # fmt: skip
def test_updates_out_of_turn(run: Simulation, judged: Judge, change: Any, words: str) -> None:
    rewrite(run, 2, 0, change)
    judged(run.folder, 3, "invalid", words)


def test_a_rank_that_restored_twice(run: Simulation, judged: Judge) -> None:
    def change(lines: Bodies, at: list[int]) -> None:
        restored = next(n for n, b in enumerate(lines) if (b["event"], b["attempt"]) == ("restored", 2))
        lines.insert(restored, lines[restored])

    rewrite(run, 2, 1, change)
    judged(run.folder, 3, "invalid", "rank 1 of attempt 2 restored its state 2 times")


def test_a_rank_in_two_processes(run: Simulation, judged: Judge) -> None:
    def change(lines: Bodies, at: list[int]) -> None:
        lines.insert(at[0], {**lines[at[0]], "rank": 1})

    rewrite(run, 2, 0, change)
    judged(run.folder, 3, "invalid", "rank 1 of attempt 2 trained in 2 processes: worker-h-")


def after_the_last_save(tmp_path: Path, attempt: int, change: Callable[[dict[str, Any]], None]) -> Simulation:
    """Step 5 of attempt 0 is trained, lost and trained again: no published ledger has what attempt 0 consumed in it."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing["attempt"], thing.get("step")) == ("step", attempt, 5):
            change(thing)

    return one_kill(tmp_path / "run", edit)


def test_samples_of_an_abandoned_step_are_those_of_the_plan(tmp_path: Path, judged: Judge) -> None:
    sim = after_the_last_save(tmp_path, 0, lambda step: step.update(ids="xxh3-128:" + "0" * 32))
    judged(sim.folder, 3, "invalid", "rank 0 of attempt 0 recorded other samples for step 4 than the plan says")


def test_an_abandoned_step_is_no_repetition(tmp_path: Path) -> None:
    assert audit_run(after_the_last_save(tmp_path, 0, lambda step: None).folder).verdict == "valid"


def test_a_process_that_wakes_up_and_trains_on_in_its_own_attempt(tmp_path: Path) -> None:
    """It is continued when the next attempt has long begun; its own history knows of one attempt only."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(5)
    zombie = sim.of("rank", 1)
    sim.kill(F0)
    sim.recover()
    sim.train(7)
    ids = next(b for b in bodies(sim.of("rank", 1).history.path) if (b["event"], b.get("step")) == ("step", 6))
    sim.say(zombie.history, "step", 0, **{k: ids[k] for k in ids if k not in ("event", "attempt", "t_ns", "clock")})
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).invariant(3).verdict == "valid"


def test_an_uneven_share_is_not_looked_up(tmp_path: Path) -> None:
    run = two_kills(tmp_path / "run", ranks=3, global_batch=9)
    assert audit_run(run.folder).verdict == "valid"
