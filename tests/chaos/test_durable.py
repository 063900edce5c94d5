"""Between any two durable operations of the storage code there is a kill point: the kernel's word, and its reading."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from durable import CannotTrace, Operation, Passage, Trace, missing, parse, trace_storage

from chaos.points import CATALOGUE

OF_THE_STORE = ("save", "commit", "log", "retire")
# Without these there would still be another point between any two operations; each stands for a stage of its own.
STAGES = {
    "save.staged", "save.queued", "save.reported", "save.done", "shard.half", "ledger.synced", "commit.collected",
    "manifest.written", "publish.before", "publish.after", "retire.before", "retire.logged", "retire.after",
}  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The real classes of a rank's save, a commit and a retirement under strace, once."""
    return trace_storage(tmp_path_factory.mktemp("durable").resolve())


def test_there_is_a_point_between_any_two_durable_operations(trace: Trace) -> None:
    gaps = missing(trace)
    assert not gaps, "\n".join(map(str, gaps))


def test_everything_durable_was_seen(trace: Trace) -> None:
    folders = {(each.kind, each.path.split("/")[1]) for each in trace.operations if each.kind != "folder"}
    assert folders >= {
        *(("create", folder) for folder in ("tmp", "shards", "ledger")), ("link", "log"), ("link", "manifests"),
        *((kind, folder) for kind in ("write", "sync") for folder in ("tmp", "shards", "ledger")),
        ("unlink", "tmp"), ("unlink", "shards"), ("sync", "log"), ("sync", "manifests"),
    }  # fmt: skip
    assert all(each.origin for each in trace.operations)
    passed = {each.point for each in trace.passages}
    assert passed >= {point.name for point in CATALOGUE.values() if point.group in OF_THE_STORE}


def test_a_place_that_was_taken_was_seen(trace: Trace) -> None:
    """The committer that was fenced off: its entry got no name, and it read the log again."""
    passed = [each.point for events in trace.threads.values() for each in events if isinstance(each, Passage)]
    assert ("log.before_link", "log.after_unlink") in pairwise(passed)


@pytest.mark.parametrize("point", [point.name for point in CATALOGUE.values() if point.group in OF_THE_STORE])
def test_without_a_point_the_check_fails(trace: Trace, point: str) -> None:
    without = {
        thread: [each for each in events if not (isinstance(each, Passage) and each.point == point)]
        for thread, events in trace.threads.items()
    }
    assert bool(missing(Trace(without))) == (point not in STAGES)


def _parsed(*lines: str) -> Trace:
    return parse((line.replace("MARK", "write(3</r/passages.marks>, ").replace("PT", "PROT_READ|PROT_WRITE")
                  for line in lines), "/r")


OPEN = '1 openat(AT_FDCWD</r>, "store/a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 5</r/store/a>'
WRITE, SYNC = '1 write(5</r/store/a>, "x", 1) = 1', "1 fsync(5</r/store/a>) = 0"
POINT = '1 MARK"rank0 shard.half\\n", 17) = 17'


