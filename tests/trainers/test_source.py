"""Which rank consumes which positions, how they are cut into blocks, and what a block delivers."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.history import History
from storage.objects import Reached
from trainers.dataset import Dataset, open_dataset, write_shards
from trainers.plan import Plan
from trainers.points import NoPoints
from trainers.source import PlanSource, Share, Span, spans, to_microbatch

CROSS = [
    (ranks, microbatches, ranks * microbatches * rows)
    for ranks, microbatches, rows in itertools.product((1, 2, 3, 4, 8), (1, 2, 4), (1, 3))
]


@pytest.mark.parametrize(("ranks", "microbatches", "batch"), CROSS)
@pytest.mark.parametrize("first_step", [0, 1, 1_000_000_007])
def test_a_step_is_the_same_positions_whatever_the_number_of_ranks(
    ranks: int, microbatches: int, batch: int, first_step: int
) -> None:
    shares = [Share(rank, ranks, batch, microbatches) for rank in range(ranks)]
    assert all(share.rows * ranks == batch for share in shares)
    assert all(share.microbatch_rows * microbatches == share.rows for share in shares)
    for steps in (1, 3):
        positions = [share.positions(first_step, steps).reshape(steps, -1) for share in shares]
        for number in range(steps):
            together = np.concatenate([each[number] for each in positions])
            start = (first_step + number) * batch
            assert together.tolist() == list(range(start, start + batch))


def test_a_rank_has_a_contiguous_run_of_each_step() -> None:
    share = Share(rank=1, ranks=2, global_batch=8, microbatches=2)
    assert share.positions(3, 2).tolist() == [28, 29, 30, 31, 36, 37, 38, 39]
    assert share.positions(3, 0).tolist() == []


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(CROSS), st.integers(1, 1 << 22), st.integers(0, 10**9), st.integers(0, 3000), st.integers(1, 9),
    st.integers(1, 20),
)  # fmt: skip
def test_blocks_follow_one_another_without_gap(
    cross: tuple[int, int, int], row_bytes: int, first: int, steps: int, number: int, limit: int
) -> None:
    share = Share(0, cross[0], cross[2], cross[1])
    blocks = spans(share, row_bytes, first, first + steps, number, limit)
    assert len(blocks) <= limit
    assert [block.number for block in blocks] == list(range(number, number + len(blocks)))
    expected = first
    for block in blocks:
        assert block.first_step == expected
        assert block.steps >= 1
        assert block.steps == 1 or block.steps * share.rows <= 8192
        assert block.steps == 1 or block.steps * share.rows * row_bytes <= 10 << 20
        expected += block.steps
    assert expected <= first + steps
    assert expected == first + steps or len(blocks) == limit


def test_the_first_block_is_one_step_and_then_they_double() -> None:
    share = Share(0, 2, 32, 4)
    assert [block.steps for block in spans(share, 10, 5, 60, 1, 16)] == [1, 2, 4, 8, 16, 24]


def test_a_chain_of_blocks_covers_a_long_run_at_constant_cost_each() -> None:
    share, step, blocks = Share(0, 2, 32, 4), 0, 0
    while step < 100_000:
        chain = spans(share, 8, step, 100_000, 1 + blocks, 16)
        assert 1 <= len(chain) <= 16
        step, blocks = chain[-1].first_step + chain[-1].steps, blocks + len(chain)
    assert step == 100_000


def test_a_sample_larger_than_a_block_still_gets_one() -> None:
    assert [b.steps for b in spans(Share(0, 1, 4, 1), 1 << 30, 0, 3, 1, 9)] == [1, 1, 1]


class Recording(NoPoints):
    """Notes what a reading task passes."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def enter(self, attempt: int, role: str, rank: int | None, history: History | None) -> None:
        self.seen.append((attempt, role, rank, history))

    def at(self, point: str, hit: int) -> None:
        self.seen.append((point, hit))

    def bound(self) -> Reached:
        raise AssertionError("a task has no thread that outlives it")


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    x = np.arange(50 * 3, dtype=np.float32).reshape(50, 3)
    write_shards(tmp_path / "data", {"x": x, "a": np.arange(50, dtype=np.int16)}, files=2, group_rows=8)
    return open_dataset(tmp_path / "data")


def test_a_block_delivers_the_plans_samples_in_order(dataset: Dataset) -> None:
    plan, share, points = Plan(dataset.rows, dataset.group_rows, 2, 9), Share(1, 2, 12, 3), Recording()
    source = PlanSource(dataset, plan, share, [Span(4, 7, 2), Span(5, 9, 1)], 3, points)
    tasks = source.get_read_tasks(2)
    assert source.get_name() == "Plan"
    assert [task.metadata.num_rows for task in tasks] == [12, 6]
    assert source.estimate_inmemory_data_size() == sum(task.metadata.size_bytes for task in tasks) > 0
    for task, first, steps, number in zip(tasks, (7, 9), (2, 1), (4, 5), strict=True):
        points.seen.clear()
        (table,) = task.read_fn()
        assert points.seen == [(3, "data", 1, None), ("data.read", number)]
        batch = to_microbatch(table, dataset.columns)
        assert batch.positions.tolist() == share.positions(first, steps).tolist()
        ids = plan.sample_ids(batch.positions)
        assert batch.sample_ids.tolist() == ids.tolist()
        assert batch.columns["a"].tolist() == ids.tolist()
        assert batch.columns["x"].tolist() == (ids[:, None] * 3 + np.arange(3)).tolist()
        assert all(values.flags.writeable for values in batch.columns.values())


def test_the_content_digest_is_that_of_the_description(dataset: Dataset) -> None:
    plan, share = Plan(dataset.rows, dataset.group_rows, 2, 9), Share(0, 1, 5, 1)
    (task,) = PlanSource(dataset, plan, share, [Span(1, 0, 1)], 0, NoPoints()).get_read_tasks(1)
    (table,) = task.read_fn()
    batch = to_microbatch(table, dataset.columns)
    expected = [
        xxhash.xxh3_64_intdigest(np.int16(i).tobytes() + (i * 3 + np.arange(3)).astype("<f4").tobytes())
        for i in batch.sample_ids
    ]
    assert batch.content().tolist() == expected
    batch.columns["x"][0, 1] += 1  # what the forward pass gets is what is digested
    assert batch.content()[0] != expected[0]
