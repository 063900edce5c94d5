"""One rank's input: a Ray Data stream from any cursor, prefetched to a stated depth by one thread.

Starting costs the same whatever remains: the stream is a chain of datasets of a few blocks each. Prefetched is
not consumed: the cursor moves in the loop, never here.

After a restart the first steps are the lead: the rank runs the same read function itself, while Ray Data, whose
tasks may have to wait for new worker processes, starts up behind it.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import ray.data
from ray.data import ExecutionResources

from trainers.dataset import Dataset
from trainers.errors import DatasetError, Interrupted
from trainers.plan import Plan
from trainers.points import KillPoints
from trainers.source import Microbatch, PlanSource, Share, Span, read_span, spans, to_microbatch

_BLOCKS_A_DATASET = 16
_MEMORY_BYTES = 256 << 20  # bounds how far Ray Data itself runs ahead, per rank
_POLL_S = 0.2
_LEAD_STEPS, _LEAD_BYTES = 8, 4 << 20


@dataclass(frozen=True)
class PipelineStats:
    """Seconds since the start, by part; `depth` is produced − consumed microbatches right now."""

    wait_s: float
    prepare_s: float
    produced: int
    consumed: int
    samples_per_s: float

    @property
    def depth(self) -> int:
        return self.produced - self.consumed


class Pipeline:
    """Delivers the rank's microbatches from number `first_microbatch` of `first_step` to `last_step`, in plan order."""

    def __init__(
        self, dataset: Dataset, plan: Plan, share: Share, *, first_step: int, last_step: int, prefetch: int,
        attempt: int, points: KillPoints, lead: bool = False, read_tasks: int = 1, first_microbatch: int = 0,
    ) -> None:
        """Nothing is read before `start`. `lead`: the rank reads the first few steps itself.

        read_tasks: how many of Ray Data's tasks read at once; more only pay where reading is what is slow.
        """
        self._dataset, self._plan, self._share = dataset, plan, share
        self.start_at, self.first_step, self._last_step = (first_step, first_microbatch), first_step, last_step
        self._prefetch, self._attempt, self._points = prefetch, attempt, points
        self._read_tasks = read_tasks
        self._ready: queue.Queue[Microbatch | BaseException] = queue.Queue(maxsize=max(1, prefetch))
        self._closed = threading.Event()
        self._started = time.monotonic()
        lead_steps = _lead_steps(share, dataset.row_bytes, last_step - first_step) if lead else 0
        self._lead = self._read_here(lead_steps)
        self._stream_from = first_step + lead_steps
        self._wait_s = self._prepare_s = 0.0
        self.waiting = False
        self._produced = self._consumed = 0
        self._thread = threading.Thread(target=self._produce, name="pipeline", daemon=True)

    def start(self) -> None:
        """Starts the stream, or leaves that to the lead: it does so once its first step has been consumed."""
        if self._stream_from == self.first_step:
            self._start_stream()

    def _start_stream(self) -> None:
        if not self._thread.ident:
            self._thread.start()

    def next(self) -> Microbatch:
        """The next microbatch. Raises what the stream raised, or Interrupted after close()."""
        started = time.monotonic()
        item: Microbatch | BaseException | None = next(self._lead, None)
        self.waiting = item is None
        while item is None:
            try:
                item = self._ready.get(timeout=_POLL_S)
            except queue.Empty:
                if self._closed.is_set():
                    raise Interrupted("the input pipeline was closed while a batch was awaited") from None
        self.waiting = False
        self._wait_s += time.monotonic() - started
        if isinstance(item, BaseException):
            raise item
        self._consumed += 1
        return item

    def stats(self) -> PipelineStats:
        elapsed = max(1e-9, time.monotonic() - self._started)
        rate = self._consumed * self._share.microbatch_rows / elapsed
        return PipelineStats(self._wait_s, self._prepare_s, self._produced, self._consumed, rate)

    def close(self) -> None:
        """Stops the stream without waiting for it; may be called from any thread, more than once."""
        self._closed.set()

    def ended(self, deadline_s: float) -> bool:
        """Whether the stream, once closed, has let go of Ray Data within the deadline."""
        if self._thread.ident:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _produce(self) -> None:
        try:
            for microbatch in self._microbatches():
                if not self._put(microbatch):
                    return
                self._produced += 1
            self._put(DatasetError("the input pipeline ended before the last step: a block was shorter than planned"))
        except BaseException as error:  # handed to the loop: a dead producer must never look like a slow one
            self._put(error)

    def _put(self, item: Microbatch | BaseException) -> bool:
        while not self._closed.is_set():
            try:
                self._ready.put(item, timeout=_POLL_S)
                return True
            except queue.Full:
                continue
        return False

    def _read_here(self, steps: int) -> Iterator[Microbatch]:
        """The lead, one step at a time, through the function that Ray Data's tasks run."""
        for step in range(self.first_step, self.first_step + steps):
            if step > self.first_step or steps == 1:
                self._start_stream()
            started = time.monotonic()
            table = read_span(self._dataset, self._plan, self._share, Span(0, step, 1))
            self._prepare_s += time.monotonic() - started
            begin = self._consumed_before(step) * self._share.microbatch_rows
            for row in range(begin, self._share.rows, self._share.microbatch_rows):
                self._produced += 1
                yield to_microbatch(table.slice(row, self._share.microbatch_rows), self._dataset.columns)

    def _consumed_before(self, step: int) -> int:
        """Microbatches of the step whose gradients are in the restored checkpoint: never delivered again."""
        return self.start_at[1] if step == self.first_step else 0

    def _microbatches(self) -> Iterator[Microbatch]:
        return itertools.islice(self._whole_steps(), self._consumed_before(self._stream_from), None)

    def _whole_steps(self) -> Iterator[Microbatch]:
        step, number = self._stream_from, 1
        while step < self._last_step and not self._closed.is_set():
            blocks = spans(self._share, self._dataset.row_bytes, step, self._last_step, number, _BLOCKS_A_DATASET)
            source = PlanSource(self._dataset, self._plan, self._share, blocks, self._attempt, self._points)
            yield from self._stream(source, len(blocks))
            step, number = blocks[-1].first_step + blocks[-1].steps, number + len(blocks)

    def _stream(self, source: PlanSource, blocks: int) -> Iterator[Microbatch]:
        data = ray.data.read_datasource(source, override_num_blocks=blocks, concurrency=self._read_tasks)
        batches = iter(
            data.iter_batches(
                batch_size=self._share.microbatch_rows, batch_format="pyarrow", prefetch_batches=self._prefetch
            )
        )
        try:
            while not self._closed.is_set():
                started = time.monotonic()
                table = next(batches, None)
                self._prepare_s += time.monotonic() - started
                if table is None:
                    return
                yield to_microbatch(table, self._dataset.columns)
        finally:
            _let_go(data)
            close = getattr(batches, "close", None)
            if close is not None:
                close()


def _let_go(data: ray.data.Dataset) -> None:
    """Ends the tasks of a stream as Ray Data itself does for a dataset that nobody holds any more: without force.

    Closing the iterator would kill them, and where one is just done then, Ray ends the process that asked ("Tried to
    complete task that was not pending", seen with 2.60). The name is private to Ray; a test holds it.
    """
    executor = getattr(data, "_current_executor", None)
    if executor is not None:
        executor.shutdown(force=False)


def blocks_of(share: Share, row_bytes: int, last_step: int) -> int:
    """How many blocks Ray Data's tasks read for a rank that starts at step 0 with a lead."""
    first_step = _lead_steps(share, row_bytes, last_step)
    return len(spans(share, row_bytes, first_step, last_step, 1, last_step))


def _lead_steps(share: Share, row_bytes: int, steps: int) -> int:
    return min(_LEAD_STEPS, max(1, _LEAD_BYTES // (share.rows * row_bytes)), steps)


def configure_ray_data() -> None:
    """Once per process: quiet, ordered, bounded."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    context.execution_options.verbose_progress = False
    context.execution_options.resource_limits = ExecutionResources(object_store_memory=_MEMORY_BYTES)
