"""Invariant 4: parts of two moments, parts that are missing, and live states that are not what was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audit_files import bodies, rechain
from judging import Judge
from simulated_run import Edit, Settings, Simulation, two_kills

NAME = "s00000004-a0000"


def on_shard(change: Any, rank: int = 1) -> Edit:
    """Changes the shard of one rank of NAME before it is digested and sealed."""
    return lambda kind, thing: (
        change(thing) if kind == "shard" and (thing["step"], thing["rank"]) == (4, rank) else None
    )


def on_manifest(change: Any) -> Edit:
    return lambda kind, thing: change(thing) if kind == "manifest" and thing["name"] == NAME else None


def progress(**changes: Any) -> Any:
    def change(thing: dict[str, Any]) -> None:
        value = json.loads(thing["texts"]["progress"])
        thing["texts"]["progress"] = json.dumps({**value, **changes})

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t["meta"].update(attempt="1"), "the shard of rank 1 is of attempt 1, the manifest of 0"),
        (lambda t: t["meta"].update(step="5"), "the shard of rank 1 is of step 5, the manifest of 4"),
        (lambda t: t["meta"].update(cursor="40"), "the shard of rank 1 is of cursor 40, the manifest of 32"),
        (lambda t: t["meta"].update(run="other"), "is of run other"),
        (lambda t: t["meta"].pop("world"), "is of world None, the manifest of 2"),
        (lambda t: t["meta"].update(format="x/1"), "is of format x/1"),
        (progress(step=5), "the progress of rank 1 is at step 5, the manifest at 4"),
        (progress(cursor=40), "the progress of rank 1 is at cursor 40, the manifest at 32"),
        (progress(updates=3), "has 3 updates and 0 skipped ones, not 4"),
        (progress(skipped=None), "has 4 updates and None skipped ones"),
        (lambda t: t["texts"].update(progress="{"), "is at step None"),
        (lambda t: t["texts"].update(progress="[1]"), "is at step None"),
        (lambda t: t["texts"].update(scheduler='{"last_epoch": 5}'),
         "the scheduler of rank 1 has seen 5 steps at step 4, in s00000002-a0000 2 at step 2"),
        (lambda t: t["texts"].pop("rng.python"), "the shard of rank 1 has no part rng.python"),
        (lambda t: t["texts"].update(optimizer="{}"), "the shards hold 2 different optimizer settings"),
        (lambda t: t["mine"].update({"model/p0": np.zeros(4, np.float32)}),
         "tensor model/p0 is in the shards of ranks 0 and 1, it must be in one"),
        (lambda t: t["mine"].update({"optimizer/p1/step": np.array(5, np.float32)}),
         "optimizer/p1/step counts 5 updates, 3 more than in s00000002-a0000, 2 updates before"),
    ],
)  # fmt: skip
def test_a_shard_of_another_moment(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    judged(two_kills(tmp_path / "run", on_shard(change), keep=99).folder, 4, "invalid", NAME, words)


def test_a_counter_that_holds_more_than_a_number_is_none(tmp_path: Path, judged: Judge) -> None:
    def vector(thing: dict[str, Any]) -> None:
        thing["shared"]["optimizer/p1/step"] = thing["mine"]["optimizer/p1/step"] = np.zeros(2, np.float32)

    def edit(kind: str, thing: Any) -> None:
        if kind == "shard":
            thing["shared"]["optimizer/p1/step"] = np.zeros(2, np.float32)
            if thing["rank"] == 1:
                vector(thing)
        if kind == "event" and thing["event"] == "restored":
            thing.get("parts", {}).pop("optimizer", None)

    witness = judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid")
    assert "counts" not in witness


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m["tensors"].update({"model/p1": "xxh3-128:0"}), "tensor model/p1 in the shard of rank"),
        (lambda m: m["tensors"].update({"model/p2": "xxh3-128:0"}), "tensor model/p2 is in no shard"),
        (
            lambda m: m["parts"].update(model="xxh3-128:0"),
            "the digest of part model is not that of its tensors",
        ),
        (
            lambda m: m["parts"].update(optimizer="x"),
            "part optimizer, computed from the shards, is not the one",
        ),
        (lambda m: m["ranks"][1]["parts"].update(scheduler="x"), "part scheduler of rank 1 is not the one"),
        (
            lambda m: m["ranks"][0]["parts"].update(buffers="x"),
            "the digest of part buffers of rank 0 is not that",
        ),
        (
            lambda m: m["ranks"][0]["tensors"].update({"rng/torch": "x"}),
            "tensor rng/torch of rank 0 is not the one",
        ),
        (
            lambda m: m["ranks"][0]["parts"].update({"rng.cuda": "x"}),
            "part rng.cuda of rank 0 is not the one",
        ),
        (lambda m: m.update(cursor=33), "cursor 33 does not belong to step 4 (batch 8)"),
    ],
)
def test_a_manifest_that_does_not_fit_its_shards(
    tmp_path: Path, judged: Judge, change: Any, words: str
) -> None:
    judged(two_kills(tmp_path / "run", on_manifest(change), keep=99).folder, 4, "invalid", NAME, words)


@pytest.mark.parametrize(("key", "value"), [("attempt", 1), ("step", 5), ("rank", 0), ("run", "other")])
def test_a_ledger_segment_of_another_moment(tmp_path: Path, judged: Judge, key: str, value: Any) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "segment" and (thing["meta"]["step"], thing["meta"]["rank"]) == (4, 1):
            thing["meta"][key] = value

    judged(
        two_kills(tmp_path / "run", edit).folder,
        4,
        "invalid",
        f"the ledger segment of rank 1 is of {key} {value}",
    )


def test_retired_checkpoints_are_judged_by_their_manifest(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["step"] == 2:
            thing["parts"]["model"] = "x"

    judged(
        two_kills(tmp_path / "run", edit).folder, 4, "invalid", "s00000002-a0000: the digest of part model"
    )


def test_the_number_of_ranks_is_that_of_the_run(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "run":
            thing["ranks"] = 3

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid", "is of 2 ranks, the run has 3")


def on_restored(change: Any, attempt: int = 1, rank: int = 1) -> Edit:
    def edit(kind: str, thing: Any) -> None:
        if (
            kind == "event"
            and thing["event"] == "restored"
            and (thing["attempt"], thing.get("rank")) == (attempt, rank)
        ):
            change(thing)

    return edit


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: e["parts"].update({"rng.numpy": "x"}),
         f"rank 1 of attempt 1 restored {NAME}, but its live rng.numpy is not the manifest's"),
        (lambda e: e["parts"].update(scheduler="x", buffers="y"),
         "its live buffers and scheduler are not the manifest's"),
        (lambda e: e["parts"].pop("scaler"), "its live scaler is not"),
        (lambda e: e["parts"].update(optimizer="x"),
         "the ranks of attempt 1 began with different states of part optimizer"),
        (lambda e: e.update(drop=True), "rank 1 of attempt 1 trained before it digested what it had restored"),
    ],
)  # fmt: skip
def test_the_live_state_after_a_restore(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    judged(two_kills(tmp_path / "run", on_restored(change)).folder, 4, "invalid", words)


def test_ranks_that_start_from_nothing_start_alike(tmp_path: Path, judged: Judge) -> None:
    edit = on_restored(lambda e: e["parts"].update(model="x"), attempt=0)
    judged(
        two_kills(tmp_path / "run", edit).folder,
        4,
        "invalid",
        "attempt 0 began with different states of part model",
    )


def test_a_lost_manifest_leaves_it_open(run: Simulation, judged: Judge) -> None:
    (run.folder / f"store/manifests/{NAME}.json").unlink()
    judged(run.folder, 4, "unknown", f"the manifest of {NAME} is lost")


def test_a_lost_shard_is_for_invariant_1(run: Simulation, judged: Judge) -> None:
    (run.folder / "store/shards/s00000012-a0002-r0001.safetensors").unlink()
    judged(run.folder, 4, "valid")
    run.damage("shards/s00000010-a0002-r0001.safetensors")
    judged(run.folder, 4, "valid")


def test_nothing_published_is_not_judged(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run")
    sim.start()
    sim.train(1)
    sim.finish(finished=False)
    judged(sim.folder, 4, "not_judged", "nothing was published")


def test_a_run_of_one_rank_has_one_shard_of_each_moment(tmp_path: Path, judged: Judge) -> None:
    sim = Simulation(tmp_path / "run", Settings(ranks=1))
    sim.start()
    sim.train(12)
    sim.finish()
    judged(sim.folder, 4, "valid")


def test_a_tensor_of_a_rank_that_the_manifest_does_not_name(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["step"] == 12:
            del thing["ranks"][1]["tensors"]["buffer/n"]

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid",
           "s00000012-a0002: tensor buffer/n of rank 1 is not the one in the manifest")  # fmt: skip


def test_a_rank_that_said_what_it_had_restored_after_its_first_step(run: Simulation, judged: Judge) -> None:
    """Of the rank that was never killed: the line changes places with that of the first step after it."""
    path = run.procs[0].history.path
    lines = bodies(path)
    said = next(n for n, line in enumerate(lines) if (line["event"], line["attempt"]) == ("restored", 1))
    step = next(n for n in range(said, len(lines)) if lines[n]["event"] == "step")
    lines[said], lines[step] = lines[step], lines[said]
    rechain(path, lines)
    judged(run.folder, 4, "invalid", "rank 0 of attempt 1 trained before it digested what it had restored")
