"""Checkpoints inside a step: what is right passes, and each kind of wrong one is named (invariants 1 to 4 and 8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Judge
from simulated_run import Edit, Settings, Simulation, fault

from chaos.audit import Verdict, audit_run

FAULT = fault(0, 0, "rank", 1, "microbatch.backward", hit=19)
LINE = {
    "microbatches": 4, "global_batch": 16, "steps": 8, "save_every": 3, "save_every_microbatches": 1, "keep": 99,
}  # fmt: skip


def simulation(tmp_path: Path, edit: Edit = lambda kind, thing: None, **settings: Any) -> Simulation:
    return Simulation(tmp_path / "run", Settings(**{**LINE, "faults": [FAULT], **settings}), edit)


def killed(sim: Simulation, microbatches: int = 3, step: int = 4) -> Simulation:
    """A rank dies after so many microbatches of update `step`, every save being published; nothing restarts yet."""
    sim.start()
    sim.train(step, microbatches=microbatches)
    sim.kill(FAULT)
    return sim


def to_the_end(sim: Simulation) -> Path:
    sim.train(sim.set.steps)
    sim.finish()
    return sim.folder


def recovered(tmp_path: Path, edit: Edit = lambda kind, thing: None, **settings: Any) -> Path:
    sim = killed(simulation(tmp_path, edit, **settings))
    sim.recover()
    return to_the_end(sim)


def wrong(verdict: Verdict) -> dict[int, str]:
    return {i.id: i.finding.witness for i in verdict.invariants if i.finding.verdict in ("invalid", "unknown")}


# -- right


@pytest.mark.no_cover
@pytest.mark.parametrize("every", [1, 2, 3, 5])
@pytest.mark.parametrize("microbatches", [0, 1, 2, 3])
def test_a_kill_anywhere_in_a_step(tmp_path: Path, every: int, microbatches: int) -> None:
    sim = killed(simulation(tmp_path, save_every_microbatches=every), microbatches)
    newest = sim.branch[-1]["name"]
    sim.recover()
    verdict = audit_run(to_the_end(sim))
    assert verdict.verdict == "valid", wrong(verdict)
    done = 16 + microbatches
    saved = max(done // every * every, 12)  # step 3 is saved in any case
    (recovery,) = verdict.recoveries
    assert (recovery.restored_step, recovery.restored_microbatch) == divmod(saved, 4), newest
    assert recovery.redo_steps == 4 - saved // 4
    assert recovery.redo_samples == 4 * (max(saved, 16) - saved)  # of finished updates only: 4 samples a microbatch


def test_the_unfinished_update_is_counted_apart(tmp_path: Path) -> None:
    sim = simulation(tmp_path)
    sim.start()
    sim.train(4, microbatches=1)
    sim.microbatch = 1
    sim.train(4, publish=False, microbatches=2)  # one more save fell due, and was not published
    sim.kill(FAULT)
    sim.recover()
    verdict = audit_run(to_the_end(sim))
    assert verdict.verdict == "valid", wrong(verdict)
    (recovery,) = verdict.recoveries
    assert (recovery.redo_steps, recovery.redo_samples, recovery.redo_microbatches) == (0, 0, 1)


def test_without_saves_inside_steps_nothing_is_known_of_partial_microbatches(tmp_path: Path) -> None:
    sim = killed(simulation(tmp_path, save_every_microbatches=None))
    sim.recover()
    (recovery,) = audit_run(to_the_end(sim)).recoveries
    assert (recovery.restored_step, recovery.restored_microbatch, recovery.redo_microbatches) == (3, 0, None)


def test_a_run_that_stopped_inside_a_step(tmp_path: Path) -> None:
    """The ledger may end there; the run has not reached its target, so nothing is valid as a whole."""
    sim = killed(simulation(tmp_path))
    sim.close()
    verdict = audit_run(sim.folder)
    assert verdict.invariant(3).verdict == "valid", verdict.invariant(3)
    assert verdict.verdict == "unknown"


def test_the_boundary_after_it_is_newer(tmp_path: Path, judged: Judge) -> None:
    sim = killed(simulation(tmp_path), 0)
    assert [p["name"] for p in sim.branch[-2:]] == ["s00000003-m0003-a0000", "s00000004-a0000"]
    sim.recover(take=1)
    judged(to_the_end(sim), 2, "invalid", "took s00000003-m0003-a0000, older than s00000004-a0000")


def test_an_older_one_of_the_same_step(tmp_path: Path, judged: Judge) -> None:
    sim = killed(simulation(tmp_path))
    sim.recover(take=1)
    judged(to_the_end(sim), 2, "invalid", "took s00000004-m0002-a0000, older than s00000004-m0003-a0000")


# -- the ledger


def test_a_repeated_microbatch(tmp_path: Path, judged: Judge) -> None:
    """The gradients hold three microbatches, the data goes on behind the second: the third is in them twice."""
    sim = killed(simulation(tmp_path))
    sim.recover()
    sim.microbatch = 2
    judged(to_the_end(sim), 3, "invalid", "applied twice", "at step 4 by attempt 0", "at step 4 by attempt 1",
           "in a ledger segment that does not cover that step and microbatch")  # fmt: skip


def test_a_lost_microbatch(tmp_path: Path, judged: Judge) -> None:
    """The gradients hold two microbatches, the data goes on behind the third."""
    sim = killed(simulation(tmp_path), 2)
    sim.recover()
    sim.microbatch = 3
    text = judged(to_the_end(sim), 3, "invalid", "never applied", "recorded other samples for step 4")
    assert "positions 68–69" in text  # rank 0: 64 + 2·2; a microbatch of a rank is two samples


def test_a_microbatch_that_is_missing_from_the_segment(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "segment" and (thing["meta"]["step"], thing["meta"].get("microbatch")) == (4, 3):
            thing["rows"].update({name: column[:0] for name, column in thing["rows"].items()})

    judged(recovered(tmp_path, edit), 3, "invalid", "never applied")


def test_rows_under_another_microbatch(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "rows" and thing["rank"] == 1 and thing["step"][0] == 2:
            thing["microbatch"] = thing["microbatch"][::-1].copy()

    judged(recovered(tmp_path, edit), 3, "invalid", "in another microbatch than the position belongs to")


@pytest.mark.parametrize(
    ("place", "change", "words"),
    [
        ((4, 0), {"first_microbatch": None}, "covers updates 3 to 3, it must be 3 (from microbatch 3 on) to 3"),
        ((4, 2), {"first_microbatch": 2}, "covers updates 4 (from microbatch 2 on) to 4 (of it 2 microbatches)"),
        ((4, 3), {"microbatch": 2}, "it must be 4 (from microbatch 2 on) to 4 (of it 3 microbatches)"),
    ],
)
def test_a_segment_that_begins_or_ends_elsewhere(
    tmp_path: Path, judged: Judge, place: tuple[int, int], change: dict[str, int | None], words: str
) -> None:
    def edit(kind: str, thing: Any) -> None:
        meta = thing["meta"] if kind == "segment" else {}
        if meta and (meta["step"], meta.get("microbatch", 0)) == place:
            meta.update(change)
            for key in [key for key, value in meta.items() if value is None]:
                del meta[key]

    judged(recovered(tmp_path, edit), 3, "invalid", words)


# -- one moment


def at(step: int, microbatch: int, kind: str = "shard", rank: int = 0) -> Any:
    """Whether an edited thing is that rank's shard of that moment."""

    def matches(of_kind: str, thing: Any) -> bool:
        inside = int(thing["meta"].get("microbatch", 0)) if of_kind == "shard" else 0
        return of_kind == kind and (thing["step"], inside, thing["rank"]) == (step, microbatch, rank)

    return matches


