"""Invariant 4 between checkpoints: a part that one of them lacks, and counters that do not advance with the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Judge
from simulated_run import F0, F1, Edit, Settings, Simulation, killed_twice, loss, two_kills

from chaos.audit import audit_run

LAST = 12


def on_last(change: Any, ranks: tuple[int, ...] = (0, 1)) -> Edit:
    """Changes the shards of the last checkpoint, everywhere alike, before they are digested and sealed."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and thing["step"] == LAST and thing["rank"] in ranks:
            change(thing)

    return edit


def drop(prefix: str) -> Any:
    def change(thing: dict[str, Any]) -> None:
        for place in ("shared", "mine", "local"):
            for name in [name for name in thing[place] if name.startswith(prefix)]:
                del thing[place][name]

    return change


def put(place: str, name: str, value: Any) -> Any:
    """value: None for the one that is there, without its content."""

    def change(thing: dict[str, Any]) -> None:
        for where in ("shared", "mine") if place == "shared" else (place,):
            if name in thing[where]:
                thing[where][name] = value

    return change


def text(part: str, value: object) -> Any:
    return lambda thing: thing["texts"].update({part: json.dumps(value)})


def progress(**changes: Any) -> Any:
    return lambda thing: text("progress", {**json.loads(thing["texts"]["progress"]), **changes})(thing)


