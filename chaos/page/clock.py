"""One axis of time for a run: instants of one boot of one host compare. Those of several do within what the run's own
messages between them allow (`chaos.cost.clocks`); without such messages they do not, and follow one another.
"""

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
from chaos.cost.clocks import Clocks

_SHOWN = (Fenced, Formed, Joined, Restored, SaveDue, SaveStaged, StepDone, Published, Finished)
_BETWEEN_NS = 1_000_000_000  # boots are drawn so far apart


@dataclass(frozen=True)
class Clock:
    """offsets: boot → nanoseconds to be added. end_us: of the last thing that is shown. axes: stretches of time that do
    not compare with one another. uncertainty_s: of a duration between two hosts that do; 0 for one host.
    """

    offsets: Mapping[str | None, int]
    end_us: int
    axes: int
    uncertainty_s: float

    def us(self, boot: str | None, t_ns: int) -> int | None:
        """Microseconds since zero; None for a boot in which nothing happened that is shown."""
        offset = self.offsets.get(boot)
        return None if offset is None else (t_ns + offset) // 1000


def clock_of(evidence: Evidence, first_ns: Mapping[str, int], hosts: Clocks | None = None) -> Clock:
    """first_ns: by file, of something that began before the file's first event that is shown (an update's start).

    hosts: what places some boots on one of them.
    """
    placed = {} if hosts is None else {name: (hosts.reference, round(o.ns)) for name, o in hosts.offsets.items()}
    spans: dict[str | None, tuple[int, int, int]] = {}  # axis → first attempt, first and last instant
    boots: dict[str | None, tuple[str | None, int]] = {}  # boot → its axis, and what its instants are ahead of that

    def take(name: str | None, attempt: int | None, early_ns: int, late_ns: int) -> None:
        axis, ahead = boots.setdefault(name, placed.get(name or "", (name, 0)))
        number, low, high = spans.get(axis, (1 << 62, early_ns - ahead, late_ns - ahead))
        number = number if attempt is None else min(number, attempt)
        spans[axis] = number, min(low, early_ns - ahead), max(high, late_ns - ahead)

    for event in _shown(evidence):
        early = min(event.t_ns, first_ns.get(event.file, event.t_ns))
        take(boot(evidence, event.file), event.attempt, early, event.t_ns)
    for receipt in evidence.history.receipts:
        if receipt.boot in boots:
            take(receipt.boot, None, receipt.t_ns, receipt.t_ns)
    zeros: dict[str | None, int] = {}
    zero = 0
    for axis, (_, low, high) in sorted(spans.items(), key=lambda item: item[1][0]):
        zeros[axis] = zero - low
        zero += high - low + _BETWEEN_NS
    offsets = {name: zeros[axis] - ahead for name, (axis, ahead) in boots.items()}
    uncertainty_s = hosts.uncertainty_s if hosts is not None and len(boots) > len(spans) else 0.0
    return Clock(offsets, max(0, zero - _BETWEEN_NS) // 1000, len(spans), uncertainty_s)


def _shown(evidence: Evidence) -> Iterable[Event[object]]:
    for kind in _SHOWN:
        yield from events(evidence, kind)
