"""Invariant 9: judged only where a recovery was interrupted, and then by what the others found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from evidence_by_hand import evidence, receipt
from judging import Judge
from simulated_run import F0, Settings, Simulation, fault

from chaos.audit.findings import Finding, Judgement
from chaos.audit.read_run import read_evidence
from chaos.audit.recovery_itself import check

IN_RECOVERY = fault(1, 1, "rank", 0, "recover.restored")
LATER = fault(1, 1, "committer", None, "commit.collected")


def interrupted(tmp_path: Path, second: dict[str, object], **choice: int) -> Simulation:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, second], keep=99))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.kill(second)
    sim.recover(**choice)
    sim.train(12)
    sim.finish()
    return sim


@pytest.mark.parametrize("second", [IN_RECOVERY, LATER])
def test_a_kill_during_a_recovery(tmp_path: Path, judged: Judge, second: dict[str, object]) -> None:
    judged(interrupted(tmp_path, second).folder, 9, "valid")


def test_what_it_broke_is_named(tmp_path: Path, judged: Judge) -> None:
    sim = interrupted(tmp_path, IN_RECOVERY, take=1)
    judged(sim.folder, 9, "invalid", "after the sigkill at recover.restored in attempt 1 and the failure of attempt 1 "
           "before its first step: invariant 2")  # fmt: skip


def test_a_kill_at_the_first_step_of_a_recovery(tmp_path: Path, judged: Judge) -> None:
    second = fault(1, 1, "rank", 0, "recover.first_step")
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, second]))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(5)
    sim.kill(second)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 9, "valid")


def test_a_later_kill_is_none_of_it(run: Simulation, judged: Judge) -> None:
    judged(run.folder, 9, "not_judged", "nothing was killed during a recovery")


@pytest.mark.parametrize(
    ("verdict", "expected", "words"),
    [
        (Judgement.UNKNOWN, Judgement.UNKNOWN, "invariant 3 and invariant 4 are unknown"),
        (Judgement.NOT_JUDGED, Judgement.NOT_JUDGED, "nothing else could be judged"),
    ],
)
def test_it_follows_the_others(tmp_path: Path, verdict: Judgement, expected: Judgement, words: str) -> None:
    whole = read_evidence(interrupted(tmp_path, IN_RECOVERY).folder)
    finding = check(whole, [(3, Finding(verdict)), (4, Finding(verdict))])
    assert finding.verdict == expected
    assert words in finding.witness


def test_one_invariant_is_and_several_are() -> None:
    struck = evidence(receipts=[receipt(attempt=1, point="recover.restored")])
    valid, unknown, invalid = (Finding(verdict) for verdict in (Judgement.VALID, Judgement.UNKNOWN, Judgement.INVALID))
    one = check(struck, [(1, valid), (2, invalid), (3, unknown)]).witness
    assert one.endswith(": invariant 2 is invalid")
    several = check(struck, [(1, invalid), (2, valid), (3, unknown), (4, invalid), (8, invalid)]).witness
    assert several.endswith(": invariant 1, invariant 4 and invariant 8 are invalid")


@pytest.mark.parametrize(
    ("point", "hit", "judgement"),
    [
        ("recover.detected", 1, "valid"),
        ("recover.fence.before", 2, "valid"),
        ("recover.fence.before", 1, "not_judged"),
        ("recover.fence.before", None, "not_judged"),
        (None, 2, "not_judged"),
        ("recover.formed", 1, "not_judged"),
    ],
)
def test_attempt_0_passes_points_of_recovery_when_it_starts(
    run: Simulation, point: str | None, hit: int | None, judgement: str
) -> None:
    whole = read_evidence(run.folder)
    receipts = (replace(whole.history.receipts[0], point=point, hit=hit),)
    struck = replace(whole, history=replace(whole.history, receipts=receipts))
    assert check(struck, [(1, Finding(Judgement.VALID))]).verdict == judgement


def test_a_failure_of_attempt_0_before_its_first_step_is_no_recovery(tmp_path: Path, judged: Judge) -> None:
    early = fault(0, 0, "rank", 1, "step.begin")
    sim = Simulation(tmp_path / "run", Settings(faults=[early]))
    sim.start()
    sim.kill(early)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 9, "not_judged")


def test_a_recovery_that_the_run_ended_in_did_not_fail(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.finish(finished=False)
    judged(sim.folder, 9, "not_judged")
