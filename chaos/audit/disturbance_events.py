"""Events of faults that end nobody at once: notices, delays, errors of the store. A part of `events`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Noticed:
    """A rank learned, in the reduction of the update before step, that one of the group has to go. own: it itself."""

    rank: int
    step: int
    own: bool


@dataclass(frozen=True)
class Leaving:
    """A rank that has to go saw its save of step published, and ends."""

    rank: int
    step: int


@dataclass(frozen=True)
class Slowed:
    """By the kill points: the last of the fault's passages is done."""

    fault: str
    passages: int


@dataclass(frozen=True)
class StoreFailed:
    """The store did not answer the process that recorded this; it asked again, or gave up."""

    where: str
