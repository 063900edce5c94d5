"""Errors of the storage package. Each message says what happened, where, and what to do.

StorageError
├── Damaged              definite: what is there can never be used (missing, size, digest, malformed)
│   ├── NotThere         the object does not exist
│   ├── LogBroken        the commit log has a gap, a wrong link or an unreadable entry
│   └── HistoryBroken    a history file's chain does not hold
├── Unavailable          perhaps only now: I/O error, timeout, permission; the same call may work later
├── AlreadyExists        an exclusive creation lost: the name is taken
├── StoreFull            no space or no quota left
├── Fenced               a later attempt has taken over; this one may publish nothing more
├── Abandoned            the caller cancelled a write; a partial file is left and belongs to no checkpoint
└── NoCandidate          every checkpoint that a restart could choose is damaged

`Damaged` lets a restart fall back to an older checkpoint; `Unavailable` must not: a hiccup must not cost
work. Every error survives pickling with its attributes, since actors send them to each other.
"""


from __future__ import annotations


class StorageError(Exception):
    """Root of every error that this package raises on purpose."""


class Damaged(StorageError):
    """What is stored at `where` is definitely unusable; `what` says why. Retrying cannot help."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class NotThere(Damaged):
    """Nothing is stored under this name."""

    def __init__(self, where: str, what: str = "does not exist") -> None:
        super().__init__(where, what)


class LogBroken(Damaged):
    """The commit log cannot be read as one unbroken sequence. Nothing may be chosen or published."""

    def __str__(self) -> str:
        return (
            f"{self.where}: {self.what}. The commit log decides what is published, so nothing is chosen or "
            "written until it is whole again: restore the log folder from a copy, or start a new run."
        )


class HistoryBroken(Damaged):
    """A history file's lines do not form the chain that its writer made; `where` names file and line."""


class Unavailable(StorageError):
    """The store did not answer as it should; it may later. Retry up to a deadline, then stop."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where = where
        self.what = what

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. This may pass: retry, and check disk, mount and permissions."


class AlreadyExists(StorageError):
    """An exclusive creation found the name taken; nothing was changed."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: already exists, and nothing in the store is ever overwritten."


class StoreFull(StorageError):
    """No space or quota is left for `where`. What was published before is untouched."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where

    def __str__(self) -> str:
        return f"{self.where}: no space left. Published checkpoints are untouched: free space and resume."


class Fenced(StorageError):
    """Attempt `by_attempt` has begun, so the writer's own attempt is over: stop, publish nothing."""

    def __init__(self, by_attempt: int) -> None:
        super().__init__(by_attempt)
        self.by_attempt = by_attempt

    def __str__(self) -> str:
        return f"fenced off by attempt {self.by_attempt}: this attempt is over and may publish nothing more."


class Abandoned(StorageError):
    """The caller cancelled the write of `where`; `point` is the last kill point it had passed."""

    def __init__(self, where: str, point: str) -> None:
        super().__init__(where, point)
        self.where = where
        self.point = point

    def __str__(self) -> str:
        return f"{self.where}: write abandoned after {self.point}; the partial file belongs to no checkpoint."


class NoCandidate(StorageError):
    """Every candidate was examined and is damaged. `reasons` names each one and what is wrong with it."""

    def __init__(self, reasons: tuple[str, ...]) -> None:
        super().__init__(reasons)
        self.reasons = reasons

    def __str__(self) -> str:
        return (
            f"none of {len(self.reasons)} checkpoints can be restored ({'; '.join(self.reasons)}). "
            "Starting over would discard published work: restore the damaged files from a copy, or start "
            "a new run."
        )
