"""The real input pipeline of a rank, with stated times: what `lab pipeline --measure` runs and times.

The stream is `trainers.pipeline.Pipeline`, that is Ray Data over Parquet, one block a batch. A batch's preparation is
real reading and gathering plus, inside the read task and before it, a wait or a fixed amount of work, which the task
finds in the kill points that it calls anyway.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq
import ray.data

from chaos.labs.computing import work
from trainers.dataset import open_dataset
from trainers.pipeline import Pipeline, configure_ray_data
from trainers.plan import Plan
from trainers.points import NoPoints
from trainers.source import Microbatch, PlanSource, Share, Span, read_span, to_microbatch
from trainers.workloads.cache import cached_dataset

_BATCH_SAMPLES = 64
_VALUES = 24_576  # of 4 bytes: 6 MiB a batch, so that a second one does not fit into the pipeline's block of 10 MiB
_ROWS, _GROUP_ROWS, _FILES = 256, 16, 4
_WINDOW_GROUPS = 4
_WARM_UP_S, _END_S = 20.0, 5.0


class Preparation(NoPoints):
    """Adds to the preparation of batch i a wait of waits_s[i], and `units` of work; notes when it began and where.

    with_workers: a task first waits until so many processes are there, for at most 20 s.
    """

    def __init__(self, folder: Path, waits_s: Sequence[float], units: int = 0, with_workers: int = 0) -> None:
        self._folder, self._waits_s, self._units = str(folder), tuple(waits_s), units
        self._with_workers = with_workers

    @property
    def batches(self) -> int:
        """How many there are to prepare."""
        return len(self._waits_s)

    def at(self, point: str, hit: int) -> None:
        """Called by the read task of block `hit`, counted from 1, before it reads. A task that Ray repeats is noted
        once, as it began first."""
        path = Path(self._folder) / f"{hit}"
        if not path.exists():
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(f"{time.monotonic()} {os.getpid()}")
            draft.replace(path)
        limit = time.monotonic() + _WARM_UP_S
        while self._with_workers > len({pid for _, pid in self.noted()}) and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(self._waits_s[hit - 1])
        work(self._units)

    def noted(self) -> list[tuple[float, int]]:
        """(when it began on the monotonic clock, process) of every preparation so far, in order of the batches."""
        paths = (path for path in Path(self._folder).iterdir() if path.name.isdecimal())
        lines = [path.read_text().split() for path in sorted(paths, key=lambda path: int(path.name))]
        return [(float(begun), int(pid)) for begun, pid in lines]


@dataclass(frozen=True)
class Moment:
    """One batch in the training process; instants in seconds on the monotonic clock.

    queued: batches that lay in the pipeline's queue behind this one when it was taken. prepare_start_s: when its
    preparation began; in_flight: batches begun and not taken, this one included.
    """

    prepare_start_s: float
    asked_s: float
    taken_s: float
    done_s: float
    queued: int
    in_flight: int


@dataclass(frozen=True)
class Costs:
    """What a batch costs without any stated time, in seconds: medians over several batches.

    reading_s: Parquet row groups into memory. transforming_s: gathering the plan's rows from them. transferring_s: a
    block that lies prepared in Ray's object store, into the arrays that training consumes. stream_s: from batch to
    batch of the whole stream with one data worker when nothing is trained, which has Ray's own cost of a block too.
    """

    reading_s: float
    transforming_s: float
    transferring_s: float
    stream_s: float


class InputBench:
    """The lab's dataset and the streams over it. Ray must be there. `scratch`: an empty folder for notes."""

    def __init__(self, scratch: Path) -> None:
        def columns() -> dict[str, npt.NDArray[np.generic]]:
            return {"x": np.random.default_rng(1).standard_normal((_ROWS, _VALUES), dtype=np.float32)}

        self._scratch = scratch
        folder = cached_dataset(f"pipeline-lab-1-{_ROWS}", columns, files=_FILES, group_rows=_GROUP_ROWS)
        self._dataset = open_dataset(folder)
        self._plan = Plan(self._dataset.rows, self._dataset.group_rows, _WINDOW_GROUPS, 1)
        self._share = Share(0, 1, _BATCH_SAMPLES, 1)
        self.batch_samples = _BATCH_SAMPLES
        self.batch_bytes = _BATCH_SAMPLES * self._dataset.row_bytes
        configure_ray_data()

    def warm_up(self, workers: int) -> int:
        """Starts so many data workers, which otherwise come late and compete; returns how many there are."""
        preparation = self._preparation([0.0] * (workers + 1), with_workers=workers)
        self._stream(workers, preparation, lambda: None, depth=1, workers=workers)
        return len({pid for _, pid in preparation.noted()})

    def streamed(
        self, batches: int, waits_s: Sequence[float], train: Callable[[], None], *, depth: int, workers: int = 1,
        units: int = 0,
    ) -> list[Moment]:
        """Trains so many batches of a stream that has one for each of `waits_s`, at least as many.

        Depth 0 prepares each on demand, in this process.
        """
        preparation = self._preparation(waits_s, units)
        if depth:
            return self._stream(batches, preparation, train, depth=depth, workers=workers)
        taken = [_train(partial(self._on_demand, preparation, number), train, lambda: 0) for number in range(batches)]
        return _placed(taken, preparation)

    def cached(self, batches: int, train: Callable[[], None]) -> list[Moment]:
        """The control: every batch is prepared and in this process's memory before the first one is trained."""
        ready = iter([self._prepare(number) for number in range(batches)])
        return _placed([_train(lambda: next(ready), train, lambda: 0) for _ in range(batches)], None)

    def costs(self, batches: int) -> Costs:
        """Each part of a preparation on its own, nothing trained. At least 2 batches."""
        reading_s = statistics.median(_timed(partial(self._read_groups, number)) for number in range(batches))
        prepared_s = statistics.median(_timed(partial(self._prepare, number)) for number in range(batches))
        moments = self.streamed(batches, [0.0] * (batches + 2), lambda: None, depth=1)
        between_s = [after.taken_s - before.taken_s for before, after in pairwise(moments)]
        return Costs(
            reading_s, max(0.0, prepared_s - reading_s), self._transferring_s(batches), statistics.median(between_s)
        )

    def _preparation(self, waits_s: Sequence[float], units: int = 0, with_workers: int = 0) -> Preparation:
        return Preparation(Path(tempfile.mkdtemp(dir=self._scratch)), waits_s, units, with_workers)

    def _prepare(self, number: int) -> Microbatch:
        table = read_span(self._dataset, self._plan, self._share, Span(number + 1, number, 1))
        return to_microbatch(table, self._dataset.columns)

    def _on_demand(self, preparation: Preparation, number: int) -> Microbatch:
        preparation.at("data.read", number + 1)
        return self._prepare(number)

    def _read_groups(self, number: int) -> None:
        ids = self._plan.sample_ids(self._share.positions(number, 1))
        for index in sorted(set((ids // self._dataset.group_rows).tolist())):
            group = self._dataset.row_groups[index]
            pq.ParquetFile(group.path).read_row_group(group.index, columns=list(self._dataset.columns))

    def _transferring_s(self, batches: int) -> float:
        blocks = [Span(number + 1, number, 1) for number in range(batches)]
        source = PlanSource(self._dataset, self._plan, self._share, blocks, 0, self._preparation([0.0] * batches))
        data = ray.data.read_datasource(source, override_num_blocks=batches, concurrency=1).materialize()
        stream = iter(data.iter_batches(batch_size=_BATCH_SAMPLES, batch_format="pyarrow", prefetch_batches=0))
        columns = self._dataset.columns
        times_s = [_timed(lambda: to_microbatch(next(stream), columns)) for _ in range(batches)]
        return statistics.median(times_s[1:])  # the first one also starts the iterator

    def _stream(
        self, batches: int, preparation: Preparation, train: Callable[[], None], *, depth: int, workers: int
    ) -> list[Moment]:
        pipeline = Pipeline(
            self._dataset, self._plan, self._share, first_step=0, last_step=preparation.batches, prefetch=depth,
            attempt=0, points=preparation, read_tasks=workers,
        )
        pipeline.start()
        try:
            taken = [_train(pipeline.next, train, lambda: pipeline.stats().depth) for _ in range(batches)]
            return _placed(taken, preparation)
        finally:
            pipeline.close()
            pipeline.ended(_END_S)  # the next stream must not compete with this one


_Taken = tuple[float, float, float, int]


def _train(fetch: Callable[[], Microbatch], train: Callable[[], None], queued: Callable[[], int]) -> _Taken:
    asked_s = time.monotonic()
    fetch()
    taken_s, behind = time.monotonic(), queued()
    train()
    return asked_s, taken_s, time.monotonic(), behind


def _placed(taken: Sequence[_Taken], preparation: Preparation | None) -> list[Moment]:
    """Beside each batch, what the preparation noted. None: all were prepared before."""
    begun_s = [begun for begun, _ in preparation.noted()] if preparation else [taken[0][0]] * len(taken)
    return [
        Moment(begun_s[batch], asked_s, taken_s, done_s, queued, sum(begun <= taken_s for begun in begun_s) - batch)
        for batch, (asked_s, taken_s, done_s, queued) in enumerate(taken)
    ]


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
