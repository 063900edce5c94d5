"""The seam through which kill points reach downward: whoever experiments supplies the object, this package calls it."""

from __future__ import annotations

from typing import Protocol

from storage.history import History
from storage.objects import Objects, Reached, no_point


class PointRaised(Exception):
    """Root of what a kill point raises on purpose: never an exception of the code around it."""


class KillPoints(Protocol):
    """Told who this process is now, then called at every point. Picklable: it travels to actors and tasks."""

    def enter(self, attempt: int, role: str, rank: int | None, history: History | None) -> None:
        """From now on this process works for `attempt` in `role`; hits are counted from zero."""

    def __call__(self, point: str) -> None:
        """Execution is at `point`. May not return."""

    def at(self, point: str, hit: int) -> None:
        """Execution is at passage number `hit` of `point`, counted by the caller (tasks have no memory)."""

    def bound(self) -> Reached:
        """The function for a thread that may outlive the attempt: it goes on counting for the attempt of now."""

    def store(self, objects: Objects) -> Objects:
        """The store as this process is to see it: `objects`, or something around it."""

    def flush(self) -> None:
        """Writes what was counted, if anything is counted, to the history."""


class NoPoints:
    """Nothing is ever struck."""

    def enter(self, attempt: int, role: str, rank: int | None, history: History | None) -> None:
        pass

    def __call__(self, point: str) -> None:
        pass

    def at(self, point: str, hit: int) -> None:
        pass

    def bound(self) -> Reached:
        return no_point

    def store(self, objects: Objects) -> Objects:
        return objects

    def flush(self) -> None:
        pass
