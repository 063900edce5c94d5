"""Checkpoints inside a step, on a real Ray: killed after any backward pass, the run goes on as if nothing had been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from run_kit import TINY, events, explain, invariant, kill, last_parts

from chaos.experiment import parse_experiment
from chaos.life import Place
from chaos.run import Outcome, run_experiment
from storage.manifest import parse_checkpoint_name

EVERY_MICROBATCH = {"microbatches": 4, "steps": 10, "save_every": 3, "save_every_microbatches": 1, "max_attempts": 9}
RECORDED = ("loss", "lr", "gradient_norm", "state", "ids", "samples_seen", "skipped")


def _steps(folder: Path) -> dict[tuple[int, int, int], dict[str, Any]]:
    """(attempt, rank, step) → what the rank recorded of the update, abandoned attempts included."""
    return {
        (e["attempt"], e["rank"], e["step"]): {name: e[name] for name in RECORDED}
        for e in events(folder, "worker", "step")
    }


def _once_held(fault: dict[str, Any], rank: int, point: str, hit: int) -> dict[str, Any]:
    """The fault, struck as soon as another thread of the same process stands at that passage, which it never leaves."""
    return {**fault, "gate": {"role": "rank", "rank": rank, "point": point, "hit": hit}}


def _restored(outcome: Outcome) -> list[tuple[int, int]]:
    """(step, microbatch) of what each restart chose, which the verdict has to agree with."""
    names = [e["name"] for e in events(outcome.folder, "supervisor", "chosen") if e["attempt"] > 0]
    moments = [(step, microbatch) for step, _, microbatch in map(parse_checkpoint_name, names)]
    assert moments == [(r["restored_step"], r["restored_microbatch"]) for r in outcome.verdict["recoveries"]]
    return moments


def _same_as(clean: Path, killed: Path) -> None:
    twin = {(rank, step): record for (_, rank, step), record in _steps(clean).items()}
    found = _steps(killed)
    assert {step for _, _, step in found} == {step for _, step in twin}
    for (attempt, rank, step), record in found.items():
        assert record == twin[rank, step], (attempt, rank, step)
    assert last_parts(killed) == last_parts(clean)


@pytest.fixture(scope="module")
def clean(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run without faults, and without any checkpoint inside a step: what is to be equalled."""
    text = yaml.safe_dump({"run": {**TINY, **EVERY_MICROBATCH, "save_every_microbatches": None}})
    outcome = run_experiment(parse_experiment(text), tmp_path_factory.mktemp("clean") / "run", place=place)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    return outcome.folder


def test_a_kill_after_each_of_the_four_backward_passes(run, clean) -> None:  # type: ignore[no-untyped-def]
    """One attempt after the other. Each strikes once what lay before that microbatch is published, so it is known what
    is restored: all of the step but the microbatch whose gradients died with the rank.
    """
    faults, done = [], 0
    for attempt, (step, microbatch) in enumerate([(3, 1), (5, 2), (6, 3), (7, 4)]):
        passes, rank = step * 4 + microbatch - done, attempt % 2  # backward passes of this attempt, a save after each
        fault = kill("microbatch.backward", passes, attempt=attempt, rank=rank)
        faults.append(_once_held(fault, rank, "save.done", passes - 1))
        done += passes - 1
    outcome = run(*faults, **EVERY_MICROBATCH)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert _restored(outcome) == [(3, 0), (5, 1), (6, 2), (7, 3)]
    _same_as(clean, outcome.folder)


def test_resumed_after_exactly_one_two_and_three_of_four_microbatches(run, clean) -> None:  # type: ignore[no-untyped-def]
    """The rank stands before its next microbatch while the checkpoint of the ones before is published, then dies."""
    faults, done = [], 0
    for attempt, (rank, upto) in enumerate([(1, 2 * 4 + 3), (0, 4 * 4 + 1), (1, 6 * 4 + 2)]):
        passed = upto - done  # microbatches of this attempt; every one is followed by a save
        fault = kill("save.done", passed, attempt=attempt, rank=rank)
        faults.append(_once_held(fault, rank, "microbatch.fetched", passed + 1))
        done = upto
    outcome = run(*faults, **EVERY_MICROBATCH)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert _restored(outcome) == [(2, 3), (4, 1), (6, 2)]
    for recovery in outcome.verdict["recoveries"]:
        assert recovery["redo_steps"] == recovery["redo_samples"] == 0
        assert 0 <= recovery["redo_microbatches"] <= 2  # the other rank may have been ahead
    _same_as(clean, outcome.folder)


def test_against_its_twin_with_saves_at_odd_places(run) -> None:  # type: ignore[no-untyped-def]
    """Every third microbatch: checkpoints lie inside steps and at their ends in turn, and a save dies half written."""
    settings = {**EVERY_MICROBATCH, "save_every_microbatches": 3, "save_every": 5, "twin": True, "steps": 8}
    outcome = run(kill("microbatch.backward", 18, rank=1), kill("shard.half", 2, attempt=1, rank=0), **settings)
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert [invariant(outcome, number) for number in (3, 4, 5, 8)] == ["valid"] * 4