def _next_gradients(thing: Any) -> None:
    thing["local"]["gradient/p0"] = thing["local"]["gradient/p0"] + np.float32(1 / 8)


def _count_of_another(thing: Any) -> None:
    said = json.loads(thing["texts"]["accumulation"])
    thing["texts"]["accumulation"] = json.dumps({**said, "microbatch": 2})


def _mean_of_means(thing: Any) -> None:
    said = json.loads(thing["texts"]["accumulation"])
    thing["texts"]["accumulation"] = json.dumps({**said, "denominator": 4})


def _no_loss(thing: Any) -> None:
    said = json.loads(thing["texts"]["accumulation"])
    thing["texts"]["accumulation"] = json.dumps({**said, "loss_sum": None})


def _carries_a_scale(thing: Any) -> None:
    said = json.loads(thing["texts"]["accumulation"])
    thing["texts"]["accumulation"] = json.dumps({**said, "scale": {"~": "f", "v": (8.0).hex()}})


def _other_samples(thing: Any) -> None:
    thing["local"]["accumulation/sample_ids"] = thing["local"]["accumulation/sample_ids"][::-1].copy()


def _too_few_samples(thing: Any) -> None:
    thing["local"]["accumulation/sample_ids"] = thing["local"]["accumulation/sample_ids"][:-1].copy()


