"""Reports of all ranks become one published checkpoint, or none; and there is always a way back."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path

import pytest
from storage_kit import CONFIG, OWNER, RUN, draft
from training_kit import events, flip

from storage.digests import bulk_digest
from storage.errors import Damaged, Fenced, NotThere
from storage.history import read_history
from storage.log import Candidate, CommitLog, Publish, Retire
from storage.manifest import Fingerprints, Manifest, decode, ledger_path, manifest_path, shard_path
from storage.objects import LocalObjects
from trainers.committer import Committer
from trainers.errors import Interrupted
from trainers.parts import part_digests
from trainers.points import NoPoints
from trainers.reports import CommitterSetup, FileReport, SaveReport

DEADLINE_S = 20.0
PRINTS = Fingerprints("sha256:d", "sha256:p", CONFIG, "sha256:c")
Change = Callable[[SaveReport], SaveReport]


def to_report(manifest: Manifest, rank: int) -> SaveReport:
    """What this rank would report of the files that the manifest's draft has written."""
    files = tuple(FileReport(f.path, f.kind, f.bytes, f.digest) for f in manifest.files if f.rank == rank)
    name = sorted(manifest.tensors)[rank]  # of the two replicated tensors each rank has written one
    own = manifest.ranks[rank]
    return SaveReport(
        manifest.attempt, manifest.step, rank, files, {name: manifest.tensors[name]}, dict(own.tensors),
        {"optimizer": "{}"}, dict(own.parts), own.history, 500 + manifest.step,
    )  # fmt: skip


class Points(NoPoints):
    """Calls `then` at every point."""

    def __init__(self) -> None:
        self.then: Callable[[str], None] = lambda point: None

    def __call__(self, point: str) -> None:
        self.then(point)


class Rig:
    """A committer of two ranks over a real store, and the ranks' side of it."""

    def __init__(self, folder: Path) -> None:
        self.objects, self.points = LocalObjects(folder / "store"), Points()
        self.log = CommitLog(self.objects, RUN)
        self.committer = Committer()
        self.committer.serve(CommitterSetup(RUN, str(folder), 2, 8, keep=2), self.points)
        self.history = next((folder / "history").glob("committer-*.jsonl"))
        self.calls = ThreadPoolExecutor(8)

    def begin(self, attempt: int, chosen: Publish | None = None) -> None:
        """Fence and choice, as the supervisor writes them, then the committer's part."""
        assert self.log.fence(CONFIG, OWNER).attempt == attempt
        listed = [Candidate(chosen.name, chosen.digest, chosen.step, "chosen")] if chosen else []
        parent = chosen.as_parent() if chosen else None
        self.log.choose(attempt, parent, listed)
        assert self.committer.begin(attempt, parent, PRINTS, 100) > 100

    def written(self, step: int, attempt: int = 0) -> list[SaveReport]:
        """Both ranks' reports; the files are in the store."""
        manifest = draft(self.objects, step, attempt)
        return [to_report(manifest, rank) for rank in (0, 1)]

    def report(self, report: SaveReport) -> Future[None]:
        """A rank's call, which returns when the checkpoint is published."""
        return self.calls.submit(self.committer.report, report)

    def save(self, step: int, attempt: int = 0, change: Change | None = None) -> None:
        """Both ranks save; raises what they get, which is the same for both. `change` is made to rank 1's report."""
        first, second = self.written(step, attempt)
        self.finish(self.report(first), self.report(change(second) if change else second))

    def finish(self, *calls: Future[None]) -> None:
        errors = [call.exception(DEADLINE_S) for call in calls]
        assert len(set(errors)) == 1
        if errors[0] is not None:
            raise errors[0]

    def published(self) -> list[Publish]:
        return [entry for entry in self.log.read() if isinstance(entry, Publish)]

    def manifest(self, publish: Publish) -> Manifest:
        path = manifest_path(publish.name)
        manifest, digest = decode(self.objects.read(path), path)
        assert digest == publish.digest
        return manifest


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.committer.abandon(99)
    made.calls.shutdown()


def test_nothing_is_published_before_all_ranks_have_reported(rig: Rig) -> None:
    rig.begin(0)
    first, second = rig.written(2)
    waiting = rig.report(first)
    with pytest.raises(NotYet):
        waiting.result(0.05)
    again = rig.report(first)  # the same rank twice is not two ranks
    with pytest.raises(NotYet):
        again.result(0.05)
    assert rig.published() == []
    rig.finish(waiting, again, rig.report(second))
    assert [entry.name for entry in rig.published()] == ["s00000002-a0000"]


