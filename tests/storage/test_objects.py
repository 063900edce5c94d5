from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from storage_kit import Killed, Points, kill_at

import storage.objects
from storage.errors import AlreadyExists, Damaged, NotThere, StoreFull, Unavailable
from storage.objects import LocalObjects
from storage.shard import write_shard


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 256 KiB, where this process may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mount.returncode:
        pytest.skip("may not mount a tmpfs here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fail(number: int) -> object:
    def failing(*args: object, **kwargs: object) -> int:
        raise OSError(number, os.strerror(number))

    return failing


def test_create_read_size_list(objects: LocalObjects) -> None:
    objects.create("log/b", b"two")
    objects.create("log/a", b"")
    assert (objects.read("log/b"), objects.size("log/b"), objects.read("log/a")) == (b"two", 3, b"")
    assert objects.list("log") == ["a", "b"]
    assert objects.list("tmp") == []
    assert objects.list("elsewhere") == []


def test_create_never_overwrites(objects: LocalObjects) -> None:
    objects.create("log/a", b"one")
    with pytest.raises(AlreadyExists):
        objects.create("log/a", b"two")
    assert objects.read("log/a") == b"one"
    assert objects.list("tmp") == []


def test_of_many_creations_one_wins(objects: LocalObjects) -> None:
    won: list[bytes] = []

    def work(data: bytes) -> None:
        try:
            objects.create("log/a", data)
            won.append(data)
        except AlreadyExists:
            pass

    threads = [threading.Thread(target=work, args=(b"%d" % i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [objects.read("log/a")]


def test_killed_before_the_link_there_is_nothing_and_after_it_everything(objects: LocalObjects) -> None:
    with pytest.raises(Killed):
        objects.create("log/a", b"one", kill_at("before_link"))
    with pytest.raises(NotThere):
        objects.read("log/a")
    with pytest.raises(Killed):
        objects.create("log/a", b"one", kill_at("after_link"))
    assert objects.read("log/a") == b"one"


def test_syncs_the_file_before_and_the_folder_after_the_link(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.create("log/a", b"one")
    points = Points()
    fsync = os.fsync

    def noted(fd: int) -> None:
        points(os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(objects.root)).split(".")[0])
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    objects.create("log/b", b"two", points)
    before = ["before_write", "before_sync", "/tmp/b", "before_link"]
    assert points.passed == [*before, "after_link", "after_unlink", "/log"]
    points.passed.clear()
    with pytest.raises(AlreadyExists):
        objects.create("log/b", b"two", points)
    assert points.passed == [*before, "after_unlink"]
    points.passed.clear()
    with objects.open_bulk("log/c") as writer:
        writer.write(b"x")
        writer.sync(points)
    objects.list("log")
    objects.remove("log/c", points)
    assert points.passed == ["/log/c", "data_synced", "/log", "/log", "after_unlink", "/log"]


@pytest.mark.parametrize(
    "name", ["a", "/a", "a/b/c", "../a", "a/..", "a/.b", "a/", "a/b\n", "", "a/b c", "./a"]
)
def test_other_names_are_refused(objects: LocalObjects, name: str) -> None:
    for call in (objects.read, objects.size, objects.remove, objects.quarantine, objects.path):
        with pytest.raises(ValueError, match="folder/file"):
            call(name)


def test_bulk_writes_pieces_of_any_buffer(objects: LocalObjects) -> None:
    with objects.open_bulk("shards/a") as writer:
        for piece in (
            b"ab",
            bytearray(b"c"),
            memoryview(b"d"),
            np.array([[1, 2]], np.uint8),
            np.zeros((0, 2)),
        ):
            writer.write(piece)
        writer.sync()
    assert objects.read("shards/a") == b"abcd\x01\x02"
    with pytest.raises(AlreadyExists), objects.open_bulk("shards/a"):
        pass


def test_an_abandoned_bulk_write_leaves_the_part(objects: LocalObjects) -> None:
    def write_part() -> None:
        with objects.open_bulk("shards/a") as writer:
            writer.write(b"part")
            raise Killed

    with pytest.raises(Killed):
        write_part()
    assert objects.read("shards/a") == b"part"


def test_remove_is_content_with_nothing(objects: LocalObjects) -> None:
    objects.create("shards/a", b"x")
    objects.remove("shards/a")
    objects.remove("shards/a")
    objects.remove("nowhere/a")
    assert objects.list("shards") == []


def test_quarantine_overwrites_nothing(objects: LocalObjects) -> None:
    names = []
    for data in (b"one", b"two"):
        objects.create("shards/a", data)
        names.append(objects.quarantine("shards/a"))
    (objects.root / "shards" / "a").mkdir()
    (objects.root / "shards" / "a" / "inner").write_bytes(b"three")
    names.append(objects.quarantine("shards/a"))
    assert names == ["quarantine/shards.a", "quarantine/shards.a.2", "quarantine/shards.a.3"]
    assert [objects.read(name) for name in names[:2]] == [b"one", b"two"]
    assert (objects.root / names[2] / "inner").read_bytes() == b"three"
    assert objects.list("shards") == []
    with pytest.raises(NotThere):
        objects.quarantine("shards/a")


def test_a_quarantine_without_a_name_left_is_unavailable(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(source: Path, target: Path) -> None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))

    objects.create("shards/a", b"x")
    monkeypatch.setattr(storage.objects, "_move_exclusively", taken)
    with pytest.raises(Unavailable, match="shards/a: has been quarantined 10,000 times already"):
        objects.quarantine("shards/a")
    assert objects.read("shards/a") == b"x"


def test_missing_and_not_a_file_are_definite(objects: LocalObjects) -> None:
    (objects.root / "shards" / "folder").mkdir(parents=True)
    (objects.root / "plain").write_bytes(b"")
    for call in (objects.read, objects.size):
        with pytest.raises(NotThere):
            call("shards/a")
        with pytest.raises(NotThere):
            call("plain/a")
        with pytest.raises(Damaged, match="not a file"):
            call("shards/folder")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EIO, Unavailable),
        (errno.EACCES, Unavailable),
        (errno.EROFS, Unavailable),
        (errno.ETIMEDOUT, Unavailable),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_what_writing_meets_has_a_type(
    objects: LocalObjects, monkeypatch: pytest.MonkeyPatch, call: str, number: int, kind: type[Exception]
) -> None:
    objects.create("log/a", b"x")
    objects.create("shards/a", b"x")
    monkeypatch.setattr(os, call, fail(number))
    with pytest.raises(kind, match="log/b"):
        objects.create("log/b", b"x")
    with pytest.raises(kind, match="shards/b"):
        write_shard(objects, "shards/b", b"x", memoryview(b"x"))
    monkeypatch.undo()
    assert objects.list("log") == ["a"]


def test_what_reading_meets_has_a_type(objects: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    objects.create("log/a", b"x")
    monkeypatch.setattr("builtins.open", fail(errno.EIO))
    with pytest.raises(Unavailable, match="log/a"):
        objects.read("log/a")


def test_a_really_full_disk(small_disk: Path) -> None:
    objects = LocalObjects(small_disk / "store")
    objects.create("log/a", b"kept")
    with pytest.raises(StoreFull), objects.open_bulk("shards/a") as writer:
        writer.write(bytes(1 << 20))
    with pytest.raises(StoreFull):
        objects.create("log/b", bytes(64 << 10))
    assert objects.read("log/a") == b"kept"
    assert objects.list("log") == ["a"]
    objects.remove("shards/a")
    objects.create("log/b", bytes(64 << 10))


def test_short_writes_are_continued(objects: LocalObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
    objects.create("log/a", bytes(range(100)))
    assert objects.read("log/a") == bytes(range(100))
