"""The Ray Data source: blocks of one rank's samples in plan order. Which block holds which positions is pure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from ray.data import DataContext, Datasource
from ray.data.block import BlockMetadata
from ray.data.datasource import ReadTask

from storage.digests import sample_content_digests
from trainers.dataset import Dataset, column_array, read_samples
from trainers.plan import I64, Plan
from trainers.points import KillPoints

_BLOCK_BYTES = 10 << 20  # a block costs 25 to 39 ms whatever is in it: fill it, up to this size
_BLOCK_ROWS = 8192
POSITION, SAMPLE_ID = "__position", "__sample_id"


@dataclass(frozen=True)
class Share:
    """Which part of every global batch one rank consumes: a contiguous run of positions, microbatch by microbatch."""

    rank: int
    ranks: int
    global_batch: int
    microbatches: int

    @property
    def rows(self) -> int:
        """Samples of one step on this rank."""
        return self.global_batch // self.ranks

    @property
    def microbatch_rows(self) -> int:
        return self.rows // self.microbatches

    def positions(self, first_step: int, steps: int) -> I64:
        """Positions of the rank's samples of `steps` updates from `first_step` on; int64[steps · rows]."""
        step = np.arange(first_step, first_step + steps, dtype=np.int64)[:, None] * self.global_batch
        return (step + self.rank * self.rows + np.arange(self.rows, dtype=np.int64)).reshape(-1)


@dataclass(frozen=True)
class Span:
    """One block: `steps` updates from `first_step` on. `number` counts blocks of the attempt from 1."""

    number: int
    first_step: int
    steps: int


def spans(share: Share, row_bytes: int, first_step: int, last_step: int, first_number: int, limit: int) -> list[Span]:
    """At most `limit` blocks from `first_step` on: one step, then doubling, so that the first batch comes early."""
    most_rows = max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // max(1, row_bytes)))
    out: list[Span] = []
    steps = 1
    while first_step < last_step and len(out) < limit:
        count = min(steps, last_step - first_step, max(1, most_rows // share.rows))
        out.append(Span(first_number + len(out), first_step, count))
        first_step += count
        steps *= 2
    return out


def read_span(dataset: Dataset, plan: Plan, share: Share, span: Span) -> pa.Table:
    """The rows of a span in plan order, content columns first, then positions and sample ids."""
    positions = share.positions(span.first_step, span.steps)
    ids = plan.sample_ids(positions)
    table = read_samples(dataset, ids)
    return table.append_column(POSITION, pa.array(positions)).append_column(SAMPLE_ID, pa.array(ids))


def _read(
    dataset: Dataset, plan: Plan, share: Share, span: Span, attempt: int, points: KillPoints
) -> Iterable[pa.Table]:
    points.enter(attempt, "data", share.rank, None)
    points.at("data.read", span.number)
    yield read_span(dataset, plan, share, span)


class PlanSource(Datasource):
    """One read task a span."""

    def __init__(
        self, dataset: Dataset, plan: Plan, share: Share, blocks: list[Span], attempt: int, points: KillPoints
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._reader: Callable[[Span], Callable[[], Iterable[pa.Table]]] = lambda span: functools.partial(
            _read, dataset, plan, share, span, attempt, points
        )
        self._blocks, self._rows, self._row_bytes = blocks, share.rows, dataset.row_bytes + 16

    def get_name(self) -> str:
        return "Plan"

    def estimate_inmemory_data_size(self) -> int:
        return sum(span.steps for span in self._blocks) * self._rows * self._row_bytes

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: DataContext | None = None
    ) -> list[ReadTask]:
        return [ReadTask(self._reader(span), self._metadata(span)) for span in self._blocks]

    def _metadata(self, span: Span) -> BlockMetadata:
        rows = span.steps * self._rows
        return BlockMetadata(num_rows=rows, size_bytes=rows * self._row_bytes, exec_stats=None, input_files=None)


@dataclass(frozen=True, eq=False)
class Microbatch:
    """What one forward pass consumes. positions, sample_ids: int64[n]; columns: [n, …] each."""

    positions: I64
    sample_ids: I64
    columns: dict[str, npt.NDArray[Any]]

    def content(self) -> npt.NDArray[np.uint64]:
        """Content digests of the rows as they lie in memory; uint64[n]."""
        return sample_content_digests(self.columns)


def to_microbatch(table: pa.Table, columns: tuple[str, ...]) -> Microbatch:
    """A batch of the stream, with ids and contents as the reader delivered them."""
    return Microbatch(
        column_array(table[POSITION]).astype(np.int64, copy=False),
        column_array(table[SAMPLE_ID]).astype(np.int64, copy=False),
        {name: np.array(column_array(table[name])) for name in columns},  # writable: torch shares this memory
    )
