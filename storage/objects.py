"""Named objects, created once and never rewritten: the seam between the protocol and where the bytes live.

Serves invariants 1, 2 and 6: everything that the protocol decides, it decides by one exclusive creation.
Hence `create` refuses an existing name (locally `link`, which fails where `rename` would overwrite), is whole
or absent for every reader, and is durable when it returns: file synced before it gets its name, folder synced
after.

An object is named `folder/file`. Two names never alias, and a name never leads out of the root.

`Objects` is also the seam for object stores. An implementation needs a conditional put (`If-None-Match: *`
on S3; a 412 or 409 is AlreadyExists) for `create`, a strongly consistent listing for `list`, and for
`open_bulk` a multipart upload whose completion carries the same condition. After an exception other than
AlreadyExists, the outcome of a `create` is open: the object may exist. A reader may also find it only later,
which the commit log copes with since its names are consecutive and creations exclusive.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from storage.digests import Buffer
from storage.errors import AlreadyExists, Damaged, NotThere, StorageError, StoreFull, Unavailable

Reached = Callable[[str], None]
Names = list[str]  # classes below have a method `list`, which hides the builtin
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*/[A-Za-z0-9_][A-Za-z0-9._-]*")
_SLICE_BYTES = 8 << 20
_WRITE_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def no_point(point: str) -> None:
    """The kill point function that does nothing."""


class BulkWriter(Protocol):
    """One object being written piece by piece. It counts only once `sync` has returned."""

    def write(self, buffer: Buffer) -> None:
        """Append the bytes of a contiguous buffer, without copying it. Raises StoreFull, Unavailable."""

    def sync(self, reached: Reached = no_point) -> None:
        """Make the bytes and the name durable. Passes `data_synced` between the two.

        A failure is final: the object must not be used.
        """


class Objects(Protocol):
    """What the protocol asks of a store. Names are `folder/file`; errors are those of `storage.errors`."""

    def read(self, name: str) -> bytes:
        """All bytes, in one read. Raises NotThere, Damaged (not a file), Unavailable."""

    def size(self, name: str) -> int:
        """Size in bytes. Raises NotThere, Damaged (not a file), Unavailable."""

    def list(self, folder: str) -> Names:
        """Base names in the folder, sorted; empty if there is no such folder. Syncs it first, so that nothing
        is acted upon that a loss of power could still take back."""

    def create(self, name: str, data: bytes, reached: Reached = no_point) -> None:
        """Create exclusively, whole and durable.

        Passes `before_write` (a temporary file exists), `before_sync`, `before_link`, `after_link` and `after_unlink`
        (of the temporary name; also where the name was taken, and then without `after_link`). Raises
        AlreadyExists (nothing changed), StoreFull, Unavailable (it may exist or not).
        """

    def open_bulk(self, name: str) -> AbstractContextManager[BulkWriter]:
        """Create exclusively under the final name for writing piece by piece. Leaving the context without
        `sync` leaves a partial object behind: a stray, which no manifest names. Raises AlreadyExists."""

    def remove(self, name: str, reached: Reached = no_point) -> None:
        """Remove durably. Fine if it does not exist. Passes `after_unlink`, before that is durable."""

    def quarantine(self, name: str) -> str:
        """Move into the folder `quarantine`, overwriting nothing. Returns the new name. Raises NotThere."""


class LocalObjects:
    """Objects as files below `root`, on a POSIX filesystem with hard links. Folders appear when needed."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def path(self, name: str) -> Path:
        """Where the object lies. Raises ValueError unless the name has the form `folder/file`."""
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not an object's name: it must have the form folder/file")
        return self.root / name

    def read(self, name: str) -> bytes:
        path = self.path(name)
        with _typed(name), open(path, "rb", buffering=0) as file:
            return file.readall()

    def size(self, name: str) -> int:
        path = self.path(name)
        with _typed(name):
            status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise Damaged(name, "is not a file")
        return status.st_size

    def list(self, folder: str) -> Names:
        with _typed(folder):
            try:
                _sync_folder(self.root / folder)
            except FileNotFoundError:
                return []
            return sorted(os.listdir(self.root / folder))

    def create(self, name: str, data: bytes, reached: Reached = no_point) -> None:
        final = self._room_for(name)
        temporary = self._room_for(f"tmp/{final.name}.{uuid.uuid4().hex}")
        with _typed(name):
            try:
                _write_file(temporary, data, reached)
                reached("before_link")
                os.link(temporary, final)
                reached("after_link")
            finally:
                # Not after a kill, of course: what lies in tmp is a stray and harmless.
                with contextlib.suppress(OSError):
                    temporary.unlink()
                reached("after_unlink")
            _sync_folder(final.parent)

    @contextmanager
    def open_bulk(self, name: str) -> Iterator[BulkWriter]:
        path = self._room_for(name)
        with _typed(name):
            fd = os.open(path, _WRITE_NEW, 0o644)
        try:
            yield _LocalBulkWriter(name, fd, path.parent)
        finally:
            os.close(fd)

    def remove(self, name: str, reached: Reached = no_point) -> None:
        path = self.path(name)
        with _typed(name):
            try:
                path.unlink()
            except FileNotFoundError:
                return
            reached("after_unlink")
            _sync_folder(path.parent)

    def quarantine(self, name: str) -> str:
        source = self.path(name)
        with _typed(name):
            source.lstat()
        for copy in range(1, 10_000):
            suffix = "" if copy == 1 else f".{copy}"
            target_name = f"quarantine/{name.replace('/', '.')}{suffix}"
            target = self._room_for(target_name)
            with _typed(name), contextlib.suppress(FileExistsError):
                _move_exclusively(source, target)
                _sync_folder(target.parent)
                _sync_folder(source.parent)
                return target_name
        raise Unavailable(name, "has been quarantined 10,000 times already; empty the quarantine folder")

    def _room_for(self, name: str) -> Path:
        """The object's path, after its folder was made durable."""
        path = self.path(name)
        if not path.parent.is_dir():
            with _typed(name):
                path.parent.mkdir(parents=True, exist_ok=True)
                _sync_folder(self.root)
                _sync_folder(self.root.parent)
        return path