def _a_gradient_lost(thing: Any) -> None:
    del thing["local"]["gradient/p1"]


def _no_gradients(thing: Any) -> None:
    del thing["local"]["gradient/p0"], thing["local"]["gradient/p1"]


def _no_number(thing: Any) -> None:
    said = json.loads(thing["texts"]["accumulation"])
    thing["texts"]["accumulation"] = json.dumps({**said, "loss_sum": {"~": "f"}})


def _no_json(thing: Any) -> None:
    thing["texts"]["accumulation"] = "{"


def _narrower(thing: Any) -> None:
    thing["local"]["gradient/p1"] = thing["local"]["gradient/p1"].astype(np.float64)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_next_gradients, "gradients of rank 0 is of another moment: not what the rank digested when the save fell"),
        (_count_of_another, "the accumulation of rank 0 has microbatch 2, the checkpoint 3"),
        (_mean_of_means, "the accumulation of rank 0 has denominator 4, the checkpoint 16"),
        (_no_loss, "the accumulation of rank 0 has no sum of its losses"),
        (_no_number, "the accumulation of rank 0 has no sum of its losses"),
        (_no_json, "the accumulation of rank 0 has step None, the checkpoint 4"),
        (_carries_a_scale, "the partial gradients of rank 0 carry the scale 8.0, its gradient scaler has None"),
        (_other_samples, "are not of the samples that the ledger says it had consumed"),
        (_too_few_samples, "names I64[5] samples, not 6"),
        (_a_gradient_lost, "the shard of rank 0 lacks gradient/p1, which another rank has"),
        (_no_gradients, "the shard of rank 0 has no partial gradients"),
        (_narrower, "gradient/p1 of rank 0 is F64[4], its parameter F32[4]"),
    ],
)
def test_a_partial_state_of_two_moments(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    """Every digest downstream fits what was changed: only the moment does not. What was restored is as it was saved."""
    moment = at(4, 3)

    def edit(kind: str, thing: Any) -> None:
        if moment(kind, thing):
            change(thing)

    judged(recovered(tmp_path, edit), 4, "invalid", "s00000004-m0003-a0000", words)


def test_a_shard_of_another_microbatch(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and thing["meta"].get("microbatch") == "3" and (thing["step"], thing["rank"]) == (4, 1):
            thing["meta"]["microbatch"] = "2"

    judged(recovered(tmp_path, edit), 4, "invalid", "the shard of rank 1 is of microbatch 2, the manifest of 3")


def test_gradients_that_did_not_come_back(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "restored" and thing["attempt"] == 1 and thing.get("rank") == 0:
            thing["parts"] = {name: part for name, part in thing["parts"].items() if name != "gradients"}

    judged(recovered(tmp_path, edit), 4, "invalid", "its live gradients is not the manifest's")


def test_a_step_begun_anew_from_a_checkpoint_inside_it(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "restored" and thing["attempt"] == 1 and "rank" in thing:
            thing.pop("microbatch")

    judged(recovered(tmp_path, edit), 2, "invalid", "restored 0 microbatches of the update after step 4, "
           "s00000004-m0003-a0000 holds 3")  # fmt: skip


@pytest.mark.parametrize("whole", [True, False])
def test_a_history_that_does_not_say_what_the_gradients_were(tmp_path: Path, judged: Judge, whole: bool) -> None:
    """whole: the history does not even say that the save fell due."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "save_due" and thing.get("microbatch") and thing["step"] == 4:
            thing.update({"drop": True} if whole else {"parts": None})

    judged(recovered(tmp_path, edit), 4, "unknown", "does not say what its partial gradients were")


def test_gradients_are_judged_where_the_run_is_not_known(tmp_path: Path, judged: Judge) -> None:
    moment = at(4, 3)

    def edit(kind: str, thing: Any) -> None:
        if moment(kind, thing):
            _next_gradients(thing)
            _count_of_another(thing)
        if kind == "event" and thing["event"] == "run":
            thing["drop"] = True

    witness = judged(recovered(tmp_path, edit), 4, "invalid", "gradients of rank 0 are of another moment")
    assert "has microbatch 2" not in witness


def test_as_many_microbatches_as_a_step_has(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "run":
            thing["microbatches"] = 3

    judged(recovered(tmp_path, edit), 4, "invalid", "it has 3 microbatches of a step that is of 3")


def test_samples_are_held_against_a_ledger_that_goes_back_to_the_beginning_of_the_step(
    tmp_path: Path, judged: Judge
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "segment" and (thing["meta"]["step"], thing["meta"].get("microbatch")) == (0, 1):
            thing["meta"]["first_microbatch"] = 1
        if kind == "shard" and (thing["step"], thing["meta"].get("microbatch")) == (0, "2"):
            _other_samples(thing)

    folder = recovered(tmp_path, edit)
    judged(folder, 3, "invalid")
    witness = judged(folder, 4, "invalid", "accumulation of rank 0 is of another")
    assert "not of the samples that the ledger" not in witness


def test_samples_are_not_held_against_a_ledger_of_which_a_part_is_lost(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and (thing["step"], thing["meta"].get("microbatch")) == (0, "2"):
            _other_samples(thing)

    folder = recovered(tmp_path, edit)
    assert "rank 0 are not of the samples that the ledger" in judged(folder, 4, "invalid")
    lost = folder / "store" / "ledger" / "s00000000-m0001-a0000-r0000.arrow"
    lost.unlink()
    assert lost.name in judged(folder, 1, "invalid")
    witness = judged(folder, 4, "invalid", "accumulation of rank 0 is of another")
    assert "rank 0 are not of the samples that the ledger" not in witness


@pytest.mark.parametrize("microbatch", [None, 2])
def test_a_manifest_of_another_microbatch_than_its_name(
    tmp_path: Path, judged: Judge, microbatch: int | None
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["name"] == "s00000004-m0003-a0000":
            thing.pop("microbatch")
            thing.update({} if microbatch is None else {"microbatch": microbatch})

    judged(recovered(tmp_path, edit), 1, "invalid", "s00000004-m0003-a0000.json is of step 4 of attempt 0")


# -- redo


def test_a_save_inside_a_step_that_was_skipped(tmp_path: Path, judged: Judge) -> None:
    class Skipping(Simulation):
        def save(self, publish: bool = True, microbatch: int = 0) -> None:
            if (self.step, microbatch) != (2, 3):
                super().save(publish, microbatch)

    sim = killed(Skipping(tmp_path / "run", Settings(**{**LINE, "faults": [FAULT]})))  # type: ignore[arg-type]
    sim.recover()
    skipped = "the save of step 2, microbatch 3"
    judged(to_the_end(sim), 8, "invalid", f"{skipped} was skipped: rank 0 of attempt 0",
           f"{skipped} in attempt 0 was skipped: it was never published, that of step 3 was")  # fmt: skip


def test_a_restart_that_ignored_what_lay_inside_steps(tmp_path: Path, judged: Judge) -> None:
    sim = killed(simulation(tmp_path))
    sim.recover(take=3)
    judged(to_the_end(sim), 8, "invalid", "attempt 1 redid 0 steps from step 4, which nothing explains", "the save of "
           "step 4, microbatch 2 had to be there")  # fmt: skip


def test_retention_keeps_the_newest_two_whatever_their_kind(tmp_path: Path, judged: Judge) -> None:
    sim = killed(simulation(tmp_path))
    sim.retire(["s00000004-m0002-a0000"])
    sim.recover()
    judged(to_the_end(sim), 7, "invalid", "retired s00000004-m0002-a0000, at that time a checkpoint that is needed")


# -- same trajectory


def beside_twin(tmp_path: Path, edit: Edit = lambda kind, thing: None, **twins: Any) -> Path:
    """A run killed inside a step, and its twin inside the folder. twins: settings that only the twin has."""
    folder = recovered(tmp_path, edit, twin=True)
    twin = Simulation(folder / "twin", Settings(**{**LINE, **twins}))
    twin.start()
    to_the_end(twin)
    return folder


@pytest.mark.parametrize("every", [None, 1, 3])
def test_a_start_inside_a_step_is_compared_in_what_updates_alone_change(
    tmp_path: Path, judged: Judge, every: int | None
) -> None:
    """Its generators are ahead of the twin's at the step's end. The twin may have been saved at other moments."""
    judged(beside_twin(tmp_path, save_every_microbatches=every), 5, "valid")


def test_a_start_inside_a_step_with_another_optimizer(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "restored" and thing["attempt"] == 1 and thing.get("rank") == 1:
            thing["state"]["optimizer"] = "0" * 16

    judged(beside_twin(tmp_path, edit), 5, "invalid", "attempt 1, step 4, rank 1: not the twin's optimizer as restored")


def test_partial_gradients_are_compared_where_the_twin_was_saved_at_the_same_moment(
    tmp_path: Path, judged: Judge
) -> None:
    moment = at(4, 3)

    def edit(kind: str, thing: Any) -> None:
        if moment(kind, thing):
            _next_gradients(thing)

    judged(beside_twin(tmp_path, edit), 5, "invalid", "checkpoint s00000004-m0003-a0000: not the twin's gradients of "
           "rank 0")  # fmt: skip


# -- what is known through an attempt that ended before it finished an update


def twice_inside(tmp_path: Path, edit: Edit = lambda kind, thing: None, **settings: Any) -> Path:
    """Attempt 1 goes on inside update 4 and is killed inside it too; attempt 2 finishes it."""
    again = fault(1, 1, "rank", 0, "microbatch.backward", hit=2)
    sim = killed(simulation(tmp_path, edit, faults=[FAULT, again], **settings), 1)
    sim.recover()
    sim.train(4, microbatches=3)
    sim.kill(again)
    sim.recover()
    return to_the_end(sim)


@pytest.mark.parametrize("keep_best", [False, True])
def test_two_kills_inside_one_step(tmp_path: Path, keep_best: bool) -> None:
    verdict = audit_run(twice_inside(tmp_path, keep_best=keep_best))
    assert verdict.verdict == "valid", wrong(verdict)
    assert [(r.restored_step, r.restored_microbatch) for r in verdict.recoveries] == [(4, 1), (4, 3)]


@pytest.mark.parametrize(("step", "attempt"), [(4, 1), (6, 2)])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"best_metric": (0.001).hex()}, "the best metric of rank 0 is"),
        ({"loss_tail": [(0.5).hex()]}, "has the loss 0x1.0000000000000p-1 for step 1, the record 0x1.0000000000000p+0"),
    ],
)
def test_a_progress_is_judged_through_an_attempt_without_an_update(
    tmp_path: Path, judged: Judge, step: int, attempt: int, changes: dict[str, Any], words: str
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and (thing["step"], thing["attempt"]) == (step, attempt):
            progress = json.loads(thing["texts"]["progress"])
            tail = {"loss_tail": changes["loss_tail"] + progress["loss_tail"][1:]} if "loss_tail" in changes else {}
            thing["texts"]["progress"] = json.dumps({**progress, **changes, **tail})

    judged(twice_inside(tmp_path, edit), 4, "invalid", words)


def test_an_abandoned_update_of_which_a_part_was_published_consumed_other_samples(
    tmp_path: Path, judged: Judge
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step":
            where = thing["attempt"], thing["rank"], thing["step"]
            thing["ids"] = "xxh3-128:" + "0" * 32 if where == (0, 1, 5) else thing["ids"]

    sim = simulation(tmp_path, edit)
    sim.start()
    sim.train(4, microbatches=3)
    sim.microbatch = 3
    sim.train(5, publish=False)
    sim.kill(FAULT)
    sim.recover()
    judged(to_the_end(sim), 3, "invalid", "rank 1 of attempt 0 recorded other samples for step 4 than the plan says")