def test_a_report_returns_only_when_the_log_has_it(rig: Rig) -> None:
    rig.begin(0)
    seen: list[tuple[str, bool, int]] = []
    first, second = rig.written(2)
    waiting = rig.report(first)
    rig.points.then = lambda point: seen.append((point, waiting.done(), len(rig.published())))
    rig.report(second).result(DEADLINE_S)
    waiting.result(DEADLINE_S)
    assert [point for point, _done, _count in seen] == [
        "commit.collected", "commit.read_back", "manifest.before_write", "manifest.before_sync", "manifest.before_link",
        "manifest.after_link", "manifest.after_unlink", "manifest.written", "publish.before", "log.before_create",
        "log.before_write", "log.before_sync", "log.before_link", "log.after_link", "log.after_unlink", "publish.after",
    ]  # fmt: skip
    assert not any(done for _point, done, _count in seen)
    assert [count for _point, _done, count in seen] == [0] * 13 + [1] * 3


def test_the_manifest_holds_what_the_ranks_reported(rig: Rig) -> None:
    rig.begin(0)
    rig.save(2)
    rig.save(4)
    first, second = (rig.manifest(entry) for entry in rig.published())
    assert (first.parent, second.parent) == (None, rig.published()[0].digest)
    assert (second.step, second.cursor, second.world, second.attempt) == (4, 32, 2, 0)
    assert second.fingerprints == PRINTS
    assert set(second.tensors) == {"model/w", "optimizer/w/exp_avg"}
    assert second.parts == part_digests(["model", "optimizer"], second.tensors, {"optimizer": "{}"})
    assert [record.rank for record in second.ranks] == [0, 1]
    for rank, report in enumerate(rig.written(6)):
        assert second.ranks[rank].parts == report.parts
        assert second.file("shard", rank).digest == report.files[0].digest
    assert [event["step"] for event in events(rig.history, "published")] == [2, 4]
    assert events(rig.history, "published")[-1]["clock"] > 504  # after the reports that it comes from


def lost_shard(rig: Rig) -> Change:
    def change(report: SaveReport) -> SaveReport:
        rig.objects.remove(report.files[0].path)
        return report

    return change


def changed_on_disk(rig: Rig) -> Change:
    def change(report: SaveReport) -> SaveReport:
        flip(rig.objects.path(report.files[0].path))
        return report

    return change


def cut_ledger(rig: Rig) -> Change:
    def change(report: SaveReport) -> SaveReport:
        path = rig.objects.path(report.files[1].path)
        path.write_bytes(path.read_bytes()[:-1])
        return report

    return change


def wrong_digest(rig: Rig) -> Change:
    def change(report: SaveReport) -> SaveReport:
        shard, ledger = report.files
        return dataclasses.replace(report, files=(dataclasses.replace(shard, digest=bulk_digest(b"other")), ledger))

    return change


def without_shard(rig: Rig) -> Change:
    return lambda report: dataclasses.replace(report, files=report.files[1:])


def files_of_another_attempt(rig: Rig) -> Change:
    return lambda report: dataclasses.replace(report, files=to_report(draft(rig.objects, report.step, 7), 1).files)


def files_of_another_step(rig: Rig) -> Change:
    return lambda report: dataclasses.replace(report, files=to_report(draft(rig.objects, 9), 1).files)


def files_of_the_other_rank(rig: Rig) -> Change:
    return lambda report: dataclasses.replace(
        report, files=tuple(dataclasses.replace(f, path=f.path.replace("-r0001", "-r0000")) for f in report.files)
    )


def missing_part(rig: Rig) -> Change:
    return lambda report: dataclasses.replace(
        report, parts={name: digest for name, digest in report.parts.items() if name != "scheduler"}
    )


def rank_outside(rig: Rig) -> Change:
    return lambda report: dataclasses.replace(report, rank=2)


