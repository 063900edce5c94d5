"""Two checkpoints: which parts and tensors differ, by how much, and what that looks like."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simulated_run import Settings, Simulation

from chaos.diff.checkpoints import CheckpointComparison, compare_checkpoints
from chaos.diff.command import diff
from chaos.diff.tensors import load, names, numbers, tensor_difference
from storage.errors import Damaged
from storage.shard import TensorView

STEPS, LAST = 4, "s00000004-a0000"
Change = Callable[[dict[str, Any]], None]


def run(folder: Path, change: Change = lambda shard: None) -> Path:
    """A run of four steps, keeping the last checkpoint; `change` edits each shard of it before it is written."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and thing["step"] == STEPS:
            change(thing)

    simulation = Simulation(folder, Settings(steps=STEPS, keep=1), edit)
    simulation.start()
    simulation.train(STEPS)
    simulation.finish()
    return folder


def compared(tmp_path: Path, change: Change, other: Change = lambda shard: None) -> CheckpointComparison:
    a, b = run(tmp_path / "a", other), run(tmp_path / "b", change)
    return compare_checkpoints(load(a / "store", LAST), load(b / "store", LAST))


def set_tensor(name: str, value: Any) -> Change:
    """In whichever shard it lies."""

    def change(shard: dict[str, Any]) -> None:
        for place in ("shared", "mine", "local"):
            if name in shard[place]:
                shard[place][name] = value

    return change


def set_field(part: str, field: str, value: Any) -> Change:
    def change(shard: dict[str, Any]) -> None:
        if shard["rank"] == 1:
            shard["texts"][part] = json.dumps({**json.loads(shard["texts"][part]), field: value})

    return change


def test_two_that_differ_in_nothing(tmp_path: Path) -> None:
    comparison = compared(tmp_path, lambda shard: None)
    assert not comparison.differs
    assert comparison.checked == 2 + 2 * 7
    assert (comparison.settings, comparison.earliest_update) == ({}, None)


def test_how_large(tmp_path: Path) -> None:
    comparison = compared(tmp_path, set_tensor("model/p0", np.array([4, 4.5, 4, 3.75], np.float32)))
    (part,) = comparison.parts
    assert (part.part, part.rank) == ("model", None)
    (item,) = part.items
    assert (item.part, item.magnitude, item.relative) == ("model/p0", 0.5, 0.5 / 4.5)
    assert "2 of 4 elements differ, most at 1: A 4.0, B 4.5" in item.detail
    assert comparison.earliest_update == STEPS + 1


@pytest.mark.parametrize(("value", "detail"), [
    (np.full(4, 4, np.float64), "A is F32[4], B F64[4]"), (np.full((2, 2), 4, np.float32), "A is F32[4], B F32[2, 2]"),
    (np.array([4, np.nan, 4, 4], np.float32), "1 of 4 elements are not finite, the first one at 1: A 4.0, B nan"),
    (np.array([4, 4, np.inf, 4], np.float32), "1 of 4 elements are not finite, the first one at 2: A 4.0, B inf"),
])  # fmt: skip
def test_types_shapes_and_what_is_not_finite(tmp_path: Path, value: Any, detail: str) -> None:
    comparison = compared(tmp_path, set_tensor("model/p0", value))
    assert [item.detail for part in comparison.parts for item in part.items] == [detail]


def test_nan_on_both_sides_is_a_difference(tmp_path: Path) -> None:
    nan = set_tensor("model/p0", np.array([4, np.nan, 4, 4], np.float32))
    comparison = compared(tmp_path, nan, nan)
    assert [(part.part, part.items[0].finite) for part in comparison.parts] == [("model", False)]
    assert comparison.findings[0].likeliest.kind.value == "not finite"


@pytest.mark.parametrize("missing_in", ["A", "B"])
def test_a_tensor_that_only_one_has(tmp_path: Path, missing_in: str) -> None:
    def gone(shard: dict[str, Any]) -> None:
        for place in ("shared", "mine"):
            shard[place].pop("optimizer/p1/exp_avg", None)

    sides: tuple[Change, Change] = (gone, lambda shard: None) if missing_in == "B" else (lambda shard: None, gone)
    comparison = compared(tmp_path, *sides)
    (part,) = comparison.parts
    assert [item.detail for item in part.items] == [f"only {'A' if missing_in == 'B' else 'B'} has it"]
    assert (comparison.findings[0].likeliest.kind.value == "optimizer history lost") == (missing_in == "B")


@pytest.mark.parametrize(("change", "kind", "words"), [
    (set_tensor("optimizer/p0/step", np.array(1, np.float32)), "optimizer history lost", "counts 1 updates, A's 4"),
    (set_tensor("rng/torch", np.zeros(8, np.uint8)), "generator re-seeded", "torch generator of rank 0"),
    (set_field("scheduler", "last_epoch", 6), "rate shifted", "scheduler of rank 1 is 2 updates ahead"),
    (set_field("progress", "cursor", 35), "cursor ahead", "the cursor of rank 1 is 3 samples ahead"),
    (set_field("progress", "cursor", 24), "cursor behind", "the cursor of rank 1 is 8 samples behind"),
    (set_tensor("model/p0", np.full(4, np.float32(4.0000005))), "rounding only", "e-07"),
    (set_tensor("model/p0", np.full(4, 5, np.float32)), "another state", "model differs"),
], ids=lambda each: str(each)[:20])  # fmt: skip
def test_what_a_difference_looks_like(tmp_path: Path, change: Change, kind: str, words: str) -> None:
    comparison = compared(tmp_path, change)
    causes = [finding.likeliest for finding in comparison.findings]
    assert (kind, True) in [(cause.kind.value, words in cause.text) for cause in causes]
    if kind == "rate shifted":
        assert comparison.earliest_update == STEPS + 2
        assert "two moments" in causes[0].text


