"""Invariant 8: which saves had to be there when a run was killed, and what was trained again because of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import Judge
from simulated_run import F0, F1, Settings, Simulation, two_kills

from chaos.audit import audit_run
from chaos.audit.redo import due


class Skipping(Simulation):
    """Leaves out the saves of `skipped`, with their records if `silent`."""

    skipped: tuple[int, ...] = ()
    recorded = False

    def save(self, publish: bool = True) -> None:
        if self.step in self.skipped:
            if self.recorded:
                for rank in range(self.set.ranks):
                    for event in ("save_due", "save_staged"):
                        self.say(self.of("rank", rank).history, event, self.attempt, rank=rank, step=self.step,
                                 stall_s=0.0, waited_s=0.0)  # fmt: skip
            return
        super().save(publish)


def test_a_save_in_flight_explains_the_redo(run: Simulation, judged: Judge) -> None:
    judged(run.folder, 8, "valid")


def test_a_save_that_was_skipped_in_silence(tmp_path: Path, judged: Judge) -> None:
    sim = Skipping(tmp_path / "run", Settings(faults=[F0]))
    sim.skipped = (6,)
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "the save of step 6 was skipped: rank 0 of attempt 0 trained on to step 9 and has "
           "no record that it fell due", "the save of step 6 in attempt 0 was skipped: it was never published, that of "
           "step 8 was")  # fmt: skip


def test_skips_of_every_save_leave_room_for_the_redo_that_nothing_explains(tmp_path: Path, judged: Judge) -> None:
    """A witness has the first few sentences: each skip is one, whatever it lacks."""
    sim = Skipping(tmp_path / "run", Settings(faults=[F0]))
    sim.skipped = (6, 8)
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover()
    sim.skipped = ()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "attempt 1 redid 5 steps from step 4, which nothing explains")


def test_a_recorded_save_that_never_came(tmp_path: Path, judged: Judge) -> None:
    sim = Skipping(tmp_path / "run", Settings(faults=[F0]))
    sim.skipped, sim.recorded = (6, 8), True
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "attempt 1 redid 5 steps from step 4, which nothing explains: at step 9 of "
           "attempt 0 the save of step 6 had to be there, and no candidate was rejected")  # fmt: skip


def test_only_the_last_save_may_be_in_flight(tmp_path: Path, judged: Judge) -> None:
    """The save of step 4 is in flight while step 7 is done: that of step 6 must have waited for it."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(3)
    sim.train(7, publish=False)
    sim.kill(F0)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "at step 7 of attempt 0 the save of step 4 had to be there")


@pytest.mark.parametrize("staged", [True, False])
def test_a_save_that_fell_due_at_the_last_step_may_still_wait(
    tmp_path: Path, judged: Judge, staged: bool
) -> None:
    """Step 6 is done, its save waits for that of step 4; once it is staged, that of step 4 must be published."""
    sim = Skipping(tmp_path / "run", Settings(faults=[F0]))
    sim.skipped, sim.recorded = (6,), staged
    sim.start()
    sim.train(3)
    sim.train(6, publish=False)
    sim.kill(F0)
    sim.recover()
    sim.skipped = ()
    sim.train(12)
    sim.finish()
    words = ("the save of step 4 had to be there",) if staged else ()
    judged(sim.folder, 8, "invalid" if staged else "valid", *words)


def test_an_older_choice_is_not_explained(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=99))
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover(take=2)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "redid 5 steps from step 4", "the save of step 6 had to be there")


def test_a_recorded_rejection_explains_it(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=99))
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover(reject=2)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "valid")


def test_before_any_save_the_attempts_own_start_is_the_bound(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1], keep=99))
    sim.start()
    sim.train(4)
    sim.kill(F0)
    sim.recover()
    sim.train(5)
    sim.kill(F1)
    sim.recover(take=1)
    sim.train(12)
    sim.finish()
    judged(
        sim.folder,
        8,
        "invalid",
        "at step 5 of attempt 1 step 4, from which attempt 1 started, had to be there",
    )


def test_what_an_attempt_that_trained_nothing_lost_counts_for_the_next(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1]))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.kill(F1)
    sim.recover()
    sim.train(12)
    sim.finish()
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid"
    assert [(r.restored_step, r.redo_steps) for r in verdict.recoveries] == [(4, 1), (4, 1)]
    assert verdict.recoveries[0].redo_s is None


def test_a_run_that_finished_has_every_due_save(tmp_path: Path, judged: Judge) -> None:
    sim = Skipping(tmp_path / "run", Settings(steps=11))
    sim.skipped, sim.recorded = (11,), True
    sim.start()
    sim.train(11)
    sim.finish()
    judged(sim.folder, 8, "invalid", "the save of step 11 in attempt 0 was skipped: it was never published, the run "
           "finished")  # fmt: skip


