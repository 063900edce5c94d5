"""Real kills of real processes on a real Ray: each run must come back, and the auditor must agree."""

from __future__ import annotations

import pytest
from run_kit import events, explain, invariant, kill, last_parts

from chaos.run import Outcome


def _valid(outcome: Outcome, *, restarts: int) -> None:
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert outcome.exit_status == 0
    assert len(outcome.verdict["recoveries"]) == restarts
    assert all(fault["receipt"] and fault["observed"] for fault in outcome.verdict["faults"])


def test_two_kills_and_the_same_end_as_an_uninterrupted_run(run) -> None:  # type: ignore[no-untyped-def]
    clean = run(name="clean")
    killed = run(
        kill("microbatch.backward", 15, rank=1), kill("shard.half", 2, attempt=1, rank=0), name="killed"
    )
    _valid(clean, restarts=0)
    _valid(killed, restarts=2)
    for fault in killed.verdict["faults"]:
        assert fault["receipt"]["target"]["pid"] == fault["observed"]["pid"]
        assert fault["observed"]["signal"] == 9
    assert last_parts(killed.folder) == last_parts(clean.folder)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(run) -> None:  # type: ignore[no-untyped-def]
    first, second, other = (run(name=n, seed=s, standbys=0) for n, s in (("a", 5), ("b", 5), ("c", 6)))
    outcomes = (first, second, other)
    ids = [{(e["rank"], e["step"]): e["ids"] for e in events(o.folder, "worker", "step")} for o in outcomes]
    assert ids[0] == ids[1] != ids[2]
    assert last_parts(first.folder) == last_parts(second.folder) != last_parts(other.folder)


@pytest.mark.parametrize(
    "fault",
    [
        kill("microbatch.forward", 15, rank=2, kind="hang"),
        kill("microbatch.backward", 15, rank=2),
        kill("optimizer.before", 8, rank=3, kind="exception"),
    ],
    ids=["hang", "sigkill", "exception"],
)
def test_four_ranks_come_back(run, fault) -> None:  # type: ignore[no-untyped-def]
    _valid(run(fault, ranks=4, steps=12), restarts=1)


def test_a_hang_of_one_of_two_ranks(run) -> None:  # type: ignore[no-untyped-def]
    outcome = run(kill("microbatch.forward", 15, rank=0, kind="hang"))
    _valid(outcome, restarts=1)
    assert [e["how"] for e in events(outcome.folder, "supervisor", "detected")] == ["stopped"]


def test_a_kill_at_every_stage_of_recovery_one_recovery_after_the_other(run) -> None:  # type: ignore[no-untyped-def]
    stages = ("recover.joined", "recover.load.half", "recover.loaded", "recover.restored", "recover.first_step")
    again = [kill(stage, 1, attempt=attempt, rank=attempt % 2) for attempt, stage in enumerate(stages, start=1)]
    outcome = run(kill("microbatch.backward", 15, rank=1), *again, standbys=2, steps=12, max_attempts=7)
    _valid(outcome, restarts=6)
    assert [fault["receipt"]["point"] for fault in outcome.verdict["faults"][1:]] == list(stages)
    assert invariant(outcome, 9) == "valid"


@pytest.mark.parametrize(
    "points",
    [
        ("commit.collected", "commit.read_back", "manifest.written"),
        ("log.before_link", "publish.before", "publish.after"),
        ("retire.logged", "retire.between"),
    ],
    ids=lambda points: points[0],
)
def test_the_committer_is_killed_in_one_attempt_after_the_other(run, points) -> None:  # type: ignore[no-untyped-def]
    hit = 1 if points[0].startswith("retire") else 2
    kills = [kill(point, hit, attempt=attempt, role="committer") for attempt, point in enumerate(points)]
    outcome = run(*kills, keep=2, steps=30)
    _valid(outcome, restarts=len(points))
    assert [fault["receipt"]["point"] for fault in outcome.verdict["faults"]] == list(points)


def test_a_killed_ray_data_task_loses_and_repeats_nothing(run) -> None:  # type: ignore[no-untyped-def]
    outcome = run(kill("data.read", 2, role="data", rank=1))
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert outcome.verdict["recoveries"] == []
    assert outcome.verdict["faults"][0]["receipt"]["point"] == "data.read"


def test_kills_at_random_times_from_a_seed(run) -> None:  # type: ignore[no-untyped-def]
    fault = {"kind": "sigkill", "at": {"attempt": 0, "role": "rank", "rank": 0, "random_s": [0.05, 0.3]}}
    outcome = run(fault, steps=400, save_every=50, config={"rows": 960})
    _valid(outcome, restarts=1)