def test_an_optimizer_of_zeros(tmp_path: Path) -> None:
    def zeros(shard: dict[str, Any]) -> None:
        for place in ("shared", "mine"):
            for name in shard[place]:
                if name.endswith("exp_avg"):
                    shard[place][name] = np.zeros(4, np.float32)

    comparison = compared(tmp_path, zeros)
    assert comparison.findings[0].likeliest.text == "every tensor of B's optimizer is zero: its history is lost"


def test_of_a_retired_checkpoint_only_digests_are_left(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a"), run(tmp_path / "b", set_tensor("model/p0", np.zeros(4, np.float32)))
    for shard in (b / "store" / "shards").iterdir():
        shard.unlink()
    x, y = load(a / "store", LAST), load(b / "store", LAST)
    assert (x.whole, y.whole) == (True, False)
    comparison = compare_checkpoints(x, y)
    assert [(p.part, [(i.part, i.magnitude) for i in p.items]) for p in comparison.parts] == [
        ("model", [("model/p0", None)])
    ]  # fmt: skip
    assert not compare_checkpoints(y, y).differs


def test_damage_is_no_difference(tmp_path: Path) -> None:
    a = run(tmp_path / "a")
    shard = next((a / "store" / "shards").iterdir())
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    with pytest.raises(Damaged, match="the manifest says"):
        load(a / "store", LAST)


def test_the_command_takes_run_and_name_or_a_manifest(tmp_path: Path) -> None:
    a, b = run(tmp_path / "a"), run(tmp_path / "b", set_tensor("model/p0", np.zeros(4, np.float32)))
    assert names(a / "store") == ("s00000002-a0000", LAST)
    manifest = str(b / "store" / "manifests" / f"{LAST}.json")
    assert diff(f"{a}:{LAST}", f"{a}:{LAST}").exit_status == 0
    result = diff(f"{a}:{LAST}", manifest)
    assert result.exit_status == 1
    assert result.report["parts"][0]["items"][0]["magnitude"] == 4.0
    assert set(result.report["metadata"]) <= {"run", "attempt", "parent", "histories", "files"}
    other = diff(f"{a}:s00000002-a0000", f"{a}:{LAST}").report
    assert [s["detail"] for s in other["structure"]] == [
        "A is of step 2, B of step 4", "A is of cursor 16, B of cursor 32"
    ]  # fmt: skip


def view(array: np.ndarray[Any, Any], dtype: str) -> TensorView:
    return TensorView(dtype, array.shape, memoryview(array.tobytes()))


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_bfloat16_is_read_as_torch_reads_it(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float32).to(torch.bfloat16)
    raw = tensor.view(torch.int16).numpy()
    expected = tensor.to(torch.float64).numpy()
    assert np.array_equal(numbers(view(raw, "BF16")), expected)


@given(a=st.integers(0, 2**32 - 1), b=st.integers(0, 2**32 - 1))
def test_a_tensor_is_equal_if_and_only_if_every_bit_is_and_it_is_finite(a: int, b: int) -> None:
    x, y = (TensorView("F32", (1,), memoryview(struct.pack("<I", bits))) for bits in (a, b))
    wild = not np.isfinite(numbers(x)[0] + 0 * numbers(y)[0])
    assert (tensor_difference("model/w", (), x, y) is None) == (a == b and not wild)


def test_the_best_model_is_a_part_too(tmp_path: Path) -> None:
    folders = []
    for name, value in (("a", 7.0), ("b", 7.5)):
        def edit(kind: str, thing: Any, value: float = value) -> None:
            if kind == "shard":
                set_tensor("best/p0", np.full(4, value, np.float32))(thing)
                set_tensor("best_buffer/n", np.array(int(value * 2)))(thing)

        simulation = Simulation(tmp_path / name, Settings(steps=STEPS, keep=1, keep_best=True), edit)
        simulation.start()
        simulation.train(STEPS)
        simulation.finish()
        folders.append(simulation.folder)
    comparison = compare_checkpoints(*(load(folder / "store", LAST) for folder in folders))
    assert [(p.part, p.rank, p.items[0].part, p.items[0].magnitude) for p in comparison.parts] == [
        ("best", None, "best/p0", 0.5), ("best.buffers", 0, "best_buffer/n", 1.0),
        ("best.buffers", 1, "best_buffer/n", 1.0),
    ]  # fmt: skip


def test_masks_of_infinities_are_ordinary_in_buffers() -> None:
    mask = view(np.array([0, -np.inf], np.float32), "F32")
    assert tensor_difference("buffer/mask", (0,), mask, mask) is None
    assert tensor_difference("model/mask", (), mask, mask) is not None
    nan = view(np.array([0, np.nan], np.float32), "F32")
    assert tensor_difference("buffer/mask", (0,), nan, nan) is not None
    assert tensor_difference("buffer/mask", (0,), mask, view(np.array([-np.inf, 0], np.float32), "F32")) is not None


def test_the_sign_of_zero_is_a_difference() -> None:
    found = tensor_difference("model/w", (), view(np.zeros(2), "F64"), view(np.array([0.0, -0.0]), "F64"))
    assert found is not None
    assert (found.magnitude, "1 of 2 elements differ" in found.detail) == (0.0, True)
