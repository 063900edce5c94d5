"""A rank that was given notice: its save needs a reason, its end a receipt, and what it left behind has to be taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from judging import Judge
from simulated_run import Settings, Simulation, fault

from chaos.audit import audit_run

NOTICE = fault(0, 0, "rank", 1, "microbatch.backward", kind="sigterm", grace_s=0.2)


class Preempted(Simulation):
    """Rank 1 is given notice in step 5, whose end all ranks save; saves are due after steps 2, 4, 6 …"""

    def notice(self, signal: int = 15, publish: bool = True, leaving: bool = True, after_ms: float = 1.0) -> None:
        proc = self.of("rank", 1)
        self.train(4)
        self.receipt(NOTICE, proc.history, grace_s=0.2)
        self.train(5)
        for rank in range(self.set.ranks):
            self.say(self.of("rank", rank).history, "noticed", self.attempt, rank=rank, step=5, own=rank == 1)
        self.save(publish)
        if leaving:
            self.say(proc.history, "leaving", self.attempt, rank=1, step=5)
        self.tick(after_ms)
        self.exited(proc, signal)
        self.say(self.supervisor, "detected", self.attempt, role="rank", rank=1, how="actor_died", detail="",
                 **proc.history.who)  # fmt: skip
        self.say(self.supervisor, "exit_confirmed", self.attempt, signal=signal, code=None, **proc.history.who)


def story(folder: Path, edit: Any = None, *, take: int | None = None, **how: Any) -> Preempted:
    sim = Preempted(folder, Settings(faults=[NOTICE], keep=99), edit or (lambda kind, thing: None))
    sim.start()
    sim.notice(**how)
    sim.recover(take=take)
    sim.train(12)
    sim.finish()
    return sim


def drop(name: str, **of: Any) -> Any:
    """The event, or the receipt, is not there."""

    def edit(kind: str, thing: dict[str, Any]) -> None:
        if name in (kind, thing.get("event")) and of.items() <= thing.items():
            thing["drop"] = True

    return edit


def test_a_save_that_a_notice_asked_for_and_no_redo(tmp_path: Path) -> None:
    verdict = audit_run(story(tmp_path / "run").folder)
    assert verdict.verdict == "valid", [i.finding for i in verdict.invariants]
    assert (verdict.recoveries[0].restored_step, verdict.recoveries[0].redo_steps) == (5, 0)
    observed = verdict.to_json()["faults"][0]["observed"]
    assert (observed["how"], observed["signal"]) == ("actor_died", 15)


def test_without_a_word_of_the_notice_the_save_has_no_reason(tmp_path: Path, judged: Judge) -> None:
    run = story(tmp_path / "run", drop("noticed"))
    judged(run.folder, 8, "invalid", "s00000005-a0000 was published, where no save falls due and no rank recorded")


def test_what_a_rank_left_behind_must_be_taken(tmp_path: Path, judged: Judge) -> None:
    run = story(tmp_path / "run", take=1)
    judged(run.folder, 8, "invalid", "attempt 1 redid 1 steps from step 4", "the save of step 5 had to be there")
    other = story(tmp_path / "other", take=1, leaving=False, signal=9, after_ms=300)
    verdict = audit_run(other.folder)  # killed before it was published, for all that is known
    assert verdict.invariant(8).verdict == "valid"


def test_a_save_that_was_asked_for_and_never_made(tmp_path: Path, judged: Judge) -> None:
    """Trained on as if nothing had been: the save is missing in the record of every rank."""
    sim = Preempted(tmp_path / "run", Settings(faults=[NOTICE], keep=99))
    sim.start()
    sim.train(4)
    sim.receipt(NOTICE, sim.of("rank", 1).history, grace_s=0.2)
    sim.train(5)
    for rank in range(2):
        sim.say(sim.of("rank", rank).history, "noticed", 0, rank=rank, step=5, own=rank == 1)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "the save of step 5 was skipped: rank 0 of attempt 0 trained on to step 12")


@pytest.mark.parametrize(
    ("signal", "after_ms", "seen"), [(15, 1, True), (9, 1, False), (9, 300, True), (11, 300, False)]
)
def test_it_ends_by_its_signal_or_by_a_kill_when_its_grace_is_over(
    tmp_path: Path, signal: int, after_ms: float, seen: bool
) -> None:
    verdict = audit_run(story(tmp_path / "run", signal=signal, after_ms=after_ms).folder)
    assert (verdict.faults[0].observed is not None) is seen
    assert verdict.verdict == ("valid" if seen else "unknown")


def test_a_notice_without_a_receipt(tmp_path: Path, judged: Judge) -> None:
    run = story(tmp_path / "run", drop("receipt"))
    judged(run.folder, 10, "unknown", "did not fire", "rank 1 of attempt 0 was given notice before the end of step 5, "
           "and no receipt accounts for it")  # fmt: skip


def test_a_receipt_of_another_grace(tmp_path: Path, judged: Judge) -> None:
    def longer(kind: str, thing: dict[str, Any]) -> None:
        if kind == "receipt":
            thing["grace_s"] = 30.0

    judged(story(tmp_path / "run", longer).folder, 10, "unknown", "was planned with grace_s 0.2, its receipt has 30.0")
