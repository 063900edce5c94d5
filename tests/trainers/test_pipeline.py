"""The pipeline's start at any microbatch of a step, without Ray: what Ray Data would read is read in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from trainers.dataset import Dataset, open_dataset, write_shards
from trainers.pipeline import Pipeline
from trainers.plan import Plan
from trainers.points import NoPoints
from trainers.source import Microbatch, PlanSource, Share, read_span, to_microbatch

SHARE = Share(rank=1, ranks=2, global_batch=16, microbatches=4)


class ReadHere(Pipeline):
    """Reads the blocks in its own thread instead of in Ray Data's tasks."""

    def _stream(self, source: PlanSource, blocks: int) -> Iterator[Microbatch]:
        for span in source._blocks:
            table = read_span(self._dataset, self._plan, self._share, span)
            for row in range(0, table.num_rows, SHARE.microbatch_rows):
                yield to_microbatch(table.slice(row, SHARE.microbatch_rows), self._dataset.columns)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    write_shards(tmp_path / "data", {"x": np.arange(100, dtype=np.float32)}, files=2, group_rows=10)
    return open_dataset(tmp_path / "data")


@pytest.mark.parametrize("lead", [True, False])
@pytest.mark.parametrize("first", [(0, 0), (3, 0), (3, 1), (3, 3), (18, 2)])
def test_what_the_partial_gradients_hold_is_never_delivered_again(
    dataset: Dataset, first: tuple[int, int], lead: bool
) -> None:
    plan = Plan(dataset.rows, dataset.group_rows, 4, 7)
    pipeline = ReadHere(dataset, plan, SHARE, first_step=first[0], first_microbatch=first[1], last_step=20, prefetch=2,
                        attempt=1, points=NoPoints(), lead=lead)  # fmt: skip
    assert pipeline.start_at == first
    pipeline.start()
    number = 4 * 20 - (4 * first[0] + first[1])
    got = np.concatenate([pipeline.next().positions for _ in range(number)])
    pipeline.close()
    assert got.tolist() == SHARE.positions(first[0], 20 - first[0])[2 * first[1] :].tolist()
