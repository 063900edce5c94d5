"""Staging: who owns which tensor, and a copy that later updates cannot touch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from state_kit import WORKLOADS, step

from storage.shard import TensorView
from trainers.staging import Snapshot, Staging, as_tensor, owner_of
from trainers.state import Progress, json_parts, local_tensors, raw, replicated_tensors
from trainers.workload import Workload


@given(st.dictionaries(st.text(min_size=1, max_size=6), st.integers(0, 1 << 30), max_size=40), st.integers(1, 8))
def test_every_tensor_has_one_owner_and_loads_are_even(sizes: dict[str, int], ranks: int) -> None:
    owner = owner_of(sizes, ranks)
    assert owner.keys() == sizes.keys()
    assert set(owner.values()) <= set(range(ranks))
    assert owner == owner_of(dict(reversed(sizes.items())), ranks)  # whatever the order in which a rank lists them
    load = [sum(size for name, size in sizes.items() if owner[name] == rank) for rank in range(ranks)]
    assert max(load) - min(load) <= max(sizes.values(), default=0)


def _pieces(snapshot: Snapshot) -> dict[str, bytes]:
    pieces, offset = {}, 0
    for spec in snapshot.specs:
        pieces[spec.name] = bytes(snapshot.data[offset : offset + spec.bytes])
        offset += spec.bytes
    assert offset == snapshot.data.nbytes
    return pieces


def _bytes(tensors: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {name: bytes(raw(tensor)) for name, tensor in tensors.items()}


@pytest.fixture(params=WORKLOADS)
def trained(request: pytest.FixtureRequest) -> tuple[Workload, Progress]:
    workload, progress = WORKLOADS[request.param](), Progress()
    step(workload, progress)
    return workload, progress


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_all_ranks_together_copy_everything_once(trained: tuple[Workload, Progress], ranks: int) -> None:
    workload, progress = trained
    snapshots = [Staging(rank, ranks).copy(workload, progress) for rank in range(ranks)]
    local, shared = _bytes(local_tensors(workload)), _bytes(replicated_tensors(workload))
    seen: dict[str, bytes] = {}
    for snapshot in snapshots:
        pieces = _pieces(snapshot)
        assert {name: pieces.pop(name) for name in local} == local
        assert not pieces.keys() & seen.keys()
        seen |= pieces
        assert snapshot.texts == json_parts(workload, progress)
    assert seen == shared


def test_a_snapshot_is_unchanged_by_later_updates(trained: tuple[Workload, Progress]) -> None:
    workload, progress = trained
    snapshot = Staging(0, 1).copy(workload, progress)
    data, texts = bytes(snapshot.data), dict(snapshot.texts)
    for _ in range(3):
        step(workload, progress)
    assert bytes(snapshot.data) == data
    assert snapshot.texts == texts


def test_the_buffer_is_used_again() -> None:
    workload, progress = WORKLOADS["adam_steplr"](), Progress()
    step(workload, progress)
    staging = Staging(0, 2)
    staging.prepare(workload)
    first = staging.copy(workload, progress)
    step(workload, progress)
    second = staging.copy(workload, progress)
    address = [np.frombuffer(s.data, dtype=np.uint8).__array_interface__["data"][0] for s in (first, second)]
    assert address[0] == address[1]
    now, pieces = _bytes({**replicated_tensors(workload), **local_tensors(workload)}), _pieces(second)
    assert pieces == {name: now[name] for name in pieces}


def test_it_grows_with_an_optimizer_that_makes_its_state_late() -> None:
    workload, progress = WORKLOADS["adam_steplr"](), Progress()
    staging = Staging(0, 1)
    staging.prepare(workload)
    before = staging.copy(workload, progress).data.nbytes
    step(workload, progress)
    after = staging.copy(workload, progress)
    assert after.data.nbytes > before
    assert "optimizer/0.weight/exp_avg" in _pieces(after)


def test_wide_elements_come_first_so_that_all_are_aligned() -> None:
    workload, progress = WORKLOADS["adam_steplr"](), Progress()
    workload.model.register_buffer("flags", torch.tensor([True, False, True]))
    workload.model.register_buffer("empty", torch.zeros(0, 4, dtype=torch.float64))
    snapshot, offset = Staging(0, 1).copy(workload, progress), 0
    width = {"F64": 8, "I64": 8, "F32": 4, "BOOL": 1, "U8": 1}
    for spec in snapshot.specs:
        assert offset % width[spec.dtype] == 0
        offset += spec.bytes
    assert _pieces(snapshot)["buffer/flags"] == b"\1\0\1"
    assert _pieces(snapshot)["buffer/empty"] == b""


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("F64", torch.float64), ("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16),
     ("I64", torch.int64), ("I32", torch.int32), ("I16", torch.int16), ("I8", torch.int8), ("U8", torch.uint8),
     ("BOOL", torch.bool)],
)  # fmt: skip
def test_a_stored_tensor_comes_back_as_it_was(kind: str, dtype: torch.dtype) -> None:
    for shape in ((2, 3), (), (0, 2)):
        tensor = (torch.arange(6)[: int(np.prod(shape))] % 2).to(dtype).reshape(shape)
        back = as_tensor(TensorView(kind, shape, memoryview(bytearray(raw(tensor)))))
        assert back.dtype == dtype
        assert torch.equal(back, tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_large_tensors_are_copied_as_they_are_seen(dtype: torch.dtype) -> None:
    """Contiguous, transposed, expanded, and of an odd size, so that what follows lies on no cache line."""
    generator = torch.Generator().manual_seed(7)
    values = torch.randint(0, 2, (301, 307), generator=generator).to(dtype)
    model = torch.nn.Module()
    for name, tensor in {"a": values, "b": values.T, "c": values[:1].expand(307, 307), "d": values[:, 1:]}.items():
        model.register_buffer(name, tensor)
    model.register_parameter("weight", torch.nn.Parameter(torch.zeros(3)))
    workload = Workload(model, torch.optim.SGD(model.parameters(), 0.1), lambda m, b: b["x"], Path())
    pieces = _pieces(Staging(0, 1).copy(workload, Progress()))
    buffers = {name: piece for name, piece in pieces.items() if name in local_tensors(workload)}
    assert len(buffers) >= 4
    assert buffers == _bytes(local_tensors(workload))
    named = [piece for name, piece in buffers.items() if name.endswith("b")]
    assert named[0] == bytes(raw(values.T.contiguous()))
