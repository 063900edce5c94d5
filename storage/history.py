"""The append-only record of what one process did: the auditor's witness. Standard library only.

Serves invariant 10. One file a process and role, outside the store, so that no storage fault can touch it.
Every line is canonical JSON {"body", "chain", "n"}, where chain_n = sha256(chain_{n-1} ‖ canonical body) in
hex and chain_{-1} is the file's own name: a line that was changed, dropped, moved or taken from another file
breaks the chain. A cut at a line's end does not; for that, others record this file's head (receipts,
manifests, `closed`).

Each line is one write to an append-only descriptor, so SIGKILL loses at most the last line's tail (`torn`).
Lines are not synced one by one: they outlive the process, not the loss of the machine; `close` syncs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from storage.errors import AlreadyExists, HistoryBroken, NotThere, StorageError, StoreFull, Unavailable
from storage.process import ProcessId, boot_id, current_process
from storage.sealed import canonical

_ROLE = re.compile(r"[a-z_]+")
_RESERVED = frozenset({"event", "t_ns", "attempt", "clock"})


@dataclass(frozen=True)
class Head:
    """How far a history had come. file: base name; n: last line's index; chain: that line's, in hex."""

    file: str
    n: int
    chain: str

    def as_dict(self) -> dict[str, Any]:
        """The form in which receipts, manifests and `closed` events hold it."""
        return asdict(self)


def history_name(role: str, process: ProcessId) -> str:
    """Base name of the history that `process` writes in `role`."""
    return f"{role}-{process.host}-{process.pid}-{process.start_ticks}.jsonl"


class History:
    """The calling process's own history. Safe to use from several threads; one event is one line."""

    def __init__(self, path: Path, fd: int, process: ProcessId) -> None:
        """Use `History.open`."""
        self.path = path
        self.process = process
        self._fd = fd
        self._lock = threading.Lock()
        self._n = -1
        self._chain = path.name
        self._clock = 0
        self._ended: str | None = None

    @classmethod
    def open(cls, folder: Path, role: str, run: str) -> History:
        """Create this process's history in `folder` and record `opened`. The folder is created if need be.

        role: lower-case letters and underscores (supervisor, worker, committer, launcher).
        Raises AlreadyExists if this process already has a history in this role, StoreFull, Unavailable.
        """
        if not _ROLE.fullmatch(role):
            raise ValueError(f"role {role!r} must consist of lower-case letters and underscores")
        process = current_process()
        path = folder / history_name(role, process)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _typed(error, str(path)) from error
        history = cls(path, fd, process)
        history.record(
            "opened", run=run, role=role, pid=process.pid, start_ticks=process.start_ticks, host=process.host,
            boot=boot_id(),
        )  # fmt: skip
        return history

    @property
    def name(self) -> str:
        """The file's base name."""
        return self.path.name

    @property
    def head(self) -> Head:
        """The last line that was written."""
        with self._lock:
            return Head(self.path.name, self._n, self._chain)

    @property
    def clock(self) -> int:
        """The Lamport clock: send it along with every message."""
        with self._lock:
            return self._clock

    def witness(self, clock: int) -> None:
        """Take in the clock that came with a message, so that later events come after its sending."""
        with self._lock:
            self._clock = max(self._clock, clock)

    def record(self, event: str, attempt: int | None = None, **fields: object) -> Head:
        """Append one event and return the head at its line. Each event advances the clock by one.

        fields: JSON values; finite floats only. Raises ValueError for a reserved field or a value that JSON
        lacks (nothing is written then), StoreFull or Unavailable if the line could not be written: after that
        the history is over and every further call raises.
        """
        if not _RESERVED.isdisjoint(fields):
            raise ValueError(f"event {event!r}: {sorted(_RESERVED & fields.keys())} are set by the history")
        with self._lock:
            return self._append(event, attempt, fields)

    def close(self, **fields: object) -> Head:
        """Record `closed` (with the fields given), sync the file and close it. A second call does nothing."""
        with self._lock:
            if self._ended is not None:
                return Head(self.path.name, self._n, self._chain)
            head = self._append("closed", None, fields)
            self._ended = "it was closed"
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise _typed(error, str(self.path)) from error
            finally:
                os.close(self._fd)
            return head

    def _append(self, event: str, attempt: int | None, fields: dict[str, object]) -> Head:
        if self._ended is not None:
            raise StorageError(f"{self.path}: cannot record {event!r}: {self._ended}")
        if os.getpid() != self.process.pid:
            raise StorageError(f"{self.path}: belongs to process {self.process.pid}; a fork needs its own")
        fields.update(event=event, attempt=attempt, clock=self._clock + 1, t_ns=time.monotonic_ns())
        try:
            body = canonical(fields)
        except TypeError as error:
            raise ValueError(f"event {event!r}: {error}") from error
        chain, line = _link(self._chain, self._n + 1, body)
        self._write(line)
        self._n += 1
        self._clock += 1
        self._chain = chain
        return Head(self.path.name, self._n, chain)

    def _write(self, line: bytes) -> None:
        """One write; a short one is continued once, so that a full disk is told apart from a signal."""
        try:
            written = os.write(self._fd, line)
            if written < len(line) and os.write(self._fd, line[written:]) < len(line) - written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._ended = f"an earlier write failed ({error.strerror})"
            raise _typed(error, str(self.path)) from error


