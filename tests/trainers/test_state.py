"""The whole state goes out and comes back: after a restore the trajectory continues bit for bit."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
import torch
from state_kit import WORKLOADS, Make, captured, network, squared_error, step

from trainers.errors import StateError
from trainers.state import (
    Progress,
    live_digests,
    raw,
    replicated_tensors,
    restore,
    seed_everything,
    tensor_digest,
)
from trainers.workload import Workload


@pytest.fixture(params=WORKLOADS)
def make(request: pytest.FixtureRequest) -> Make:
    return WORKLOADS[request.param]


def _trained(make: Make, steps: int = 4) -> tuple[Workload, Progress]:
    seed_everything(1, 0)
    workload, progress = make(), Progress()
    workload.model.train()
    for _ in range(steps):
        step(workload, progress)
    return workload, progress


def _draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.random()), float(torch.rand(()))


def test_the_trajectory_continues_bit_for_bit(make: Make) -> None:
    workload, progress = _trained(make)
    tensors, texts = captured(workload, progress)
    before = live_digests(workload, progress)
    expected = [step(workload, progress) for _ in range(5)]
    after = live_digests(workload, progress)

    fresh = make()
    fresh.model.train()
    seed_everything(99, 3)
    restored = restore(fresh, tensors, texts)
    assert live_digests(fresh, restored) == before
    assert [step(fresh, restored) for _ in range(5)] == expected
    assert live_digests(fresh, restored) == after


def test_a_step_changes_every_part_that_it_should(make: Make) -> None:
    workload, progress = _trained(make)
    before = live_digests(workload, progress)
    step(workload, progress)
    after = live_digests(workload, progress)
    changed = {part for part in before if before[part] != after[part]}
    always = {"model", "optimizer", "buffers", "progress", "rng.torch"}
    if workload.scheduler is None:
        always -= {"optimizer"}  # plain SGD keeps nothing
    else:
        always |= {"scheduler"}
    assert changed - {"scaler"} == always
    assert ("rng.cuda" in before) == torch.cuda.is_available()


def test_restored_tensors_are_not_those_of_the_checkpoint(make: Make) -> None:
    workload, progress = _trained(make)
    tensors, texts = captured(workload, progress)
    kept = {name: tensor.clone() for name, tensor in tensors.items()}
    fresh = make()
    restored = restore(fresh, tensors, texts)
    step(fresh, restored)
    assert all(torch.equal(tensors[name], kept[name]) for name in kept)


def test_the_generators_return() -> None:
    workload, progress = _trained(WORKLOADS["plain_sgd"])
    random.gauss(0, 1)  # leaves a second value behind, part of the state
    np.random.standard_normal()
    tensors, texts = captured(workload, progress)
    expected = _draws()
    seed_everything(8, 1)
    restore(WORKLOADS["plain_sgd"](), tensors, texts)
    assert _draws() == expected


def test_a_restored_scheduler_still_takes_an_epoch() -> None:
    """MultiStepLR keeps its milestones in a Counter and asks it for `elements`, which no plain dictionary has."""
    workload, progress = _trained(WORKLOADS["momentum_multisteplr"])
    tensors, texts = captured(workload, progress)
    fresh = WORKLOADS["momentum_multisteplr"]()
    restore(fresh, tensors, texts)
    rates = []
    for each in (workload, fresh):
        assert isinstance(each.scheduler, torch.optim.lr_scheduler.MultiStepLR)
        assert each.scheduler.milestones == Counter({2: 1, 5: 2})
        with pytest.warns(UserWarning, match="epoch"):
            each.scheduler.step(7)
        rates.append(each.scheduler.get_last_lr())
    assert rates[0] == rates[1] == [0.1 * 0.5**3]


def test_a_scheduler_within_a_scheduler_keeps_its_counter() -> None:
    tensors, texts = captured(*_trained(WORKLOADS["momentum_sequentiallr"]))
    fresh = WORKLOADS["momentum_sequentiallr"]()
    restore(fresh, tensors, texts)
    assert isinstance(fresh.scheduler, torch.optim.lr_scheduler.SequentialLR)
    inner = fresh.scheduler._schedulers[1]
    assert isinstance(inner, torch.optim.lr_scheduler.MultiStepLR)
    assert list(inner.milestones.elements()) == [2, 5, 5]


@pytest.mark.parametrize("part", ["optimizer", "scheduler", "progress", "rng.python", "rng.numpy"])
@pytest.mark.parametrize("gone", ["missing", "null"])
def test_a_missing_part_is_an_error(part: str, gone: str) -> None:
    tensors, texts = captured(*_trained(WORKLOADS["adam_steplr"]))
    if gone == "missing":
        del texts[part]
    else:
        texts[part] = "null"
    with pytest.raises(StateError, match=f"lacks part '{part}'"):
        restore(WORKLOADS["adam_steplr"](), tensors, texts)


def test_a_missing_scaler_is_an_error() -> None:
    tensors, texts = captured(*_trained(WORKLOADS["amsgrad_scaler"]))
    with pytest.raises(StateError, match="lacks part 'scaler'"):
        restore(WORKLOADS["amsgrad_scaler"](), tensors, {**texts, "scaler": "null"})


@pytest.mark.parametrize("name", ["model/0.weight", "buffer/1.running_mean", "rng/torch"])
def test_a_missing_tensor_is_an_error(name: str) -> None:
    tensors, texts = captured(*_trained(WORKLOADS["adam_steplr"]))
    del tensors[name]
    with pytest.raises(StateError, match=r"lacks the tensor|lacks torch's generator"):
        restore(WORKLOADS["adam_steplr"](), tensors, texts)


@pytest.mark.parametrize("name", ["optimizer/0.weight/exp_avg", "optimizer/4.bias/exp_avg_sq"])
def test_a_missing_optimizer_tensor_never_passes_for_a_whole_state(name: str) -> None:
    workload, progress = _trained(WORKLOADS["adam_steplr"])
    whole = live_digests(workload, progress)
    tensors, texts = captured(workload, progress)
    del tensors[name]
    fresh = WORKLOADS["adam_steplr"]()
    restored = restore(fresh, tensors, texts)
    assert live_digests(fresh, restored)["optimizer"] != whole["optimizer"]  # what a rank compares before step one


@pytest.mark.parametrize("part", ["scheduler", "scaler"])
def test_a_part_that_the_workload_does_not_build_is_an_error(part: str) -> None:
    tensors, texts = captured(*_trained(WORKLOADS["plain_sgd"]))
    texts[part] = '{"a":1}'
    with pytest.raises(StateError, match="the workload builds none"):
        restore(WORKLOADS["plain_sgd"](), tensors, texts)


def test_a_tensor_that_the_model_lacks_is_an_error() -> None:
    tensors, texts = captured(*_trained(WORKLOADS["plain_sgd"]))
    tensors["buffer/other"] = torch.zeros(1)
    with pytest.raises(StateError, match=r"'buffer/other', which the workload's model lacks"):
        restore(WORKLOADS["plain_sgd"](), tensors, texts)


@pytest.mark.parametrize("other", [torch.zeros(3, 8), torch.zeros(8, 3, dtype=torch.float64)])
def test_another_shape_or_type_is_an_error(other: torch.Tensor) -> None:
    tensors, texts = captured(*_trained(WORKLOADS["plain_sgd"]))
    tensors["model/0.weight"] = other
    with pytest.raises(StateError, match=r"'model/0.weight' is torch.* in the checkpoint and"):
        restore(WORKLOADS["plain_sgd"](), tensors, texts)


def test_parameters_in_another_order_are_an_error() -> None:
    tensors, texts = captured(*_trained(WORKLOADS["plain_sgd"]))
    model = network()
    optimizer = torch.optim.SGD(reversed(list(model.parameters())), 0.1)
    workload = Workload(model, optimizer, squared_error, WORKLOADS["plain_sgd"]().dataset)
    with pytest.raises(StateError, match="in number, name or order"):
        restore(workload, tensors, texts)


def test_optimizer_state_that_is_no_tensor_returns() -> None:
    workload, progress = _trained(WORKLOADS["plain_sgd"])
    parameter = next(workload.model.parameters())
    workload.optimizer.state[parameter]["seen"] = 17
    tensors, texts = captured(workload, progress)
    fresh = WORKLOADS["plain_sgd"]()
    restore(fresh, tensors, texts)
    assert fresh.optimizer.state[next(fresh.model.parameters())]["seen"] == 17
    assert not any(name.endswith("/seen") for name in replicated_tensors(fresh))


def test_ranks_build_the_same_model_and_draw_differently() -> None:
    models, draws = [], []
    for rank in (0, 1):
        seed_everything(3, None)
        models.append(torch.cat([p.detach().reshape(-1) for p in network().parameters()]))
        seed_everything(3, rank)
        draws.append(_draws())
    assert torch.equal(*models)
    assert all(a != b for a, b in zip(*draws, strict=True))


def test_progress_advances_in_one_place() -> None:
    progress = Progress()
    for loss, skipped in ((3.0, False), (1.0, True), (2.0, False)):
        progress.advance(loss, 10, skipped=skipped)
    assert progress == Progress(
        step=3, cursor=30, samples_seen=30, updates=2, skipped=1, best_metric=1.0, best_step=2, loss_count=3,
        loss_tail=[3.0, 1.0, 2.0],
    )  # fmt: skip


def test_the_loss_history_is_bounded() -> None:
    progress = Progress()
    for number in range(300):
        progress.advance(float(number), 1, skipped=False)
    assert progress.loss_count == 300
    assert progress.loss_tail == [float(number) for number in range(44, 300)]


@pytest.mark.parametrize("progress", [Progress(), Progress(2, 8, 8, 2, 0, 0.1, 1, 2, [0.1, float("inf")])])
def test_progress_survives_its_json(progress: Progress) -> None:
    assert Progress.from_json(progress.to_json()) == progress


def test_bytes_are_in_c_order_whatever_the_strides() -> None:
    tensor = torch.arange(6, dtype=torch.int32).reshape(2, 3)
    assert bytes(raw(tensor.t())) == np.arange(6, dtype="<i4").reshape(2, 3).T.tobytes()
    assert bytes(raw(torch.empty(0, 3))) == b""
    assert tensor_digest(tensor.t()) == tensor_digest(tensor.t().contiguous()) != tensor_digest(tensor)
