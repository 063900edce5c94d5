"""A step's fingerprint: the same for the same state however it came about, another for any other state."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import state_kit as kit
import torch

from trainers import fingerprint
from trainers.fingerprint import Views, step_fingerprint
from trainers.parts import LOCAL, REPLICATED
from trainers.state import Progress, json_parts, local_tensors, replicated_tensors, restore
from trainers.workload import Workload


def _trained(name: str, steps: int = 3) -> tuple[Workload, Progress]:
    workload, progress = kit.WORKLOADS[name](), Progress()
    for _ in range(steps):
        kit.step(workload, progress)
    return workload, progress


@pytest.mark.parametrize("name", kit.WORKLOADS)
def test_a_restored_state_has_the_fingerprint_of_the_one_that_was_saved(name: str) -> None:
    workload, progress = _trained(name)
    before = step_fingerprint(workload, progress)
    tensors = {n: t.clone() for n, t in {**replicated_tensors(workload), **local_tensors(workload)}.items()}
    texts = json_parts(workload, progress)
    kit.step(workload, progress)
    assert step_fingerprint(workload, progress) != before
    fresh = kit.WORKLOADS[name]()
    again = restore(fresh, dict(reversed(tensors.items())), texts)
    assert step_fingerprint(fresh, again) == before


def test_taking_it_changes_nothing() -> None:
    workload, progress = _trained("amsgrad_scaler")
    first = step_fingerprint(workload, progress)
    assert step_fingerprint(workload, progress) == first
    assert set(first) == {*REPLICATED, *LOCAL} - {"rng.cuda", "best", "best.buffers"}


def _nudge(workload: Workload, _progress: Progress) -> None:
    with torch.no_grad():
        parameter = next(workload.model.parameters())
        parameter.view(torch.int32)[0, 0] ^= 1


def _moment(workload: Workload, _progress: Progress) -> None:
    next(iter(workload.optimizer.state.values()))["exp_avg"].view(-1)[0] += 1


def _rate(workload: Workload, _progress: Progress) -> None:
    workload.optimizer.param_groups[0]["lr"] *= 2


def _scale(workload: Workload, _progress: Progress) -> None:
    assert workload.scaler is not None
    workload.scaler.update(4.0)


def _schedule(workload: Workload, _progress: Progress) -> None:
    assert workload.scheduler is not None
    workload.scheduler.last_epoch += 1


def _advance(_workload: Workload, progress: Progress) -> None:
    progress.cursor += 1


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (_nudge, "model"),
        (_moment, "optimizer"),
        (_rate, "optimizer"),
        (_scale, "scaler"),
        (_schedule, "scheduler"),
        (_advance, "progress"),
        (lambda workload, _progress: next(workload.model.buffers()).add_(1), "buffers"),
        (lambda *_: random.random(), "rng.python"),
        (lambda *_: random.gauss(), "rng.python"),
        (lambda *_: np.random.rand(), "rng.numpy"),
        (lambda *_: torch.rand(1), "rng.torch"),
    ],
)
def test_one_change_shows_in_its_part_and_in_no_other(
    change: Callable[[Workload, Progress], object], part: str
) -> None:
    workload, progress = _trained("amsgrad_scaler")
    before = step_fingerprint(workload, progress)
    change(workload, progress)
    after = step_fingerprint(workload, progress)
    assert [name for name in before if before[name] != after[name]] == [part]


def test_the_members_are_those_of_torch_in_its_order() -> None:
    shared = torch.nn.Linear(2, 2)
    inner = torch.nn.Sequential(torch.nn.BatchNorm1d(2), shared, torch.nn.Linear(2, 3, bias=False))
    model = torch.nn.Sequential(shared, inner, torch.nn.BatchNorm1d(3), torch.nn.Sequential(inner, torch.nn.ReLU()))
    model.register_module("nothing", None)
    inner[2].weight = shared.weight  # tied
    model[3].register_buffer("again", inner[0].running_mean)
    views = Views()

    def assert_same() -> None:
        parameters, buffers = views.members(model)
        assert [id(p) for p in parameters] == [id(p) for p in model.parameters()]
        assert [id(b) for b in buffers] == [id(b) for b in model.buffers()]

    assert_same()
    inner[0].weight = torch.nn.Parameter(torch.ones(2))
    assert_same()
    inner[0] = torch.nn.BatchNorm1d(2)
    assert_same()
    inner[0].bias = None
    inner.append(torch.nn.Linear(3, 3))
    assert_same()
    model[3], model[1] = model[1], model[3]
    assert_same()
    last = inner[-1]  # the children in a row stay the same, one of them moves into another module
    del inner[-1]
    model.append(last)
    assert_same()


@pytest.mark.parametrize("ranks", [2, 3])
def test_every_parameter_and_moment_is_in_the_fingerprint_of_exactly_one_rank(ranks: int) -> None:
    workload, progress = _trained("adam_steplr")

    def prints() -> list[dict[str, str]]:
        return [step_fingerprint(workload, progress, None, rank, ranks) for rank in range(ranks)]

    before, seen = prints(), set()
    held = [("model", p) for p in workload.model.parameters()]
    held += [("optimizer", m) for s in workload.optimizer.state.values() for m in s.values() if m.numel()]
    for part, tensor in held:
        with torch.no_grad():
            tensor.view(-1)[0] += 1
        now = prints()
        ((rank, name),) = [(r, n) for r in range(ranks) for n in before[r] if before[r][n] != now[r][n]]
        assert name == part
        seen.add((rank, name))
        before = now
    assert seen == {(rank, part) for rank in range(ranks) for part in ("model", "optimizer")}


def test_any_layout_and_type_is_read_by_value() -> None:
    model = torch.nn.ParameterList([torch.ones(2, 3).T, torch.zeros((), dtype=torch.bfloat16), torch.zeros(0)])
    workload = Workload(model, torch.optim.SGD(model.parameters(), 0.1), kit.squared_error, kit.Path("nowhere"))
    before = step_fingerprint(workload, Progress())["model"]
    with torch.no_grad():
        model[1].add_(1)
    assert step_fingerprint(workload, Progress())["model"] != before


@pytest.mark.parametrize("name", kit.WORKLOADS)
def test_kept_views_read_what_is_there_now(name: str) -> None:
    """Through updates in place, a tensor that is replaced, one that gets other memory, and one that comes back."""
    workload, progress = _trained(name)
    views, model = Views(), workload.model

    def replaced(parameter: torch.nn.Parameter) -> None:
        parameter.data = parameter.data.clone().mul_(2)

    first = next(model.parameters())
    state = workload.optimizer.state[first]
    changes = [
        lambda: kit.step(workload, progress),
        lambda: replaced(first),
        lambda: state.update({key: value * 3 for key, value in state.items() if isinstance(value, torch.Tensor)}),
        lambda: kit.step(workload, progress),
    ]
    seen = [step_fingerprint(workload, progress, views)]
    for change in changes:
        change()
        seen.append(step_fingerprint(workload, progress, views))
        assert seen[-1] == step_fingerprint(workload, progress)
    assert len({print_["model"] for print_ in seen}) == 4  # all but the change of the optimizer's state


def test_kept_views_let_go_of_what_is_gone() -> None:
    workload, progress = _trained("amsgrad_scaler")
    views = Views()
    step_fingerprint(workload, progress, views)
    held = weakref.ref(next(iter(workload.optimizer.state.values()))["exp_avg"])
    kept = workload.optimizer.state_dict()
    for state in workload.optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].clone()
    del kept, state
    step_fingerprint(workload, progress, views)
    gc.collect()
    assert held() is None


def test_a_view_that_is_kept_is_not_looked_for_again_however_little_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on, a view without dimensions has no truth value; on all of them an empty one is not true."""
    looked: list[int] = []
    found = fingerprint._in_place
    monkeypatch.setattr(fingerprint, "_in_place", lambda tensor: looked.append(id(tensor)) or found(tensor))
    views, empty, scalar = Views(), torch.empty(0), torch.tensor(1.0)
    views.of("a part", [empty, scalar, torch.ones(2)])
    other = torch.ones(3)
    looked.clear()
    views.of("a part", [empty, scalar, other])
    assert looked == [id(other)]