@pytest.mark.parametrize(
    ("lines", "pairs"),
    [
        ([OPEN, WRITE], [("create", "write")]),
        ([OPEN, POINT, WRITE, SYNC], [("write", "sync")]),
        ([OPEN, POINT, WRITE, WRITE, POINT, SYNC, SYNC], []),
        ([OPEN, POINT, WRITE, POINT.replace("1", "2", 1), SYNC], [("write", "sync")]),  # of another thread
        ([WRITE, SYNC.replace("1", "2", 1)], []),
        ([WRITE, SYNC.replace("= 0", "= -1 EIO (Input/output error)")], []),
        ([WRITE, SYNC.replace("store/a", "history/a")], []),
        ([WRITE, '1 openat(AT_FDCWD</r>, "store/b", O_RDONLY) = 6</r/store/b>'], []),
        ([WRITE, "1 write(5</r/store/b>, \"x\", 1) = 1"], [("write", "write")]),
        ([OPEN, POINT, SYNC, "1 fsync(5</r/store>) = 0"], [("sync", "folder")]),
        ([OPEN.replace("store/", "store/x/"), POINT, SYNC.replace("a>", "x/a>"), "1 fsync(5</r/store/x>) = 0"],
         [("sync", "sync")]),
        ([OPEN, POINT, SYNC, "1 fsync(5</r/store/y>) = 0"], []),  # a reader's: nothing was changed in y
        ([SYNC, "1 fsync(5</r/store/y>) = 0", POINT, WRITE, POINT, SYNC], []),
        ([WRITE, SYNC.replace("/r/", "/r/other/")], []),  # of another run
        ([WRITE.replace("/r/", "/r/other/"), SYNC.replace("/r/", "/r/other/")], [("write", "sync")]),
        ([WRITE, '1 link("/r/store/tmp/a", "/r/store/log/a") = -1 EEXIST (File exists)'], []),
        ([WRITE, '1 linkat(AT_FDCWD</r>, "/r/x", 7</r/store/log>, "a", 0) = 0'], [("write", "link")]),
        ([WRITE, '1 rename("/r/elsewhere", "/r/store/a") = 0'], [("write", "link")]),
        ([WRITE, '1 rename("/r/store/a", "/r/elsewhere") = 0'], [("write", "link")]),
        ([WRITE, '1 unlink("/r/store/a" <unfinished ...>', "2 +++ exited with 0 +++", "1 <... unlink resumed>) = 0"],
         [("write", "unlink")]),
        (['1 mkdir("/r/store/log", 0777) = 0', "1 fsync(5</r/store>) = 0", OPEN], []),
        ([SYNC, '1 mkdir("/r/store/log", 0777) = 0'], [("sync", "folder")]),
        ([WRITE, "1 mmap(NULL, 9, PROT_READ, MAP_SHARED, 5</r/store/a>, 0) = 0x7f"], []),
    ],
)  # fmt: skip
def test_what_counts_as_missing(lines: list[str], pairs: list[tuple[str, str]]) -> None:
    assert [(each.first.kind, each.second.kind) for each in missing(_parsed(*lines))] == pairs


def test_a_gap_is_named_with_both_sides_and_where_they_come_from() -> None:
    trace = _parsed(POINT, '1 MARK"from a.py:3 f < b.py:4 g\\n", 9) = 9', WRITE, SYNC)
    (gap,) = missing(trace)
    assert gap.first == Operation(1, "write", "store/a", "a.py:3 f < b.py:4 g")
    assert str(gap) == (
        "rank0, after shard.half: no point between\n"
        "    write  store/a\n      from a.py:3 f < b.py:4 g\n    sync   store/a"
    )


@pytest.mark.parametrize(
    "line",
    ["1 mmap(NULL, 9, PT, MAP_SHARED, 5</r/store/a>, 0) = 0x7f", "1 io_submit(0x1, 1, [{}]) = 1",
     "1 io_uring_setup(8, {flags=0}) = 7", "no trace",
     "1 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 9\n9 io_uring_setup(8, {flags=0}) = 7"],
)
def test_what_the_trace_cannot_see_fails_it(line: str) -> None:
    with pytest.raises(CannotTrace):
        _parsed(WRITE, *line.splitlines())


def test_what_another_process_does_unseen_is_its_own_affair() -> None:
    other = ["1 clone3({flags=CLONE_VFORK}, 88) = 9", "9 io_uring_setup(8, {flags=0}) = 7"]
    other.append("1 io_uring_setup(256, {flags=0x10000 /* IORING_SETUP_??? */, sq_thread_cpu=0}) = 7")  # libuv's polls
    assert len(_parsed(WRITE, *other).operations) == 1


def test_a_program_that_fails_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "passages.marks").mkdir()
    with pytest.raises(CannotTrace, match="status 1"):
        trace_storage(tmp_path)
