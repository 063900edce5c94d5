"""The best model: a real copy, of the moment that its metric was measured, and back with a restore."""

from __future__ import annotations

import math

import pytest
import torch
from state_kit import WORKLOADS, step

from trainers.best import BestModel
from trainers.errors import StateError
from trainers.fingerprint import step_fingerprint
from trainers.parts import is_replicated
from trainers.staging import Staging
from trainers.state import Progress, json_parts, live_digests, local_tensors, replicated_tensors, restore
from trainers.workload import Workload

MAKE = WORKLOADS["adam_steplr"]


def trained(steps: int = 3) -> tuple[Workload, Progress]:
    workload = MAKE()
    progress = Progress(best_model=BestModel.of(workload.model))
    for _ in range(steps):
        step(workload, progress)
    return workload, progress


def captured(workload: Workload, progress: Progress) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    best = progress.best_model
    live = {**replicated_tensors(workload, best), **local_tensors(workload, best)}
    return {name: tensor.detach().clone() for name, tensor in live.items()}, json_parts(workload, progress)


def best_parts(digests: dict[str, str]) -> list[str]:
    return [digests["best"], digests["best.buffers"]]


def test_later_updates_do_not_reach_it() -> None:
    workload, progress = trained()
    assert progress.best_model is not None
    progress.best_model.take(workload.model)
    before = live_digests(workload, progress)
    kept = {name: p.detach().clone() for name, p in workload.model.named_parameters()}
    progress.best_metric, progress.best_step = -1.0, 3  # nothing is better
    described = live_digests(workload, progress)
    for _ in range(3):
        step(workload, progress)
    after = live_digests(workload, progress)
    assert best_parts(after) == best_parts(described)
    assert after["model"] != before["model"]
    assert all(torch.equal(progress.best_model.parameters[name], kept[name]) for name in kept)


def test_taking_overwrites_in_place_with_parameters_and_buffers() -> None:
    workload, progress = trained()
    best = progress.best_model
    assert best is not None
    places = [t.data_ptr() for t in (*best.parameters.values(), *best.buffers.values())]
    best.take(workload.model)
    assert places == [t.data_ptr() for t in (*best.parameters.values(), *best.buffers.values())]
    assert all(torch.equal(best.parameters[n], p) for n, p in workload.model.named_parameters())
    assert all(torch.equal(best.buffers[n], b) for n, b in workload.model.named_buffers())
    assert best.buffers.keys() == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_it_comes_back_in_memory_of_its_own() -> None:
    workload, progress = trained()
    expected = live_digests(workload, progress)
    tensors, texts = captured(workload, progress)
    fresh = MAKE()
    back = restore(fresh, tensors, texts, keep_best=True)
    assert live_digests(fresh, back) == expected
    assert step_fingerprint(fresh, back) == step_fingerprint(workload, progress)
    assert back.best_model is not None
    with torch.no_grad():
        for tensor in tensors.values():
            tensor.zero_()
    assert best_parts(live_digests(fresh, back)) == best_parts(expected)


def test_a_change_of_it_changes_its_part_alone() -> None:
    workload, progress = trained()
    before, prints = live_digests(workload, progress), step_fingerprint(workload, progress)
    assert progress.best_model is not None
    with torch.no_grad():
        progress.best_model.parameters["0.bias"] += 1
    after, now = live_digests(workload, progress), step_fingerprint(workload, progress)
    assert {part for part in before if before[part] != after[part]} == {"best"}
    assert {part for part in prints if prints[part] != now[part]} == {"best"}


def test_its_fingerprint_is_that_of_the_model_that_was_best() -> None:
    workload, progress = trained()
    assert progress.best_model is not None
    progress.best_model.take(workload.model)
    prints = step_fingerprint(workload, progress)
    assert (prints["best"], prints["best.buffers"]) == (prints["model"], prints["buffers"])


def test_it_is_staged_once_over_all_ranks_and_its_buffers_on_each() -> None:
    workload, progress = trained()
    names: list[str] = []
    for rank in (0, 1):
        staging = Staging(rank, 2)
        staging.prepare(workload, progress)
        snapshot = staging.copy(workload, progress)
        assert "best" in snapshot.texts
        names += [spec.name for spec in snapshot.specs]
    shared = [name for name in names if name.startswith("best/")]
    assert sorted(shared) == sorted(f"best/{name}" for name, _ in workload.model.named_parameters())
    assert names.count("best_buffer/1.running_mean") == 2
    assert is_replicated("best/0.weight")
    assert not is_replicated("best_buffer/1.running_mean")


def test_only_a_lower_finite_loss_is_best() -> None:
    progress = Progress()
    for loss, best in ((math.nan, None), (math.inf, None), (2.0, 2.0), (2.0, 2.0), (math.nan, 2.0), (-math.inf, 2.0),
                       (1.5, 1.5), (3.0, 1.5)):  # fmt: skip
        progress.advance(loss, 1, skipped=not math.isfinite(loss))
        assert progress.best_metric == best
    assert (progress.best_step, progress.step) == (7, 8)


def test_a_run_that_keeps_none_has_no_such_part() -> None:
    workload, progress = MAKE(), Progress()
    step(workload, progress)
    assert not {"best", "best.buffers"} & (live_digests(workload, progress).keys() | step_fingerprint(
        workload, progress).keys() | json_parts(workload, progress).keys())  # fmt: skip


def test_what_does_not_fit_is_refused() -> None:
    tensors, texts = captured(*trained())
    with pytest.raises(StateError, match="set keep_best: true"):
        restore(MAKE(), tensors, texts)
    with pytest.raises(StateError, match="lacks part 'best'"):
        restore(MAKE(), tensors, {name: text for name, text in texts.items() if name != "best"}, keep_best=True)
    with pytest.raises(StateError, match="does not belong to the best metric"):
        restore(MAKE(), tensors, {**texts, "best": '{"metric":null,"step":null}'}, keep_best=True)
    without = {name: tensor for name, tensor in tensors.items() if name != "best/0.bias"}
    for broken in ({**tensors, "best/0.bias": torch.zeros(2)}, without):
        with pytest.raises(StateError, match=r"'best/0.bias' is missing or not of this model"):
            restore(MAKE(), broken, texts, keep_best=True)
