"""Real kills of real processes on a real Ray: each run must come back, and the auditor must agree."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from ray.actor import _ActorClassMethodMetadata
from run_kit import TINY, events, explain, invariant, kill, last_parts

from chaos.experiment import parse_experiment
from chaos.life import Place
from chaos.passages import recorded_passages
from chaos.run import Outcome, run_experiment


def _valid(outcome: Outcome, *, restarts: int) -> None:
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert outcome.exit_status == 0
    assert len(outcome.verdict["recoveries"]) == restarts
    assert all(fault["receipt"] and fault["observed"] for fault in outcome.verdict["faults"])


def test_two_kills_and_the_same_end_as_an_uninterrupted_run(original: Path) -> None:
    verdict = json.loads((original / "verdict.json").read_text())
    assert [r["attempt"] for r in verdict["recoveries"]] == [1, 2]
    for fault in verdict["faults"]:
        assert fault["receipt"]["target"]["pid"] == fault["observed"]["pid"]
        assert fault["observed"]["signal"] == 9
    assert last_parts(original) == last_parts(original / "twin")


def test_four_ranks_come_back_from_a_hang_a_kill_and_an_exception(run) -> None:  # type: ignore[no-untyped-def]
    """The rank that hangs is no neighbour of rank 0, and its neighbours wait in the reduction."""
    faults = (
        kill("microbatch.forward", 9, rank=2, kind="hang"), kill("microbatch.backward", 9, attempt=1, rank=2),
        kill("optimizer.before", 4, attempt=2, rank=3, kind="exception"),
    )  # fmt: skip
    outcome = run(*faults, ranks=4, steps=14)
    _valid(outcome, restarts=3)
    hows = [e["how"] for e in events(outcome.folder, "supervisor", "detected")]
    assert [how for how in hows if how in ("stopped", "actor_died", "raised")] == ["stopped", "actor_died", "raised"]


def test_a_hang_of_one_of_two_ranks(run) -> None:  # type: ignore[no-untyped-def]
    outcome = run(kill("microbatch.forward", 15, rank=0, kind="hang"))
    _valid(outcome, restarts=1)
    assert [e["how"] for e in events(outcome.folder, "supervisor", "detected")] == ["stopped"]


def test_a_kill_at_every_stage_of_recovery_one_recovery_after_the_other(run) -> None:  # type: ignore[no-untyped-def]
    stages = tuple(f"recover.{at}" for at in ("joining", "joined", "load.half", "loaded", "restored", "first_step"))
    again = [kill(stage, 1, attempt=attempt, rank=attempt % 2) for attempt, stage in enumerate(stages, start=1)]
    outcome = run(kill("microbatch.backward", 15, rank=1), *again, standbys=2, steps=12, max_attempts=8)
    _valid(outcome, restarts=7)
    assert [fault["receipt"]["point"] for fault in outcome.verdict["faults"][1:]] == list(stages)
    assert invariant(outcome, 9) == "valid"
    # What Ray notes of an actor's class it keeps to the end: one note for each new worker would be a leak.
    noted = [descriptor.class_name for descriptor in _ActorClassMethodMetadata._cache]
    assert (noted.count("Worker"), noted.count("Committer")) == (1, 1)


def test_the_committer_is_killed_in_one_attempt_after_the_other(run) -> None:  # type: ignore[no-untyped-def]
    points = ("commit.read_back", "publish.before", "publish.after", "retire.between")  # a sweep kills at all of them
    kills = [
        kill(point, 1 if point.startswith("retire") else 2, attempt=attempt, role="committer")
        for attempt, point in enumerate(points)
    ]
    outcome = run(*kills, keep=2, steps=36, max_attempts=5)
    _valid(outcome, restarts=len(points))
    assert [fault["receipt"]["point"] for fault in outcome.verdict["faults"]] == list(points)


def test_a_killed_ray_data_task_loses_and_repeats_nothing(run) -> None:  # type: ignore[no-untyped-def]
    outcome = run(kill("data.read", 2, role="data", rank=1))
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert outcome.verdict["recoveries"] == []
    assert outcome.verdict["faults"][0]["receipt"]["point"] == "data.read"


def test_kills_at_random_times_from_a_seed(run) -> None:  # type: ignore[no-untyped-def]
    fault = {"kind": "sigkill", "at": {"attempt": 0, "role": "rank", "rank": 0, "random_s": [0.05, 0.3]}}
    outcome = run(fault, steps=120, save_every=20)
    _valid(outcome, restarts=1)


def test_a_kill_while_a_save_stands_at_its_gate(run) -> None:  # type: ignore[no-untyped-def]
    gate = {"role": "committer", "point": "publish.before", "hit": 2}
    outcome = run({**kill("microbatch.backward", 15, rank=1), "gate": gate})
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    (seen,) = outcome.verdict["faults"]
    assert seen["receipt"]["gate"]["held"] is True
    assert not [line for line in outcome.verdict["unseen"] if "no gate was used" in line]
    assert [each["restored_step"] for each in outcome.verdict["recoveries"]] in ([3], [6])


def test_what_a_standby_passes_is_counted(place: Place, tmp_path: Path) -> None:
    text = yaml.safe_dump({"run": {**TINY, "steps": 200, "save_every": 100, "twin": False}})
    experiment = parse_experiment(text, tmp_path / "e.yaml")
    outcome = run_experiment(experiment, tmp_path / "run", record_passages=True, place=place)
    assert outcome.failure is None
    counts = {(count.point, count.role): count.hits for count in recorded_passages(outcome.folder)}
    assert counts["standby.warm", "standby"] == 1
    assert counts["step.end", "rank"] == 200
