"""Invariant 8: which saves had to be there when a run was killed, and what was trained again because of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from evidence_by_hand import Entries, begun, checkpoint, evidence, note, said
from evidence_by_hand import step as update
from hypothesis import given
from hypothesis import strategies as st
from judging import Judge
from simulated_run import F0, F1, Settings, Simulation, two_kills

from chaos.audit import audit_run
from chaos.audit.disturbance_events import Leaving, Noticed
from chaos.audit.events import Event, Finished, SaveDue, SaveStaged
from chaos.audit.evidence import Moment
from chaos.audit.facts import RunBegun
from chaos.audit.logbook import Attempt, attempts
from chaos.audit.redo import check, due, greatest_update, last_trained, restored_moment, restored_step


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


# -- the check by itself, on evidence without files

EVERY_2 = begun(ranks=1)  # saves after steps 2, 4, 6 …
INSIDE = begun(ranks=1, microbatches=3, save_every=4, save_every_microbatches=1)  # and after each microbatch


def trained(run: RunBegun, attempt: int, upto: int, base: Moment = (0, 0), *, lacks: tuple[Moment, ...] = (),
            staged: tuple[Moment, ...] = (), ranks: int = 1) -> Iterator[Event[Any]]:  # fmt: skip
    """Each rank records updates until `upto`, and every save due in between, but for some; `staged`: more of them."""
    size, (step, microbatch) = run.microbatches, base
    for rank in range(ranks):
        for each in range(step + 1, upto + 1):
            yield said(update(rank, each), attempt)
        moments = [divmod(done, size) for done in range(step * size + microbatch + 1, upto * size + 1)]
        every = run.save_every_microbatches or run.save_every * size
        fell_due = [m for m in moments if (m[0] * size + m[1]) % every == 0 and m not in lacks]
        yield from (said(SaveDue(rank, *moment), attempt) for moment in fell_due)
        yield from (said(SaveStaged(rank, *moment), attempt) for moment in (*fell_due, *staged))


def found(log: Entries, *events: Event[Any], run: RunBegun = EVERY_2) -> tuple[str, str]:
    finding = check(evidence(log, begun=run, events=events))
    return finding.verdict.value, finding.witness


def first(*steps: int) -> Entries:
    """Attempt 0 publishes these."""
    return Entries().fence().choose(None).publish(*steps)


def test_what_an_attempt_started_from_is_what_it_first_chose() -> None:
    log = first(2).publish(4, microbatch=1).fence().choose(checkpoint(4, 0, 1)).fence().choose(checkpoint(2, 0)).fence()
    lives = attempts(log.made)
    assert [restored_moment(life) for life in lives.values()] == [(0, 0), (4, 1), (2, 0), (0, 0)]
    assert [restored_step(life) for life in lives.values()] == [0, 4, 2, 0]
    assert restored_moment(Attempt(7, lives[0].fence, (), ())) == (0, 0)


def test_the_greatest_update_is_that_of_the_last_attempt_that_trained_before() -> None:
    done = {0: {0: 5, 1: 6}, 2: {0: 3, 1: 2}}
    assert [last_trained(done, attempt) for attempt in range(4)] == [None, 0, 0, 2]
    assert [greatest_update(done, attempt) for attempt in range(4)] == [0, 6, 6, 3]
    assert greatest_update({}, 3) == 0


def test_a_run_of_which_every_save_is_there() -> None:
    log = first(2, 4).fence().choose(checkpoint(4, 0)).publish(6)
    assert found(log, *trained(EVERY_2, 0, 5), *trained(EVERY_2, 1, 6, (4, 0))) == ("valid", "")


@pytest.mark.parametrize(("upto", "missed"), [(1, False), (2, False), (3, True), (4, True)])
def test_a_rank_that_trained_on_has_a_record_of_each_save_before(upto: int, missed: bool) -> None:
    """A save that fell due after the last update may not have been recorded yet."""
    verdict, witness = found(Entries().fence().choose(None).fence(), *trained(EVERY_2, 0, upto, lacks=((2, 0),)))
    assert verdict == ("invalid" if missed else "valid")
    assert witness == ("the save of step 2 was skipped: rank 0 of attempt 0 trained on to step "
                       f"{upto} and has no record that it fell due" if missed else "")  # fmt: skip


@pytest.mark.parametrize(("moment", "missed"), [((1, 1), True), ((1, 2), True), ((2, 0), False)])
def test_the_last_save_that_had_to_be_recorded_is_that_of_the_microbatch_before_the_last(
    moment: Moment, missed: bool
) -> None:
    """Two updates of three microbatches are done; only the one at their end may still be on its way."""
    events = trained(INSIDE, 0, 2, lacks=(moment,))
    verdict, witness = found(Entries().fence().choose(None).fence(), *events, run=INSIDE)
    assert verdict == ("invalid" if missed else "valid")
    assert (f"the save of step 1, microbatch {moment[1]} was skipped: rank 0" in witness) == missed


def test_records_are_those_of_their_own_attempt_and_rank() -> None:
    log = first(2).fence().choose(checkpoint(2, 0)).publish(4)
    events = [*trained(EVERY_2, 0, 3, ranks=2), *trained(EVERY_2, 1, 5, (2, 0), lacks=((4, 0),)),
              said(SaveDue(0, 4), 0), said(SaveStaged(0, 4), 0),
              said(SaveDue(1, 4), 1), said(SaveStaged(1, 4), 1)]  # fmt: skip
    assert found(log, *events)[1] == (
        "the save of step 4 was skipped: rank 0 of attempt 1 trained on to step 5 and has no record that it fell due"
    )
    assert found(log, *events, said(SaveDue(0, 4), 1))[1].endswith("has no record that it was staged")


def noticed(step: int, attempt: int) -> Event[Noticed]:
    return said(Noticed(0, step, True), attempt)


def test_a_notice_makes_a_save_fall_due_in_its_attempt() -> None:
    log = first(2, 4, 5).fence().choose(checkpoint(5, 0)).publish(6, 7)
    events = [*trained(EVERY_2, 0, 5, staged=((5, 0),)), *trained(EVERY_2, 1, 7, (5, 0))]
    none = "was published, where no save falls due and no rank recorded that it was given notice"
    assert found(log, noticed(5, 0), noticed(7, 1), *events) == ("valid", "")
    assert found(log, noticed(7, 1), *events)[1] == f"s00000005-a0000 {none}"
    assert found(log, noticed(5, 0), noticed(7, 0), *events)[1] == f"s00000007-a0001 {none}"


def test_the_save_that_a_notice_asked_for_is_not_left_out() -> None:
    log = first(2, 4, 6).fence()
    words = "the save of step 5 in attempt 0 was skipped: it was never published, that of step 6 was"
    verdict, witness = found(log, noticed(5, 0), *trained(EVERY_2, 0, 5))
    assert (verdict, witness) == ("invalid", words)
    verdict, witness = found(log, noticed(5, 0), *trained(EVERY_2, 0, 6))
    assert witness.startswith("the save of step 5 was skipped: rank 0 of attempt 0 trained on to step 6")


@pytest.mark.parametrize("step", [3, 4, 9])
def test_a_notice_asks_for_nothing_up_to_what_was_restored_or_after_what_was_reached(step: int) -> None:
    log = first(2, 4).fence().choose(checkpoint(4, 0)).publish(6)
    assert found(log, *trained(EVERY_2, 0, 4), noticed(step, 1), *trained(EVERY_2, 1, 7, (4, 0))) == ("valid", "")


def test_what_was_restored_may_be_published_again() -> None:
    """Whether that is right is for the ledger: a save did fall due there, in the attempt before."""
    log = first(2, 4, 5).fence().choose(checkpoint(5, 0)).publish(5, 6)
    events = [*trained(EVERY_2, 0, 5, staged=((5, 0),)), *trained(EVERY_2, 1, 6, (5, 0))]
    assert found(log, noticed(5, 0), *events) == ("valid", "")


def test_a_save_that_was_left_out_is_told_with_the_next_one_that_was_published() -> None:
    log = first(2, 6, 8, 10).fence()
    assert found(log)[1] == "the save of step 4 in attempt 0 was skipped: it was never published, that of step 6 was"


def test_nothing_is_due_after_the_last_that_was_published_unless_the_run_finished() -> None:
    log = first(2, 4).fence()
    assert found(log) == ("valid", "")
    run = begun(ranks=1, steps=6)
    assert found(log, said(Finished(6), 0), run=run)[1] == (
        "the save of step 6 in attempt 0 was skipped: it was never published, the run finished"
    )
    assert found(log, said(Finished(6), 1), run=run)[1].count("in attempt 1 was skipped") == 3


def test_a_run_that_says_it_finished_early_has_the_saves_up_to_there() -> None:
    run = begun(ranks=1, save_every_microbatches=1)
    log = Entries().fence().choose(None)
    for step in range(4):
        log.publish(*([step] if step else [])).publish(step, microbatch=1)
    log.publish(4).fence()
    assert found(log, said(Finished(4), 0), run=run) == ("valid", "")
    assert found(log, said(Finished(3), 0), said(Finished(5), 0), run=run)[1].count("never published") == 2


def test_a_first_attempt_that_published_nothing_left_nothing_out() -> None:
    each = begun(ranks=1, save_every=1, save_every_microbatches=1)
    assert found(Entries().fence().choose(None).fence(), run=each) == ("valid", "")


# Attempt 0 has published steps 2, 4 and 6 and staged step 8; it has finished update 9. So step 6 had to be there.
TO_9 = tuple(trained(EVERY_2, 0, 9))


@pytest.mark.parametrize(("step", "explained"), [(8, True), (6, True), (4, False), (2, False)])
def test_a_restart_goes_back_to_the_last_save_but_one_at_most(step: int, explained: bool) -> None:
    verdict, witness = found(first(2, 4, 6, 8).fence().choose(checkpoint(step, 0)), *TO_9)
    words = (f"attempt 1 redid {9 - step} steps from step {step}, which nothing explains: at step 9 of attempt 0 the "
             "save of step 6 had to be there, and no candidate was rejected")  # fmt: skip
    assert (verdict, witness) == (("valid", "") if explained else ("invalid", words))


@pytest.mark.parametrize(("step", "explains"), [(8, True), (6, True), (4, False)])
def test_a_rejection_of_what_was_needed_or_of_a_newer_one_explains_it(step: int, explains: bool) -> None:
    log = first(2, 4, 6, 8).fence().choose(checkpoint(2, 0), note(checkpoint(step, 0), "rejected", "digest"))
    assert found(log, *TO_9)[0] == ("valid" if explains else "invalid")
    listed = first(2, 4, 6, 8).fence().choose(checkpoint(2, 0), note(checkpoint(step, 0), "not_examined"))
    assert found(listed, *TO_9)[0] == "invalid"


def test_rejections_of_the_attempts_in_between_count_and_no_others() -> None:
    """Attempt 0 trains, attempts 1 and 2 only choose, attempt 3 goes back to step 2; attempts 4 and 5 come after it."""
    rejected = note(checkpoint(6, 0), "rejected", "digest")
    for by, explains in ((1, True), (2, True), (3, True), (4, False), (5, False), (None, False)):
        log = first(2, 4, 6, 8)
        for attempt in range(1, 6):
            log.fence()
            if attempt in (3, by):
                parent = checkpoint(2 if attempt >= 3 else 6, 0)
                log.choose(parent, *([rejected] if attempt == by else []))
        _, witness = found(log, *TO_9)
        assert ("attempt 3 redid 7 steps from step 2" in witness) != explains, by


def test_an_attempt_whose_fence_is_not_there_is_passed_over() -> None:
    log = first(2, 4, 6, 8)
    log.attempt = 1
    log.fence().choose(checkpoint(2, 0))
    assert "attempt 2 redid 7 steps from step 2" in found(log, *TO_9)[1]


def test_what_an_attempt_of_no_fence_trained_bounds_nothing() -> None:
    log = first(2, 4, 6, 8)
    assert found(log.fence().choose(checkpoint(8, 0)), *trained(EVERY_2, 7, 9)) == ("valid", "")
    log.attempt = 8
    assert found(log.fence().choose(checkpoint(2, 0)), *trained(EVERY_2, 7, 9)) == ("valid", "")


def left(step: int, attempt: int) -> Event[Leaving]:
    return said(Leaving(0, step), attempt)


@pytest.mark.parametrize(("step", "explained"), [(8, False), (9, True)])
def test_what_a_rank_saw_published_when_it_left_must_be_taken(step: int, explained: bool) -> None:
    log = first(2, 4, 6, 8, 9).fence().choose(checkpoint(step, 0))
    events = [*TO_9, noticed(9, 0), said(SaveStaged(0, 9), 0)]
    verdict, witness = found(log, *events, left(9, 0))
    assert verdict == ("valid" if explained else "invalid")
    assert ("at step 9 of attempt 0 the save of step 9 had to be there" in witness) != explained
    assert found(log, *events, left(9, 1)) == ("valid", "")


def test_a_rank_that_left_before_anything_else_was_saved() -> None:
    log = first(1).fence().choose(None)
    verdict, witness = found(log, *trained(EVERY_2, 0, 1, staged=((1, 0),)), noticed(1, 0), left(1, 0))
    assert verdict == "invalid"
    assert "attempt 1 redid 1 steps from step 0" in witness
    assert "at step 1 of attempt 0 the save of step 1 had to be there" in witness


@pytest.mark.parametrize("staged", [(), ((4, 0),), ((2, 0),)])
def test_with_one_save_since_its_start_an_attempts_own_start_had_to_be_there(staged: tuple[Moment, ...]) -> None:
    """A record of what it began with, or of what lay before that, adds no save to bound it by."""
    log = first(2, 4).fence().choose(checkpoint(4, 0)).fence().choose(checkpoint(2, 0))
    _, witness = found(log, *trained(EVERY_2, 0, 5), *trained(EVERY_2, 1, 7, (4, 0), staged=staged))
    assert witness == (
        "attempt 2 redid 5 steps from step 2, which nothing explains: at step 7 of attempt 1 step 4, from which "
        "attempt 1 started, had to be there, and no candidate was rejected"
    )


def test_what_only_another_attempt_staged_bounds_nothing() -> None:
    log = first(2, 4, 6).fence().choose(checkpoint(4, 0))
    events = list(trained(EVERY_2, 0, 7))
    assert found(log, *events, said(SaveStaged(0, 8), 1)) == ("valid", "")
    assert found(log, *events, said(SaveStaged(0, 8), 0))[0] == "invalid"


def test_inside_a_step_the_bound_is_a_microbatch() -> None:
    """Update 2 is done, so its microbatches 1 and 2 were staged; of these only the first had to be published."""
    log = Entries().fence().choose(None)
    log.publish(0, microbatch=1).publish(0, microbatch=2).publish(1).publish(1, microbatch=1).publish(1, microbatch=2)
    events = list(trained(INSIDE, 0, 2, lacks=((2, 0),)))
    for moment, explained in ((checkpoint(1, 0, 2), True), (checkpoint(1, 0, 1), True), (checkpoint(1, 0), False)):
        log.made, log.attempt = log.made[:7], 0
        verdict, witness = found(log.fence().choose(moment), *events, run=INSIDE)
        assert verdict == ("valid" if explained else "invalid")
        assert ("the save of step 1, microbatch 1 had to be there" in witness) != explained


def test_at_the_end_of_the_run_and_behind_it_nothing_falls_due_any_more() -> None:
    run = begun(steps=5)
    assert due(run, (3, 0), (5, 0)) == due(run, (3, 0), (9, 0)) == [(4, 0), (5, 0)]
    assert due(run, (5, 0), (5, 0)) == due(run, (5, 0), (9, 0)) == due(run, (7, 0), (9, 0)) == []