@pytest.mark.parametrize(
    ("defect", "error", "words"),
    [
        (lost_shard, NotThere, r"shards/s00000004-a0000-r0001\.safetensors: does not exist"),
        (changed_on_disk, Damaged, r"shards/s00000004-a0000-r0001\.safetensors: has digest"),
        (cut_ledger, Damaged, r"ledger/s00000004-a0000-r0001\.arrow: has \d+ bytes"),
        (wrong_digest, Damaged, r"-r0001\.safetensors: has digest"),
        (without_shard, ValueError, r"see \['shards/s00000004-a0000-r0001"),
        (files_of_another_attempt, ValueError, r"one shard and one ledger segment of every rank"),
        (files_of_another_step, ValueError, r"one shard and one ledger segment of every rank"),
        (files_of_the_other_rank, ValueError, r"one shard and one ledger segment of every rank"),
        (missing_part, ValueError, r"digests of exactly .*'scheduler'"),
        (rank_outside, ValueError, r"ranks must be exactly 0 to 1"),
    ],
)
def test_what_is_not_whole_is_refused_and_the_next_one_is_not_harmed(
    rig: Rig, defect: Callable[[Rig], Change], error: type[Exception], words: str
) -> None:
    rig.begin(0)
    rig.save(2)
    with pytest.raises(error, match=words):
        rig.save(4, change=defect(rig))
    assert [entry.step for entry in rig.published()] == [2]
    assert not rig.objects.path(manifest_path("s00000004-a0000")).exists()
    rig.save(6)
    assert [entry.step for entry in rig.published()] == [2, 6]
    assert rig.manifest(rig.published()[1]).parent == rig.published()[0].digest


def test_a_save_of_an_attempt_that_is_over_is_refused(rig: Rig) -> None:
    rig.begin(0)
    rig.begin(1)
    for attempt in (0, 2):
        with pytest.raises(Interrupted, match=f"a save of attempt {attempt} came while attempt 1 is on"):
            rig.committer.report(rig.written(2, attempt)[0])
    assert rig.published() == []


def test_who_waits_for_a_rank_that_is_gone_is_released(rig: Rig) -> None:
    rig.begin(0)
    waiting = rig.report(rig.written(2)[0])
    with pytest.raises(NotYet):
        waiting.result(0.05)
    rig.committer.abandon(0)
    with pytest.raises(Interrupted, match="attempt 0 ended while step 2 was being saved"):
        waiting.result(DEADLINE_S)


def test_a_new_attempt_releases_the_old_ones_and_takes_nothing_over(rig: Rig) -> None:
    rig.begin(0)
    first, second = rig.written(2)
    waiting = rig.report(first)
    with pytest.raises(NotYet):
        waiting.result(0.05)
    rig.begin(1)
    with pytest.raises(Interrupted):
        waiting.result(DEADLINE_S)
    with pytest.raises(Interrupted):
        rig.committer.report(second)
    rig.save(2, attempt=1)
    assert [entry.name for entry in rig.published()] == ["s00000002-a0001"]


def test_after_a_later_fence_nothing_is_published(rig: Rig) -> None:
    """Another supervisor has taken over, and nobody has told this committer."""
    rig.begin(0)
    rig.save(2)
    rig.log.fence(CONFIG, OWNER)
    with pytest.raises(Fenced, match="by attempt 1"):
        rig.save(4)
    assert [entry.step for entry in rig.published()] == [2]
    assert [event["name"] for event in events(rig.history, "fenced_off")] == ["s00000004-a0000"]


def test_a_fence_in_the_middle_of_a_commit_wins(rig: Rig) -> None:
    rig.begin(0)

    def fence(point: str) -> None:
        if point == "publish.before":
            rig.log.fence(CONFIG, OWNER)

    rig.points.then = fence
    with pytest.raises(Fenced):
        rig.save(2)
    assert rig.published() == []


def test_a_commit_under_way_ends_before_the_next_attempts_checkpoint(rig: Rig) -> None:
    """It was complete, so it is not abandoned; whether it counts the log decides."""
    rig.begin(0)
    at_point, go_on = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == "manifest.written" and not at_point.is_set():
            at_point.set()
            go_on.wait(DEADLINE_S)

    rig.points.then = hold
    old = [rig.report(report) for report in rig.written(2)]
    assert at_point.wait(DEADLINE_S)
    rig.begin(1)
    go_on.set()
    with pytest.raises(Fenced):
        rig.finish(*old)
    rig.save(2, attempt=1)
    (entry,) = rig.published()
    assert entry.name == "s00000002-a0001"
    assert rig.manifest(entry).parent is None


def test_what_the_old_attempt_published_last_is_no_parent_unless_it_was_chosen(rig: Rig) -> None:
    """Its publication stands before the fence; the committer comes to note it after the next attempt has begun."""
    rig.begin(0)
    at_point, go_on = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == "publish.after" and not at_point.is_set():
            at_point.set()
            go_on.wait(DEADLINE_S)

    rig.points.then = hold
    old = [rig.report(report) for report in rig.written(2)]
    assert at_point.wait(DEADLINE_S)
    rig.begin(1)
    go_on.set()
    rig.finish(*old)
    rig.save(2, attempt=1)
    assert [rig.manifest(entry).parent for entry in rig.published()] == [None, None]