EMPTY = np.zeros(0, np.float32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop("model/"), "s00000012-a0002: it holds no tensor of the model"),
        (drop("model/p1"), "tensor model/p1 is only in s00000002-a0000, not in both"),
        (put("shared", "model/p0", EMPTY), "tensor model/p0 is F32[0], in s00000010-a0002 it is F32[4]"),
        (put("shared", "model/p0", np.zeros(4)), "tensor model/p0 is F64[4], in s00000010-a0002 it is F32[4]"),
        (drop("optimizer/"), "tensor optimizer/p0/exp_avg is gone, s00000010-a0002 had it"),
        (put("shared", "optimizer/p0/exp_avg", np.zeros(2, np.float32)), "tensor optimizer/p0/exp_avg is F32[2]"),
        (drop("buffer/"), "tensor buffer/n of rank 0 is only in s00000002-a0000"),
        (drop("rng/"), "it holds no state of torch's generator of rank 0"),
        (text("scheduler", None), "part scheduler is empty here or in s00000002-a0000, and not in both"),
        (text("scaler", {"scale": 2}), "part scaler is empty here or in s00000002-a0000"),
        (text("optimizer", None), "part optimizer of rank 0 is empty"),
        (text("rng.numpy", None), "part rng.numpy of rank 0 is empty"),
        (text("rng.python", None), "part rng.python of rank 0 is empty"),
        (text("scheduler", {"last_epoch": 3}), "the scheduler of rank 0 has seen 3 steps at step 12, in"),
        (put("shared", "optimizer/p0/step", np.array(10, np.float32)),
         "optimizer/p0/step counts 10 updates, as in s00000010-a0002, but model/p0 was updated since"),
        (put("shared", "optimizer/p0/step", np.array(9, np.float32)), "counts 9 updates, -1 more than in"),
        (put("shared", "optimizer/p0/step", np.array(13, np.float32)), "counts 13 updates, 3 more than in"),
        (progress(samples_seen=88), "the progress of rank 0 has samples_seen 88, it must be 96"),
        (progress(loss_count=3), "has loss_count 3, it must be 12"),
        (progress(loss_tail=[]), "has a tail of 0 losses, it must be 12"),
        (progress(loss_tail=None), "has a tail of no losses"),
        (progress(loss_tail=[loss(step) for step in [*range(1, 9), 8, 10, 11, 12]]),
         f"has the loss {loss(8)} for step 9, the record {loss(9)}"),
        (progress(best_metric=loss(4)), f"best metric of rank 1 is {loss(4)} of step 12"),
        (progress(best_step=2), f"best metric of rank 1 is {loss(12)} of step 2"),
        (progress(updates=10, skipped=2), "has 2 skipped updates, the record 0"),
    ],
)  # fmt: skip
def test_the_last_checkpoint_lacks_what_others_have(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    judged(two_kills(tmp_path / "run", on_last(change)).folder, 4, "invalid", "s00000012-a0002: ", words)


@pytest.mark.parametrize("part", ["scheduler", "scaler", "progress"])
def test_what_is_the_same_on_all_ranks(tmp_path: Path, judged: Judge, part: str) -> None:
    def change(thing: dict[str, Any]) -> None:
        thing["texts"][part] = json.dumps({**(json.loads(thing["texts"][part]) or {}), "more": 1})

    run = two_kills(tmp_path / "run", on_last(change, ranks=(1,)))
    judged(run.folder, 4, "invalid", f"s00000012-a0002: part {part} is not the same on all ranks")


def test_a_retired_checkpoint_is_compared_by_its_manifest(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and thing["step"] == 4:
            drop("model/p1")(thing)

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid", "s00000004-a0000: tensor model/p1 is only in")


def test_samples_that_a_step_recorded_are_those_of_its_number(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing.get("step"), thing.get("rank")) == ("step", 9, 1):
            thing["samples_seen"] = 64

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid",
           "rank 1 of attempt 2 recorded 64 samples after step 9, which are 72")  # fmt: skip


# -- workloads that are right


def valid(tmp_path: Path, edit: Edit, **settings: Any) -> Simulation:
    """A run of two kills, whose live states after a restore follow what was saved."""

    class Following(Simulation):
        def state(self, step: int, rank: int) -> Any:
            _, shared, local, texts = super().state(step, rank)
            thing = {"shared": shared, "mine": {}, "local": local, "texts": texts, "step": step, "rank": rank}
            edit("state", thing)
            return self.parts(shared, local, texts), shared, local, texts

    sim = killed_twice(Following(tmp_path / "run", Settings(faults=[F0, F1], **settings)))
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid", verdict.invariants
    return sim


@pytest.mark.parametrize("keep", [2, 99])
def test_a_scheduler_may_begin_anywhere(tmp_path: Path, keep: int) -> None:
    valid(tmp_path, lambda kind, thing: text("scheduler", {"last_epoch": thing["step"] + 10})(thing), keep=keep)


@pytest.mark.parametrize("keep", [2, 99])
def test_a_parameter_may_be_frozen_at_first(tmp_path: Path, keep: int) -> None:
    """It is not updated before step 7, and the optimizer makes its state for it then."""

    def frozen(kind: str, thing: dict[str, Any]) -> None:
        updates = max(0, thing["step"] - 7)
        thing["shared"]["model/p0"] = np.full(4, updates, np.float32)
        thing["shared"]["optimizer/p0/step"] = np.array(updates, np.float32)
        if not updates:
            for key in ("step", "exp_avg"):
                thing["shared"].pop(f"optimizer/p0/{key}", None)

    valid(tmp_path, frozen, keep=keep)


def test_a_parameter_may_be_frozen_later(tmp_path: Path) -> None:
    def frozen(kind: str, thing: dict[str, Any]) -> None:
        updates = min(thing["step"], 5)
        thing["shared"]["model/p0"] = np.full(4, updates, np.float32)
        if updates:
            thing["shared"]["optimizer/p0/step"] = np.array(updates, np.float32)

    valid(tmp_path, frozen, keep=99)


def test_an_optimizer_may_begin_with_a_state(tmp_path: Path) -> None:
    def begun(kind: str, thing: dict[str, Any]) -> None:
        thing["shared"]["optimizer/p0/step"] = np.array(1000 + thing["step"], np.float32)

    valid(tmp_path, begun, keep=99)


def test_a_long_run_keeps_the_tail_of_its_losses_only(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(steps=300, save_every=100))
    sim.start()
    sim.train(300)
    sim.finish()
    assert audit_run(sim.folder).invariant(4).verdict == "valid"


def test_without_the_number_of_updates_their_counters_prove_nothing(tmp_path: Path, judged: Judge) -> None:
    def change(thing: dict[str, Any]) -> None:
        progress(updates=None)(thing)
        put("shared", "optimizer/p0/step", np.array(13, np.float32))(thing)

    witness = judged(two_kills(tmp_path / "run", on_last(change)).folder, 4, "invalid", "has None updates")
    assert "counts 13" not in witness
