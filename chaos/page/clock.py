"""One axis of time for a run: instants of one boot of one host compare, those of two do not and follow one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chaos.audit.events import (
    Event,
    Fenced,
    Finished,
    Formed,
    Joined,
    Published,
    Restored,
    SaveDue,
    SaveStaged,
    StepDone,
)
from chaos.audit.evidence import Evidence
from chaos.audit.witnesses import boot, events

_SHOWN = (Fenced, Formed, Joined, Restored, SaveDue, SaveStaged, StepDone, Published, Finished)
_BETWEEN_NS = 1_000_000_000  # boots are drawn so far apart


@dataclass(frozen=True)
class Clock:
    """offsets: boot → nanoseconds to be added. end_us: of the last thing that is shown."""

    offsets: Mapping[str | None, int]
    end_us: int

    def us(self, boot: str | None, t_ns: int) -> int | None:
        """Microseconds since zero; None for a boot in which nothing happened that is shown."""
        offset = self.offsets.get(boot)
        return None if offset is None else (t_ns + offset) // 1000


def clock_of(evidence: Evidence, first_ns: Mapping[str, int]) -> Clock:
    """first_ns: by file, of something that began before the file's first event that is shown (an update's start)."""
    spans: dict[str | None, tuple[int, int, int]] = {}  # boot → first attempt, first and last instant
    for event in _shown(evidence):
        name = boot(evidence, event.file)
        early = min(event.t_ns, first_ns.get(event.file, event.t_ns))
        attempt, low, high = spans.get(name, (1 << 62, early, early))
        number = attempt if event.attempt is None else min(attempt, event.attempt)
        spans[name] = number, min(low, early), max(high, event.t_ns)
    for receipt in evidence.history.receipts:
        if receipt.boot in spans:
            number, low, high = spans[receipt.boot]
            spans[receipt.boot] = number, min(low, receipt.t_ns), max(high, receipt.t_ns)
    offsets: dict[str | None, int] = {}
    zero = 0
    for name, (_, low, high) in sorted(spans.items(), key=lambda item: item[1][0]):
        offsets[name] = zero - low
        zero += high - low + _BETWEEN_NS
    return Clock(offsets, max(0, zero - _BETWEEN_NS) // 1000)


def _shown(evidence: Evidence) -> Iterable[Event[object]]:
    for kind in _SHOWN:
        yield from events(evidence, kind)
