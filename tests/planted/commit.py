"""Defects of saving, publishing and keeping (bugs 12, 13, 14, 17, 20, 23, 30, 32)."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from scenes import NONE_IN_FLIGHT, NONE_RETIRED, gate, kill, struck

from chaos.gallery.bugs import COMMITTER, EVERYWHERE, SUPERVISOR, Bug, Case, Here, Replacement
from storage.digests import bulk_digest
from storage.log import Fence
from storage.objects import LocalObjects, no_point
from storage.retrying import Retrying
from storage.selection import current_lineage, retired
from storage.shard import Written
from trainers.events import Chosen, DeathDetected

_POLL_S, _PATIENCE_S, _RENDEZVOUS_S = 0.002, 1.5, 60.0


def report_before_writing(ranks: Any) -> Any:
    """What is to be written is reported first, and so published; then it is written."""

    def make(original: Any, here: Here) -> Any:
        def planted(saver: Any, snapshot: Any, order: Any) -> None:
            if not ranks(saver._identity.rank):
                original(saver, snapshot, order)
                return
            objects, reached, scratch = saver._objects, saver._reached, Path(tempfile.mkdtemp())
            try:
                saver._objects, saver._reached = Retrying(LocalObjects(scratch), 0.0), no_point
                report = saver._write(snapshot, order)
                saver._objects, saver._reached = objects, reached
                reached("save.reported")
                saver._report(report)
                saver._write(snapshot, order)
                reached("save.done")
            except BaseException as error:
                saver._error = error
            finally:
                saver._objects, saver._reached = objects, reached
                shutil.rmtree(scratch, ignore_errors=True)

        return planted

    unread = Replacement("storage.commit.read_verified", lambda original, here: lambda objects, record: b"", COMMITTER)
    return Replacement("trainers.saver.Saver._run", make), unread


def retiring(which: Any) -> tuple[Replacement, ...]:
    """`which(names of the lineage that are there, newest first)` are retired, and nothing guards them."""

    def make(original: Any, here: Here) -> Any:
        def planted(entries: Any, keep: int, verified: Any) -> Any:
            gone = retired(entries)
            return tuple(which([p.name for p in current_lineage(entries) or () if p.name not in gone]))

        return planted

    unguarded = Replacement("storage.retention._check_way_back", lambda original, here: lambda *given: None, COMMITTER)
    return Replacement("trainers.committer.to_retire", make, COMMITTER), unguarded


def reuse_old_shard(write_shard: Any, here: Here) -> Any:
    """A file of the step that lies there from an earlier attempt need not be written again."""

    def planted(objects: Any, name: str, header: Any, data: Any, *more: Any) -> Any:
        old = here.folder / "store" / name.replace("-a0001-r0001", "-a0000-r0001")
        new = here.folder / "store" / name
        if old == new or not old.exists():
            return write_shard(objects, name, header, data, *more)
        os.link(old, new)
        return Written(name, old.stat().st_size, bulk_digest(old.read_bytes()))

    return planted


def by_reference(copy: Any, here: Here) -> Any:
    """What the snapshot holds is the live state."""

    def planted(staging: Any, workload: Any, progress: Any, partial: Any = None) -> Any:
        snapshot = copy(staging, workload, progress, partial)
        own = staging._own(workload, progress, partial)
        here.notes["live"] = list(zip(staging._fit(own).views, own.values(), strict=True))
        here.notes["progress"] = progress
        return snapshot

    return planted


def written_live(write: Any, here: Here) -> Any:
    def planted(saver: Any, snapshot: Any, order: Any) -> Any:
        for view, tensor in here.notes["live"]:
            view.copy_(tensor)
        return write(saver, snapshot, order)

    return planted


def is_slow(here: Here, step: int) -> bool:
    """The disk is slow at one save of the run, and at none of its twin."""
    return not here.twin and here.attempt == 0 and step == 3


def update_overtakes(write: Any, here: Here) -> Any:
    """The write of the slow save begins when the next update is done."""

    def also(saver: Any, snapshot: Any, order: Any) -> Any:
        while is_slow(here, order.step) and here.notes["progress"].step == order.step:
            time.sleep(_POLL_S)
        return write(saver, snapshot, order)

    return also


def nothing_overtakes(save: Any, here: Here) -> Any:
    """All other saves are written before training goes on."""

    def also(saver: Any, workload: Any, progress: Any, *more: Any) -> None:
        save(saver, workload, progress, *more)
        if not is_slow(here, progress.step):
            saver.wait()

    return also


class Skipping:
    """When a save falls due: not while another one is in flight."""

    def __init__(self, run: Any, here: Here) -> None:
        self._due, self._run, self._skipped = run.schedule.due, run, here.notes.setdefault("skipped", [])

    def due(self, step: int, microbatch: int = 0) -> bool:
        if not self._due(step, microbatch):
            return False
        if self._run.saver._idle.wait(_PATIENCE_S):
            return True
        self._skipped.append(step)
        return False


def skipping(train: Any, here: Here) -> Any:
    def planted(run: Any) -> None:
        here.notes["skipped"] = []
        run.__dict__["schedule"] = Skipping(run, here)
        train(run)

    return planted


def two_are_skipped(write: Any, here: Here) -> Any:
    """The slow save is in flight until two more have fallen due."""

    def also(saver: Any, snapshot: Any, order: Any) -> Any:
        while is_slow(here, order.step) and len(here.notes["skipped"]) < 2:
            time.sleep(_POLL_S)
        return write(saver, snapshot, order)

    return also


def never(original: Any, here: Here) -> Any:
    return lambda *arguments: None


def wait_for_rival(place: Any, here: Here) -> Any:
    """Both are past their fence before either goes on."""

    def also(supervisor: Any, attempt: int) -> Any:
        until = time.monotonic() + _RENDEZVOUS_S
        while attempt > 0 and sum(isinstance(entry, Fence) for entry in supervisor._log.read()) < 3:
            assert time.monotonic() < until, "no rival came"
            time.sleep(_POLL_S)
        return place(supervisor, attempt)

    return also


class WakesTheStopped:
    """Wakes every stopped process as soon as the next attempt has chosen what it starts from."""

    def __init__(self) -> None:
        self._stopped: list[int] = []

    def __call__(self, event: Any) -> None:
        if isinstance(event, DeathDetected) and event.how == "stopped":
            self._stopped.append(event.pid)
        if isinstance(event, Chosen) and event.attempt > 0:
            for pid in self._stopped:
                os.kill(pid, signal.SIGCONT)
            self._stopped = []


UNHELD = Replacement("storage.log._require_held", never, EVERYWHERE)
FIRST_OF_ALL = (kill("microbatch.forward", 9, rank=1),)

BUGS = (
    Bug(
        12, "the old checkpoint is deleted before the background write of the new one has ended",
        (*report_before_writing(lambda rank: True), *retiring(lambda names: names[1:])),
        Case((kill("shard.half", 2, rank=1, gate=gate("retire.after", role="committer")),)),
        Case(FIRST_OF_ALL, {"save_every": 12}),
        {1: r"published s00000006-a0000 \(entry \d+\) is not whole: store/shards/s00000006-a0000-r0001",
         7: r"entry \d+ retired s00000003-a0000, at that time a checkpoint that is needed as the way back"},
        NONE_RETIRED, "KempnerForge#102", may=frozenset({4}),
    ),
    Bug(
        13, "the pointer is moved when rank 0 is done, before the other ranks' shards are durable",
        report_before_writing(lambda rank: rank > 0),
        Case((kill("shard.half", 2, rank=1),)), Case((struck(),)),
        {1: r"published s00000006-a0000 \(entry \d+\) is not whole: store/(shards|ledger)/s00000006-a0000-r0001"},
        NONE_IN_FLIGHT, "DeepSpeed's `latest`", may=frozenset({7}),
    ),
    Bug(
        14, "shards of two attempts are mixed in one checkpoint",
        (Replacement("trainers.saver.write_shard", reuse_old_shard),),
        Case((kill("commit.collected", 2, role="committer"),)), Case((struck(),)),
        {4: "s00000006-a0001: the shard of rank 1 is of attempt 0, the manifest of 1"}, NONE_IN_FLIGHT, "ray#41700",
    ),
    Bug(
        17, "retention deletes the checkpoint just saved",
        retiring(lambda names: names[:1] if len(names) > 2 else []),
        Case((kill("microbatch.forward", 21, rank=1, gate=gate("retire.after", role="committer")),)),
        Case((struck(),), {"steps": 6}),
        {7: r"entry \d+ retired s00000009-a0000, at that time the newest checkpoint"}, NONE_RETIRED,
        "transformers#27138", may=frozenset({8}),
    ),
    Bug(
        20, "the state is captured by reference: the next update changes it while it is written",
        (
            Replacement("trainers.staging.Staging.copy", by_reference),
            Replacement("trainers.saver.Saver._write", written_live),
        ),
        Case(
            (struck(),),
            also=(
                Replacement("trainers.saver.Saver._write", update_overtakes),
                Replacement("trainers.saver.Saver.save", nothing_overtakes),
            ),
        ),
        Case((kill("microbatch.forward", 9, rank=1),), {"save_every": 12}),
        {4: "s00000003-a0000: its .*model.*recorded after step 3",
         5: "attempt 1, step 3, rank 0: not the twin's .*model as restored"},
        "no checkpoint was restored|every restart began from nothing", "a snapshot must be of one moment",
    ),
    Bug(
        23, "a fenced worker of the old attempt publishes after the restart",
        (Replacement("storage.log._require_held", never, COMMITTER),),
        Case(
            (kill("publish.before", 2, role="committer", kind="hang"),), {"kill_suspects": False, "steps": 40},
            watch=WakesTheStopped,
        ),
        Case((struck(),)),
        {6: r"entry \d+ is a publish of s00000006-a0000 by attempt 0 after the fence of attempt 1"},
        "no writer of a fenced attempt", "zombie writers",
    ),
    Bug(
        30, "a save that falls due while another is in flight is skipped in silence",
        (Replacement("trainers.rank.train", skipping),),
        Case((struck(step=11),), also=(Replacement("trainers.saver.Saver._write", two_are_skipped),)),
        Case(FIRST_OF_ALL, {"save_every": 12}),
        {8: "the save of step 6 was skipped: rank 0 of attempt 0 .*"
            "attempt 1 redid 7 steps from step 3, which nothing explains"},
        "no save fell due while another", "maxtext#5260",
    ),
    Bug(
        32, "two supervisors resume the same run at once and both go on",
        (
            UNHELD, Replacement("trainers.supervisor.Supervisor._fenced_by", never, SUPERVISOR),
            Replacement("trainers.supervisor.end_predecessors", never, SUPERVISOR),
        ),
        Case(
            (kill("recover.choose.after", role="supervisor"),), {"standbys": 0}, rivals=2,
            also=(Replacement("trainers.supervisor.Supervisor._place", wait_for_rival, SUPERVISOR),),
        ),
        Case((struck(),)),
        {6: r"entry \d+ is a \w+.* by attempt 1 after the fence of attempt 2"}, "no writer of a fenced attempt",
        may=frozenset({2, 3, 8}),  # what attempt 1 chose and published has no force
    ),
)  # fmt: skip