def test_the_record_of_every_rank_counts(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "save_staged" and (thing["step"], thing["rank"]) == (10, 1):
            thing["drop"] = True

    judged(two_kills(tmp_path / "run", edit).folder, 8, "invalid", "the save of step 10 was skipped: rank 1 of "
           "attempt 2", "no record that it was staged")  # fmt: skip


def test_one_attempt_is_not_judged(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "not_judged", "nothing was restarted")


def test_what_the_run_was_must_be_known(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "run":
            thing["drop"] = True

    judged(two_kills(tmp_path / "run", edit).folder, 8, "unknown", "does not say what the run was")


@given(
    st.integers(1, 9), st.none() | st.integers(1, 9), st.integers(1, 5), st.integers(1, 40), st.integers(0, 99),
    st.integers(0, 99),
)  # fmt: skip
def test_due_saves_one_by_one(
    every: int, between: int | None, microbatches: int, steps: int, after: int, upto: int
) -> None:
    begun = SimpleNamespace(
        save_every=every, save_every_microbatches=between, microbatches=microbatches, steps=steps
    )
    slow = []
    for done in range(after + 1, upto + 1):
        step, microbatch = done // microbatches, done % microbatches
        at_boundary = microbatch == 0 and (step % every == 0 or step == steps)
        if done <= steps * microbatches and (at_boundary or (between is not None and done % between == 0)):
            slow.append((step, microbatch))
    assert due(begun, divmod(after, microbatches), divmod(upto, microbatches)) == slow  # type: ignore[arg-type]


def test_where_nothing_was_trained_nothing_is_redone(tmp_path: Path) -> None:
    early = {**F0, "hit": 1}
    sim = Simulation(tmp_path / "run", Settings(faults=[early]))
    sim.start()
    sim.kill(early)
    sim.recover()
    sim.train(12)
    sim.finish()
    (recovery,) = audit_run(sim.folder).recoveries
    assert (recovery.restored_step, recovery.restored_microbatch) == (0, 0)
    assert (recovery.redo_steps, recovery.redo_samples, recovery.redo_s) == (0, 0, 0.0)


def test_an_update_whose_save_still_waits_may_be_the_only_one(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(save_every=1))
    sim.start()
    sim.train(1, publish=False)
    sim.finish(finished=False)
    judged(sim.folder, 8, "not_judged", "nothing was restarted")


def test_a_run_that_finished_and_published_nothing_at_all(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(save_every=1, save_every_microbatches=1))
    sim.start()
    sim.train(12, publish=False)
    sim.finish()
    how = "in attempt 0 was skipped: it was never published, the run finished"
    judged(sim.folder, 8, "invalid", f"the save of step 0, microbatch 1 {how}", f"the save of step 1 {how}")


def test_what_an_attempt_before_rejected_explains_it_too(tmp_path: Path, judged: Judge) -> None:
    """Attempt 1 rejects steps 8 and 6 and dies before it has trained; attempt 2 has step 4 as its newest."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1], keep=99))
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover(reject=2)
    sim.kill(F1)
    sim.recover()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "valid")


def test_a_rejection_of_the_very_save_that_was_needed(tmp_path: Path, judged: Judge) -> None:
    """Steps 2, 4 and 6 are published, step 8 is in flight: 6 is needed, and 6 is rejected."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=99))
    sim.start()
    sim.train(7)
    sim.train(9, publish=False)
    sim.kill(F0)
    sim.recover(reject=1)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "valid")


def test_a_rejection_long_ago_explains_nothing(tmp_path: Path, judged: Judge) -> None:
    """Attempt 1 rejects step 4 and publishes a step 4 and a step 6 of its own; attempt 2 goes back to step 2."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1], keep=99))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover(reject=1)
    sim.train(7)
    sim.kill(F1)
    sim.recover(take=2)
    sim.train(12)
    sim.finish()
    judged(
        sim.folder, 8, "invalid", "attempt 2 redid 5 steps from step 2", "the save of step 4 had to be there"
    )


def test_with_one_save_in_flight_the_attempts_own_start_is_the_bound(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1], keep=99))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(7, publish=False)
    sim.kill(F1)
    sim.recover(take=1)
    sim.train(12)
    sim.finish()
    judged(
        sim.folder,
        8,
        "invalid",
        "at step 7 of attempt 1 step 4, from which attempt 1 started, had to be there",
    )


def test_a_made_up_rejection_explains_nothing(tmp_path: Path, judged: Judge) -> None:
    made_up = {"name": "s00000099-a0000", "digest": "sha256:0", "step": 99, "status": "rejected", "reason": "made up"}

    def edit(kind: str, thing: Any) -> None:
        if kind == "entry" and (thing["kind"], thing["attempt"]) == ("choose", 1):
            thing["candidates"].insert(0, made_up)

    sim = Simulation(tmp_path / "run", Settings(faults=[F0], keep=99), edit)
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover(take=2)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "redid 5 steps from step 4", "no candidate was rejected")


@pytest.mark.parametrize("choose", [True, False])
def test_a_fence_after_the_end_is_no_missing_save(tmp_path: Path, judged: Judge, choose: bool) -> None:
    """Somebody took up the run when it had finished, and left no history: that is unknown."""
    sim = two_kills(tmp_path / "run")
    newest = sim.branch[::-1]
    sim.append("fence", attempt=3, config="sha256:c", owner={"host": "elsewhere", "pid": 1, "start_ticks": 1})
    if choose:
        parent = {key: newest[0][key] for key in ("name", "digest", "step")}
        notes = [{**parent, "status": "chosen", "reason": ""}]
        sim.append("choose", attempt=3, parent=parent, candidates=notes)
    judged(sim.folder, 8, "valid")
    judged(sim.folder, 10, "unknown", "the history of supervisor 1, which began attempt 3, is missing")
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "unknown", verdict.invariants


def test_a_rejection_by_the_attempt_after_explains_nothing(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1], keep=99))
    sim.start()
    sim.train(9)
    sim.kill(F0)
    sim.recover(take=2)
    sim.train(9)
    sim.kill(F1)
    sim.recover(reject=1)
    sim.train(12)
    sim.finish()
    judged(sim.folder, 8, "invalid", "attempt 1 redid 5 steps from step 4, which nothing explains")
