"""Best metric, best model and skipped updates, re-derived from the record (a part of invariant 4)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import Judge
from simulated_run import Edit, Simulation, two_kills

LOSSES = {1: 0.9, 2: 0.5, 3: math.nan, 4: 0.7, 5: 0.4, 6: 0.6, 7: 0.4, 8: 0.8, 9: 0.45, 10: 0.3, 11: 0.31, 12: math.inf}


def rich(folder: Path, edit: Edit = lambda kind, thing: None) -> Simulation:
    """Two kills; losses that fall and rise, some not finite; two skips; a best model; every shard kept."""
    return two_kills(folder, edit, losses=LOSSES, skips=(3, 12), keep_best=True, keep=99)


def on_step(number: int, rank: int, change: Any) -> Edit:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and (thing["step"], thing["rank"]) == (number, rank):
            change(thing)

    return edit


def on_shard(number: int, change: Any) -> Edit:
    return lambda kind, thing: change(thing) if kind == "shard" and thing["step"] == number else None


def progress(**changes: Any) -> Any:
    def change(thing: dict[str, Any]) -> None:
        thing["texts"]["progress"] = json.dumps({**json.loads(thing["texts"]["progress"]), **changes})

    return change


def test_a_whole_record_is_valid(tmp_path: Path, judged: Judge) -> None:
    judged(rich(tmp_path / "run").folder, 4, "valid")


def test_a_first_loss_that_is_not_finite_is_no_best(tmp_path: Path, judged: Judge) -> None:
    losses = {1: -math.inf, 2: math.nan, 3: 0.5}
    judged(two_kills(tmp_path / "run", losses=losses, skips=(1, 2), keep_best=True, keep=99).folder, 4, "valid")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (on_shard(6, progress(best_step=2)), "is 0x1.999999999999ap-2 of step 2, but the lowest loss up to here is "
                                             "0x1.999999999999ap-2 of step 5"),
        (on_shard(6, progress(best_metric=(0.1).hex())), "best metric of rank 0 is 0x1.999999999999ap-4 of step 5"),
        (on_shard(4, progress(best_metric=None, best_step=None)), "best metric of rank 1 is None of step None"),
        (on_shard(4, lambda t: t["texts"].update(best='{"metric": null, "step": null}')),
         "the best model of rank 0 belongs to step None, its best metric to 2"),
        (on_step(6, 1, lambda t: t["state"].update(best=t["state"]["model"])),
         "step 6 of attempt 1 on rank 1: the best model is not that of step 5, which had the lowest loss so far"),
        (on_step(5, 0, lambda t: t["state"].update(best="0" * 16)),
         "step 5 of attempt 0 on rank 0: the best model is not"),
        (on_step(3, 0, lambda t: t["state"].update(model="0" * 16)),
         "step 3 of attempt 0 on rank 0 skipped its update, but the model changed"),
        (on_step(3, 1, lambda t: t.update(skipped=False)), "step 3 of attempt 0 was skipped on some ranks only"),
        (on_step(3, 1, lambda t: t.update(skipped=False)),
         "rank 1 did its update, and a finding says that it skipped it"),
        (on_step(6, 1, lambda t: t.update(skipped=True)),
         "step 6 of attempt 1 on rank 1 skipped its update, and no finding"),
    ],
)  # fmt: skip
def test_a_record_that_contradicts_itself(tmp_path: Path, judged: Judge, edit: Edit, words: str) -> None:
    judged(rich(tmp_path / "run", edit).folder, 4, "invalid", words)


def test_a_finding_is_needed_for_each_skip(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "non_finite" and thing["step"] == 3 and thing["rank"] == 1:
            thing["action"] = "stop"

    judged(rich(tmp_path / "run", edit).folder, 4, "invalid", "rank 1 skipped its update, and no finding says why")


def test_a_copy_that_follows_the_model_is_found_in_the_shard(tmp_path: Path, judged: Judge) -> None:
    """The best tensors are those of the last model: digests agree with each other, not with the manifest's."""

    def alias(thing: dict[str, Any]) -> None:
        for name in [name for name in thing["mine"] if name.startswith("best/")]:
            thing["mine"][name] = np.full(4, 99, np.float32)

    words = "part best, computed from the shards, is not"
    judged(rich(tmp_path / "run", on_shard(6, alias)).folder, 4, "invalid", words)


@pytest.mark.parametrize("lost", ["best", "best.buffers"])
def test_half_a_best_model_is_no_checkpoint(tmp_path: Path, judged: Judge, lost: str) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "manifest" and thing["step"] == 4:
            (thing["parts"] if lost == "best" else thing["ranks"][1]["parts"]).pop(lost)

    judged(rich(tmp_path / "run", edit).folder, 1, "invalid", "digests only a part of the best model")


def test_without_a_record_there_is_nothing_to_contradict(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "step" and thing["step"] in (2, 3):
            thing["drop"] = True
        if kind == "shard" and thing["step"] == 12:
            progress(best_step=1)(thing)
            thing["texts"]["best"] = json.dumps({**json.loads(thing["texts"]["best"]), "step": 1})

    judged(rich(tmp_path / "run", edit).folder, 4, "valid")


def test_a_loss_that_is_no_number_is_none(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        for rank in (0, 1):
            on_step(1, rank, lambda t: t.update(loss="x"))(kind, thing)

    witness = judged(rich(tmp_path / "run", edit).folder, 4, "invalid", "for step 1, the record x")
    assert "x of step" not in witness