@dataclass(frozen=True)
class HistoryLine:
    """One verified line. body: the event as written: event, t_ns, attempt, clock, and its own fields."""

    n: int
    chain: str
    body: dict[str, Any]

    @property
    def event(self) -> str:
        return str(self.body["event"])


@dataclass(frozen=True)
class HistoryFile:
    """A verified history. torn: it ends in part of a line, as a killed process or a full disk leaves it."""

    name: str
    lines: tuple[HistoryLine, ...]
    torn: bool

    @property
    def head(self) -> Head | None:
        """Head at the last whole line; None if there is none."""
        return Head(self.name, self.lines[-1].n, self.lines[-1].chain) if self.lines else None

    @property
    def closed(self) -> bool:
        """Whether the process ended this history in good order."""
        return bool(self.lines) and not self.torn and self.lines[-1].event == "closed"


def read_history(path: Path) -> HistoryFile:
    """Read and verify one history. Raises HistoryBroken naming the line, NotThere, Unavailable."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _typed(error, str(path)) from error
    *whole, tail = data.split(b"\n")
    chain = path.name
    lines = []
    for n, raw in enumerate(whole):
        line = _verified(raw, n, chain, f"{path}, line {n + 1}")
        lines.append(line)
        chain = line.chain
    return HistoryFile(path.name, tuple(lines), bool(tail))


def _link(previous: str, n: int, body: bytes) -> tuple[str, bytes]:
    """Chain and bytes of line n. Equals canonical({"body", "chain", "n"}) without encoding the body twice."""
    chain = hashlib.sha256(previous.encode() + body).hexdigest()
    return chain, b'{"body":%b,"chain":"%b","n":%d}\n' % (body, chain.encode("ascii"), n)


def _verified(raw: bytes, n: int, previous: str, where: str) -> HistoryLine:
    try:
        outer = json.loads(raw.decode("ascii"))
        body = outer["body"]
        chain, expected = _link(previous, n, canonical(body))
        complete = isinstance(body, dict) and body.keys() >= _RESERVED and isinstance(body["event"], str)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HistoryBroken(where, f"is not a history line: {error!r}") from error
    if expected != raw + b"\n":
        raise HistoryBroken(where, f"does not continue this file's chain at n = {n}: changed, moved or cut")
    if not complete:
        raise HistoryBroken(where, "lacks event, t_ns, attempt or clock")
    return HistoryLine(n, chain, body)


def _typed(error: OSError, where: str) -> StorageError:
    if isinstance(error, FileNotFoundError):
        return NotThere(where)
    if isinstance(error, FileExistsError):
        return AlreadyExists(where)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(where)
    return Unavailable(where, str(error))