def left(rig: Rig) -> list[int]:
    """Steps of the checkpoints whose shards are there, all of them or none."""
    names = {entry.name: entry.step for entry in rig.published()}
    there = {name: [rig.objects.path(shard_path(name, rank)).exists() for rank in (0, 1)] for name in names}
    assert all(len(set(both)) == 1 for both in there.values())
    return [names[name] for name, both in there.items() if both[0]]


def test_old_shards_go_and_log_manifests_and_ledger_stay(rig: Rig) -> None:
    rig.begin(0)
    for step, expected in ((2, [2]), (4, [2, 4]), (6, [4, 6]), (8, [6, 8])):
        rig.save(step)
        assert left(rig) == expected
    for entry in rig.published():
        rig.manifest(entry)
        assert all(rig.objects.path(ledger_path(entry.name, rank)).exists() for rank in (0, 1))
    retired = [entry.names for entry in rig.log.read() if isinstance(entry, Retire)]
    assert retired == [("s00000002-a0000",), ("s00000004-a0000",)]
    removed = [event["path"] for event in events(rig.history, "removed")]
    assert removed[:2] == [shard_path("s00000002-a0000", rank) for rank in (0, 1)]


def test_after_a_restart_what_it_started_from_is_the_way_back(rig: Rig) -> None:
    rig.begin(0)
    rig.save(2)
    rig.save(4)
    rig.begin(1, rig.published()[-1])
    rig.save(6, attempt=1)
    assert left(rig) == [4, 6]
    assert rig.manifest(rig.published()[-1]).parent == rig.published()[1].digest


def test_nothing_goes_before_two_are_known_to_be_whole(rig: Rig) -> None:
    """After a fall-back: the newer, rejected one counts for nothing."""
    rig.begin(0)
    for step in (2, 4):
        rig.save(step)
    rig.begin(1)  # a start from nothing
    rig.save(2, attempt=1)
    assert left(rig) == [2, 4, 2]
    rig.save(4, attempt=1)
    assert [entry.name for entry in rig.published() if rig.objects.path(shard_path(entry.name, 0)).exists()] == [
        "s00000002-a0001", "s00000004-a0001",
    ]  # fmt: skip


def test_a_retirement_that_fails_does_not_fail_the_save_that_came_before_it(rig: Rig) -> None:
    """A folder in the file's place cannot be unlinked by anybody."""
    rig.begin(0)
    for step in (2, 4):
        rig.save(step)
    shard = rig.objects.path(shard_path("s00000002-a0000", 0))
    shard.unlink()
    shard.mkdir()
    rig.save(6)
    assert [entry.step for entry in rig.published()] == [2, 4, 6]
    (failed,) = [line.body for line in read_history(rig.history).lines if line.event == "retire_failed"]
    assert shard.name in failed["detail"]
    shard.rmdir()
    rig.save(8)
    assert left(rig) == [6, 8]  # the other rank's shard of step 2 too, which the failure had left lying


def test_what_a_kill_in_a_retirement_left_lying_is_removed_by_the_next_attempt(rig: Rig) -> None:
    rig.begin(0)
    for step in (2, 4, 6):
        rig.save(step)
    path = rig.objects.path(shard_path("s00000002-a0000", 1))
    path.write_bytes(b"its name was still there")
    rig.begin(1, rig.published()[-1])
    rig.save(8, attempt=1)
    assert not path.exists()
    assert [entry.names for entry in rig.log.read() if isinstance(entry, Retire)] == [
        ("s00000002-a0000",), ("s00000004-a0000",),
    ]  # fmt: skip


def test_fenced_off_before_it_retires_it_removes_nothing(rig: Rig) -> None:
    rig.begin(0)
    for step in (2, 4):
        rig.save(step)

    def fence(point: str) -> None:
        if point == "publish.after":
            rig.log.fence(CONFIG, OWNER)

    rig.points.then = fence
    rig.save(6)
    assert left(rig) == [2, 4, 6]


def test_the_history_ends_in_order(rig: Rig) -> None:
    rig.begin(0)
    rig.committer.close()
    file = read_history(rig.history)
    assert file.closed
    assert [line.event for line in file.lines][-1] == "closed"