class _LocalBulkWriter:
    def __init__(self, name: str, fd: int, folder: Path) -> None:
        self._name = name
        self._fd = fd
        self._folder = folder

    def write(self, buffer: Buffer) -> None:
        view = _flat(buffer)
        with _typed(self._name):
            _write_all(self._fd, view)

    def sync(self, reached: Reached = no_point) -> None:
        with _typed(self._name):
            os.fsync(self._fd)
            reached("data_synced")
            _sync_folder(self._folder)


def _flat(buffer: Buffer) -> memoryview:
    """The buffer's bytes as one row, not copied. An empty view of several dimensions cannot be cast."""
    view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _write_all(fd: int, view: memoryview) -> None:
    """Slice by slice: a write may be short, and one call moves at most 2 GiB."""
    at = 0
    while at < len(view):
        at += os.write(fd, view[at : at + _SLICE_BYTES])


def _write_file(path: Path, data: bytes, reached: Reached) -> None:
    fd = os.open(path, _WRITE_NEW, 0o644)
    try:
        reached("before_write")
        _write_all(fd, memoryview(data))
        reached("before_sync")
        os.fsync(fd)
    finally:
        os.close(fd)


def _move_exclusively(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink():
        target.mkdir()  # taken by this call alone; rename replaces an empty folder and nothing else
        source.rename(target)
    else:
        os.link(source, target, follow_symlinks=False)
        source.unlink()


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def _typed(name: str) -> Iterator[None]:
    """Turn an OSError into the error that says what it means for the object `name`."""
    try:
        yield
    except OSError as error:
        raise _error_for(error, name) from error


def _error_for(error: OSError, name: str) -> StorageError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotThere(name)
    if isinstance(error, IsADirectoryError):
        return Damaged(name, "is not a file")
    if isinstance(error, FileExistsError):
        return AlreadyExists(name)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(name)
    return Unavailable(name, str(error))
