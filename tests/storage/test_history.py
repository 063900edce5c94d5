from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import storage.history
from storage.errors import AlreadyExists, HistoryBroken, NotThere, StorageError, StoreFull, Unavailable
from storage.history import Head, History, history_name, read_history
from storage.process import boot_id, current_process
from storage.sealed import canonical

ROOT = Path(storage.history.__file__).parents[1]


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History.open(tmp_path / "history", "worker", "r1")


def test_the_first_event_says_who_writes(history: History) -> None:
    me = current_process()
    line = read_history(history.path).lines[0]
    assert history.name == history_name("worker", me) == f"worker-{me.host}-{me.pid}-{me.start_ticks}.jsonl"
    expected = {"event": "opened", "attempt": None, "clock": 1, "run": "r1", "role": "worker", "pid": me.pid,
                "start_ticks": me.start_ticks, "host": me.host, "boot": boot_id()}  # fmt: skip
    assert {key: value for key, value in line.body.items() if key != "t_ns"} == expected


def test_lines_are_canonical_and_chained_from_the_name(history: History) -> None:
    history.record("step", 2, rank=0, loss="0x1.0p+0")
    chain = history.name
    for n, raw in enumerate(history.path.read_bytes().splitlines()):
        line = json.loads(raw)
        assert raw == canonical(line)
        chain = hashlib.sha256(chain.encode() + canonical(line["body"])).hexdigest()
        assert (line["n"], line["chain"]) == (n, chain)
    assert history.head == Head(history.name, 1, chain)


def test_record_returns_its_own_head(history: History) -> None:
    head = history.record("step", 0)
    history.record("step", 0)
    assert read_history(history.path).lines[head.n].chain == head.chain
    assert head.as_dict() == {"file": history.name, "n": 1, "chain": head.chain}


def test_clock_grows_with_events_and_messages(history: History) -> None:
    assert history.clock == 1
    history.witness(40)
    history.witness(7)
    history.record("joined")
    assert history.clock == 41
    assert [line.body["clock"] for line in read_history(history.path).lines] == [1, 41]


def test_close_is_the_last_line_and_happens_once(history: History) -> None:
    heads = [Head("a", 1, "00").as_dict()]
    head = history.close(heads=heads)
    assert history.close() == head
    read = read_history(history.path)
    assert read.closed
    assert read.head == head
    assert read.lines[-1].body["heads"] == heads
    with pytest.raises(StorageError, match="closed"):
        history.record("late")


def test_a_process_opens_a_role_once(history: History) -> None:
    with pytest.raises(AlreadyExists):
        History.open(history.path.parent, "worker", "r1")
    with pytest.raises(ValueError, match="role"):
        History.open(history.path.parent, "a-b", "r1")


def test_unwritable_values_are_refused_and_leave_no_trace(history: History) -> None:
    for bad in (float("nan"), object(), b"x"):
        with pytest.raises(ValueError, match=r"JSON|serializable"):
            history.record("x", value=bad)
    with pytest.raises(ValueError, match="clock"):
        history.record("x", clock=3)
    assert history.record("y").n == 1
    assert len(read_history(history.path).lines) == 2


def test_threads_share_one_chain(history: History) -> None:
    def work(rank: int) -> None:
        for step in range(100):
            history.record("step", 0, rank=rank, step=step)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = read_history(history.path).lines
    assert len(lines) == 401
    assert [line.body["clock"] for line in lines] == list(range(1, 402))
    assert [line.body["t_ns"] for line in lines] == sorted(line.body["t_ns"] for line in lines)


def test_a_cut_at_a_lines_end_reads_shorter_and_any_other_is_torn(history: History) -> None:
    history.record("a")
    data = history.path.read_bytes()
    ends = {0, data.index(b"\n") + 1, len(data)}
    for length in range(len(data) + 1):
        history.path.write_bytes(data[:length])
        read = read_history(history.path)
        assert read.torn == (length not in ends)
        assert len(read.lines) == data[:length].count(b"\n")
        assert not read.closed


@pytest.mark.no_cover
def test_every_flipped_bit_is_found(history: History) -> None:
    history.record("a", text="b")
    data = history.path.read_bytes()
    for at in range(len(data) - 1):
        for bit in range(8):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            history.path.write_bytes(changed)
            with pytest.raises(HistoryBroken, match=r"line [123]: "):
                read_history(history.path)


def test_a_dropped_moved_or_repeated_line_is_found(history: History) -> None:
    history.record("a")
    history.record("b")
    lines = history.path.read_bytes().splitlines(keepends=True)
    for order in ([0, 2], [1, 2], [0, 2, 1], [0, 1, 1, 2]):
        history.path.write_bytes(b"".join(lines[i] for i in order))
        with pytest.raises(HistoryBroken):
            read_history(history.path)


def test_a_file_under_another_name_is_found(history: History) -> None:
    other = history.path.with_name("worker-x-1-1.jsonl")
    other.write_bytes(history.path.read_bytes())
    with pytest.raises(HistoryBroken, match=r"x-1-1\.jsonl, line 1"):
        read_history(other)


def test_a_chained_line_without_the_common_fields_is_found(history: History) -> None:
    _, line = storage.history._link(history.head.chain, 1, canonical({"event": "x"}))
    with history.path.open("ab") as file:
        file.write(line)
    with pytest.raises(HistoryBroken, match="lacks"):
        read_history(history.path)


def test_a_missing_file_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotThere):
        read_history(tmp_path / "x.jsonl")


def test_a_full_disk_ends_the_history(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreFull):
        history.record("x")
    monkeypatch.undo()
    with pytest.raises(StorageError, match="No space left"):
        history.record("y")
    assert len(read_history(history.path).lines) == 1


@pytest.mark.parametrize("short", [1, 2])
def test_a_short_write_is_continued_once(
    history: History, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    write = os.write
    left = [short]

    def shortened(fd: int, data: bytes) -> int:
        left[0] -= 1
        return write(fd, data[:30] if left[0] >= 0 else data)

    monkeypatch.setattr(os, "write", shortened)
    if short == 1:
        history.record("x")
    else:
        with pytest.raises(StoreFull):
            history.record("x")
    monkeypatch.undo()
    read = read_history(history.path)
    assert (len(read.lines), read.torn) == (3 - short, short == 2)


def test_what_opening_and_closing_meet_has_a_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Unavailable):
        History.open(tmp_path / "file" / "history", "worker", "r1")
    history = History.open(tmp_path, "worker", "r1")

    def failing(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(Unavailable):
        history.close()
    assert read_history(history.path).closed


def test_a_fork_does_not_write_into_its_parents_history(history: History) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            history.record("x")
        except StorageError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(read_history(history.path).lines) == 1


def test_a_killed_writer_leaves_a_readable_history(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from storage.history import History
history = History.open(Path({str(tmp_path)!r}), "launcher", "r1")
history.record("spawned", pid=1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-S", "-E", "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    read = read_history(next(tmp_path.glob("launcher-*.jsonl")))
    assert [line.event for line in read.lines] == ["opened", "spawned"]
    assert not read.closed


@pytest.mark.parametrize("module", ["history", "process", "sealed", "errors"])
def test_needs_the_standard_library_only(module: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import storage.{module}"
    subprocess.run([sys.executable, "-S", "-E", "-c", code], check=True)


def test_a_fork_does_not_write_its_parents_history(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(StorageError, match=f"belongs to process {pid}; a fork needs its own"):
        history.record("step", 0)
    assert len(read_history(history.path).lines) == 1
