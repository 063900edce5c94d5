"""An unfinished step: when it is saved, and that a loop which goes on from any moment of it does the same as before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from state_kit import WORKLOADS

from storage.history import History, read_history
from storage.ledger import LedgerRows
from storage.shard import parse_shard, shard_header
from trainers.accumulation import Partial, SaveSchedule, gradient_tensors, partial_bytes, restore_partial
from trainers.errors import StateError
from trainers.loop import RankRun, train
from trainers.reducer import Reducer
from trainers.source import Microbatch, Share
from trainers.staging import Snapshot, Staging, as_tensor
from trainers.state import Progress, live_digests, restore, seed_everything
from trainers.workload import Workload

SHARE = Share(rank=0, ranks=1, global_batch=8, microbatches=4)
STEPS = 3
RECORDED = ("step", "loss", "lr", "gradient_norm", "state", "samples_seen", "ids", "skipped")


@given(
    st.integers(1, 30), st.integers(1, 6), st.integers(1, 9), st.none() | st.integers(1, 20), st.integers(0, 200)
)  # fmt: skip
def test_saves_fall_due_one_by_one(
    steps: int, microbatches: int, every: int, between: int | None, done: int
) -> None:
    schedule = SaveSchedule(steps, microbatches, every, between)
    step, microbatch = divmod(done, microbatches)
    expected = between is not None and done % between == 0
    if microbatch == 0:
        expected = expected or step % every == 0 or step == steps
    assert schedule.due(step, microbatch) == expected


class Saved:
    """Takes the saver's place: keeps, through the real staging buffer, what each save would write."""

    def __init__(self) -> None:
        self.staging = Staging(0, 1)
        self.moments: dict[tuple[int, int], tuple[dict[str, torch.Tensor], dict[str, str]]] = {}
        self.rows: dict[tuple[int, int], tuple[LedgerRows, int, int]] = {}
        self.digests: dict[tuple[int, int], dict[str, str]] = {}

    def save(
        self, workload: Workload, progress: Progress, rows: LedgerRows, first_step: int, first_microbatch: int = 0,
        accumulated: Partial | None = None,
    ) -> None:
        moment = progress.step, accumulated.microbatch if accumulated else 0
        self.moments[moment] = read_back(self.staging.copy(workload, progress, accumulated))
        self.rows[moment] = rows, first_step, first_microbatch
        self.digests[moment] = live(workload, progress, accumulated)

    def wait(self) -> None:
        pass


def live(workload: Workload, progress: Progress, partial: Partial | None) -> dict[str, str]:
    return live_digests(workload, progress) | (partial.digests(workload) if partial else {})


def read_back(snapshot: Snapshot) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Through the bytes of a shard, as a restart gets them."""
    metadata = {f"part.{name}": text for name, text in snapshot.texts.items()}
    data = bytearray(shard_header(list(snapshot.specs), metadata) + bytes(snapshot.data))
    shard = parse_shard(data, "shard")
    texts = {name.removeprefix("part."): text for name, text in shard.metadata.items()}
    return {name: as_tensor(view) for name, view in shard.tensors.items()}, texts


class Stream:
    """Takes the pipeline's place: the microbatches from a moment on, a function of their number alone."""

    def __init__(self, step: int, microbatch: int) -> None:
        self.number = step * SHARE.microbatches + microbatch

    def next(self) -> Microbatch:
        rows = SHARE.microbatch_rows
        positions = np.arange(self.number * rows, (self.number + 1) * rows, dtype=np.int64)
        x = np.random.Generator(np.random.PCG64(self.number)).standard_normal((rows, 3), dtype=np.float32)
        self.number += 1
        return Microbatch(positions, positions * 7 % 1000, {"x": x})

    def stats(self) -> Any:
        return type("Stats", (), {"wait_s": 0.0, "prepare_s": 0.0, "depth": 0, "samples_per_s": 0.0})


