"""The asynchronous saver of one rank (invariants 1 and 4).

At the step boundary, or between two microbatches if the run asks for that, the state is copied into staging buffers:
the only stall. In the background shard and ledger rows are written under names that carry step, microbatch and attempt,
synced, and reported to the committer; a save is done when the committer has published it. A save that falls due while
another is in flight waits, and the wait is recorded; it is never skipped. Whatever goes wrong in the background is
raised at the next save.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from storage.digests import bulk_digest
from storage.history import History
from storage.ledger import LedgerRows, SegmentMeta, encode_segment
from storage.manifest import checkpoint_name
from storage.objects import Reached
from storage.retrying import Retrying
from storage.shard import shard_header, write_ledger, write_shard
from trainers.accumulation import Partial
from trainers.errors import Interrupted
from trainers.parts import LOCAL, PARTIAL, REPLICATED, is_replicated, part_digests
from trainers.reports import FileReport, SaveReport
from trainers.staging import Snapshot, Staging
from trainers.state import Progress
from trainers.workload import Workload

_POLL_S = 0.05


@dataclass(frozen=True)
class SaverIdentity:
    """Who saves."""

    run: str
    attempt: int
    rank: int
    ranks: int


@dataclass(frozen=True, eq=False)
class _Order:
    """What is saved: the moment, and the ledger rows since the save before with their first step and microbatch."""

    step: int
    microbatch: int
    cursor: int
    rows: LedgerRows
    first_step: int
    first_microbatch: int

    @property
    def moment(self) -> dict[str, int]:
        """As events and shards name it: the microbatch is left out at the boundary of a step."""
        return {"step": self.step, **({"microbatch": self.microbatch} if self.microbatch else {})}


class Saver:
    """One save in flight at most. `report` hands a SaveReport over and returns when it is published, or raises."""

    def __init__(
        self, identity: SaverIdentity, objects: Retrying, staging: Staging, history: History,
        report: Callable[[SaveReport], None], reached: Reached,
    ) -> None:
        self._identity, self._objects, self._staging, self._history = identity, objects, staging, history
        self._report, self._reached = report, reached
        self._error: BaseException | None = None
        self._abandoned, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # One thread for all saves: starting one makes the loop wait for it, which is a fifth of the stall.
        threading.Thread(target=self._serve, name="saver", daemon=True).start()

    def save(
        self, workload: Workload, progress: Progress, rows: LedgerRows, first_step: int, first_microbatch: int = 0,
        accumulated: Partial | None = None,
    ) -> None:
        """Waits for the save in flight, copies the state, and lets the write go on in the background.

        accumulated: of a save inside a step; its parts are digested before the wait, as evidence of that moment.
        """
        rank, attempt = self._identity.rank, self._identity.attempt
        order = _Order(progress.step, accumulated.microbatch if accumulated else 0, progress.cursor, rows, first_step,
                       first_microbatch)
        parts = {"parts": accumulated.digests(workload)} if accumulated else {}
        self._history.record("save_due", attempt, rank=rank, **order.moment, **parts)
        waited = time.monotonic()
        self.wait()
        started = time.monotonic()
        snapshot = self._staging.copy(workload, progress, accumulated)
        stall_s = time.monotonic() - started
        self._history.record("save_staged", attempt, rank=rank, **order.moment, stall_s=stall_s,
                             waited_s=started - waited)
        self._reached("save.staged")
        self._idle.clear()
        self._orders.put(partial(self._run, snapshot, order))
        self._reached("save.queued")

    def wait(self) -> None:
        """Returns when no save is in flight. Raises what the last one raised, or Interrupted after `cancel`."""
        while not self._idle.wait(_POLL_S):
            if self._abandoned.is_set():
                raise Interrupted("the attempt ended while a save was awaited")
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def cancel(self) -> None:
        """The save in flight is given up; returns at once, from any thread."""
        self._abandoned.set()

    def abandon(self, deadline_s: float) -> bool:
        """Gives up the save in flight; none can follow. True if it has ended: only then may the buffers be reused."""
        self.cancel()
        self._orders.put(None)
        return self._idle.wait(deadline_s)

    def _serve(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order()
            finally:
                self._idle.set()

    def _run(self, snapshot: Snapshot, order: _Order) -> None:
        identity = self._identity
        try:
            started = time.monotonic()
            report = self._write(snapshot, order)
            written = sum(file.bytes for file in report.files)
            self._history.record("save_written", identity.attempt, rank=identity.rank, **order.moment, bytes=written,
                                 duration_s=time.monotonic() - started)
            if self._abandoned.is_set():
                raise Interrupted(f"save of step {order.step} abandoned before it was reported")
            self._reached("save.reported")
            self._report(report)
            self._reached("save.done")
        except BaseException as error:  # raised at the next boundary: a lost save must not look like a slow one
            self._error = error
            self._history.record("save_abandoned", identity.attempt, rank=identity.rank, **order.moment,
                                 where=f"{type(error).__name__}: {error}")

    def _write(self, snapshot: Snapshot, order: _Order) -> SaveReport:
        identity, step = self._identity, order.step
        stem = f"{checkpoint_name(step, identity.attempt, order.microbatch)}-r{identity.rank:04d}"
        metadata = {
            "format": "killpoint.shard/1", "run": identity.run, "attempt": str(identity.attempt),
            **{key: str(value) for key, value in order.moment.items()},
            "rank": str(identity.rank), "world": str(identity.ranks), "cursor": str(order.cursor),
            **{f"part.{part}": text for part, text in snapshot.texts.items()},
        }
        header = shard_header(list(snapshot.specs), metadata)
        path = f"shards/{stem}.safetensors"
        shard = self._objects.rewritten(
            path, lambda to: write_shard(to, path, header, snapshot.data, self._reached, self._abandoned.is_set)
        )
        digests, offset = {}, 0
        for spec in snapshot.specs:
            digests[spec.name] = bulk_digest(snapshot.data[offset : offset + spec.bytes])
            offset += spec.bytes
        meta = SegmentMeta(identity.run, identity.attempt, step, identity.rank, order.first_step,
                           step if order.microbatch else step - 1, order.first_microbatch, order.microbatch)
        rows, place = encode_segment(order.rows, meta), f"ledger/{stem}.arrow"
        segment = self._objects.rewritten(
            place, lambda to: write_ledger(to, place, rows, self._reached, self._abandoned.is_set)
        )
        files = (FileReport(shard.path, "shard", shard.bytes, shard.digest),
                 FileReport(segment.path, "ledger", segment.bytes, segment.digest))
        local = {n: d for n, d in digests.items() if not is_replicated(n)}
        texts = {part: text for part, text in snapshot.texts.items() if part in REPLICATED}
        return SaveReport(
            identity.attempt, step, identity.rank, files, {n: d for n, d in digests.items() if is_replicated(n)}, local,
            texts, part_digests((*LOCAL, *PARTIAL), local, snapshot.texts), self._history.head, self._history.clock,
            order.microbatch,
        )