def trained(
    folder: Path, name: str, schedule: SaveSchedule, start: tuple[int, int] = (0, 0), saved: Saved | None = None
) -> tuple[Saved, list[dict[str, Any]]]:
    """The real loop, from nothing or from a moment of `saved`, with its saves and its records of steps."""
    seed_everything(11, None)
    workload = WORKLOADS[name]()
    reducer = Reducer(workload.model, 1)
    progress, partial = Progress(), None
    if saved is not None:
        tensors, texts = saved.moments[start]
        progress = restore(workload, tensors, texts)
        partial = restore_partial(workload, tensors, texts, *start)
        assert live(workload, progress, partial) == saved.digests[start]
    again, history = Saved(), History.open(folder / f"{start[0]}-{start[1]}", "worker", "r1")
    run = RankRun(
        attempt=0, share=SHARE, steps=schedule.steps, save_every=schedule.every_steps,
        save_every_microbatches=schedule.every_microbatches, device=torch.device("cpu"), workload=workload,
        progress=progress, pipeline=Stream(*start), reducer=reducer, saver=again, history=history,  # type: ignore[arg-type]
        at=lambda point: None, on_step=lambda step, loss: None, partial=partial,
    )  # fmt: skip
    train(run)
    lines = read_history(next((folder / f"{start[0]}-{start[1]}").glob("*.jsonl"))).lines
    return again, [{key: line.body[key] for key in RECORDED} for line in lines if line.event == "step"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_from_any_moment_of_any_step_the_loop_goes_on_bit_for_bit(tmp_path: Path, name: str) -> None:
    """Dropout, batch statistics, a scaler with a growing scale, moments, schedulers: all in one trajectory."""
    every = SaveSchedule(STEPS, 4, 1, 1)
    saved, records = trained(tmp_path, name, every)
    plain, expected = trained(tmp_path / "plain", name, SaveSchedule(STEPS, 4, 1))
    assert records == expected  # saving changes nothing
    assert len(records) == STEPS
    assert sorted(saved.moments) == [divmod(done, 4) for done in range(1, 4 * STEPS + 1)]
    for start in sorted(saved.moments)[:-1]:
        again, later = trained(tmp_path, name, every, start, saved)
        assert later == expected[start[0] :], start
        assert again.digests == {moment: d for moment, d in saved.digests.items() if moment > start}
    assert plain.digests[STEPS, 0] == saved.digests[STEPS, 0]


def test_ledger_rows_between_saves_follow_one_another(tmp_path: Path) -> None:
    saved, _records = trained(tmp_path, "plain_sgd", SaveSchedule(STEPS, 4, 2, 3))
    places = sorted(saved.rows)
    assert places == [(0, 3), (1, 2), (2, 0), (2, 1), (3, 0)]
    before = (0, 0)
    for place in places:
        rows, first_step, first_microbatch = saved.rows[place]
        assert (first_step, first_microbatch) == before
        numbers = rows.step * 4 + rows.microbatch
        assert sorted(set(numbers.tolist())) == list(range(before[0] * 4 + before[1], place[0] * 4 + place[1]))
        assert (rows.position // SHARE.microbatch_rows).tolist() == numbers.tolist()
        before = place


@pytest.fixture
def moment(tmp_path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    saved, _records = trained(tmp_path, "amsgrad_scaler", SaveSchedule(STEPS, 4, 1, 3))
    tensors, texts = saved.moments[1, 2]
    return dict(tensors), dict(texts)


def fresh(tensors: dict[str, torch.Tensor], texts: dict[str, str]) -> Workload:
    workload = WORKLOADS["amsgrad_scaler"]()
    Reducer(workload.model, 1)
    restore(workload, tensors, texts)
    return workload


def test_what_is_held_besides(moment: tuple[dict[str, torch.Tensor], dict[str, str]]) -> None:
    tensors, texts = moment
    said = json.loads(texts["accumulation"])
    assert (said["step"], said["microbatch"], said["microbatches"], said["samples"]) == (1, 2, 4, 4)
    assert (said["denominator"], said["scale"]) == (8, {"~": "f", "v": (8.0).hex()})
    assert tensors["accumulation/sample_ids"].tolist() == [(p * 7) % 1000 for p in range(8, 12)]
    trainable = {f"gradient/{n}" for n, p in WORKLOADS["amsgrad_scaler"]().model.named_parameters() if p.requires_grad}
    assert {name for name in tensors if name.startswith("gradient/")} == trainable
    assert all(tensors[name].any() for name in trainable - {"gradient/0.bias"})  # batch statistics cancel that one


def _misses(tensors: dict[str, torch.Tensor], texts: dict[str, str]) -> None:
    del tensors["gradient/0.weight"]


def _unknown(tensors: dict[str, torch.Tensor], texts: dict[str, str]) -> None:
    tensors["gradient/9.weight"] = tensors["gradient/0.weight"]


def _other_shape(tensors: dict[str, torch.Tensor], texts: dict[str, str]) -> None:
    tensors["gradient/0.weight"] = tensors["gradient/0.weight"][:1]


def _fewer_ids(tensors: dict[str, torch.Tensor], texts: dict[str, str]) -> None:
    tensors["accumulation/sample_ids"] = tensors["accumulation/sample_ids"][:-1]


def _says(**other: object) -> Callable[[dict[str, torch.Tensor], dict[str, str]], None]:
    def change(tensors: dict[str, torch.Tensor], texts: dict[str, str]) -> None:
        texts["accumulation"] = json.dumps({**json.loads(texts["accumulation"]), **other})

    return change


def _silent(tensors: dict[str, torch.Tensor], texts: dict[str, str]) -> None:
    del texts["accumulation"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_misses, "lacks the tensor 'gradient/0.weight'"),
        (_unknown, "holds 'gradient/9.weight', which"),
        (_other_shape, "'gradient/0.weight' is torch.float32"),
        (_fewer_ids, "counts 4 samples in its partial gradients"),
        (_says(scale={"~": "f", "v": (4.0).hex()}), "carry the scale 4.0, its gradient scaler has 8.0"),
        (_says(scale=None), "carry the scale None"),
        (_says(microbatch=3), "is of microbatch 2 of step 1, its partial gradients are of microbatch 3 of step 1"),
        (_says(step=0), "its partial gradients are of microbatch 2 of step 0"),
        (_silent, "its partial gradients are of microbatch None"),
    ],
)
def test_a_partial_state_that_does_not_fit_is_refused(
    moment: tuple[dict[str, torch.Tensor], dict[str, str]], change: Callable[..., None], words: str
) -> None:
    tensors, texts = moment
    workload = fresh(tensors, texts)
    change(tensors, texts)
    with pytest.raises(StateError, match=words):
        restore_partial(workload, tensors, texts, 1, 2)


def test_partial_gradients_at_a_boundary_are_refused(
    moment: tuple[dict[str, torch.Tensor], dict[str, str]],
) -> None:
    tensors, texts = moment
    with pytest.raises(StateError, match="is of microbatch 0 of step 1, its partial gradients are of microbatch 2"):
        restore_partial(fresh(tensors, texts), tensors, texts, 1, 0)


def test_the_staging_buffer_is_allocated_once_for_both_kinds_of_save(tmp_path: Path) -> None:
    workload = WORKLOADS["plain_sgd"]()
    Reducer(workload.model, 1)
    staging = Staging(0, 1)
    more = partial_bytes(workload, SHARE.rows)
    assert more == sum(t.nbytes for t in gradient_tensors(workload).values()) + 8 * 8
    staging.prepare(workload, Progress(), more)
    before = staging._flat
    for microbatch in (1, 2, 3):
        ids = [np.arange(2 * microbatch)]
        inside = staging.copy(workload, Progress(), Partial.now(workload, SHARE, 0, microbatch, 1.0, ids))
        at_end = staging.copy(workload, Progress())
        assert inside.data.nbytes == at_end.data.nbytes + more - 8 * (8 - 2 * microbatch)
        assert sum(spec.bytes for spec in at_end.specs) == at_end.data.nbytes
        assert staging._flat is before
