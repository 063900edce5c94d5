"""One clock for a run: instants of one boot compare as they are, those of several hosts within what messages allow.

Monotonic clocks of two hosts have unrelated origins. A message that was sent before it was received bounds their
difference from one side, one the other way from the other side; the middle of what is left is taken, and half its
width is the uncertainty (F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989). Drift over
a run is not corrected: over an hour good clocks drift apart by milliseconds. A host with messages in one direction only
cannot be placed, so that durations which would need it are None. A host that was booted in between counts as another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chaos.cost.records import Finished, Formed, Joined, Preparing, Proposed, Restored, Seen, StepDone, Witnessed

_NS = 1e9


@dataclass(frozen=True)
class Offset:
    """To be taken from a boot's instants to get those of the reference: so many ns, ± uncertainty_ns."""

    ns: float
    uncertainty_ns: float


@dataclass(frozen=True)
class Clocks:
    """offsets: of every boot that could be placed. reference: the supervisor's."""

    reference: str
    offsets: Mapping[str, Offset]

    def at(self, boot: str, t_ns: int) -> float | None:
        """The instant on the reference clock, ns; None if the boot cannot be placed."""
        offset = self.offsets.get(boot)
        return None if offset is None else t_ns - offset.ns

    def seen(self, event: Seen) -> float | None:
        """The event's instant."""
        return self.at(event.boot, event.t_ns)

    @property
    def uncertainty_s(self) -> float:
        """Of a duration between the two worst-placed hosts; 0 if all is of one boot."""
        widths = sorted((offset.uncertainty_ns for offset in self.offsets.values()), reverse=True)
        return sum(widths[:2]) / _NS


@dataclass(frozen=True)
class Pair:
    """A message: sent at one instant of one boot, received by the other instant of another."""

    sent: tuple[str, int]
    received: tuple[str, int]


def clocks(witnessed: Witnessed) -> Clocks:
    """From the run's own messages between supervisor and ranks."""
    reference = next((event.boot for event in witnessed.of(Proposed)), "")
    boots = {event.boot for event in witnessed.events} | {strike.boot for strike in witnessed.strikes}
    found = {reference: Offset(0.0, 0.0)}
    pairs = list(message_pairs(witnessed)) if boots - {reference} else []
    for boot in boots - {reference}:
        offset = offset_of(reference, boot, pairs)
        if offset is not None:
            found[boot] = offset
    return Clocks(reference, found)


def offset_of(reference: str, boot: str, pairs: list[Pair]) -> Offset | None:
    """Of `boot` against the reference. None unless messages went both ways, or if they contradict each other."""
    upper = [p.received[1] - p.sent[1] for p in pairs if (p.sent[0], p.received[0]) == (reference, boot)]
    lower = [p.sent[1] - p.received[1] for p in pairs if (p.sent[0], p.received[0]) == (boot, reference)]
    if not upper or not lower or min(upper) < max(lower):
        return None
    return Offset((min(upper) + max(lower)) / 2, (min(upper) - max(lower)) / 2)


def message_pairs(witnessed: Witnessed) -> Iterator[Pair]:
    """What the supervisor asks for comes after it has asked, and what it has got was sent before."""
    for attempt in witnessed.attempts:
        for asked in witnessed.of(Proposed, attempt):
            yield from (_pair(asked, each) for each in witnessed.of(Preparing, attempt))
        for formed in witnessed.of(Formed, attempt):
            yield from (_pair(each, formed) for each in witnessed.of(Joined, attempt))
            yield from (_pair(formed, each) for each in witnessed.of(Restored, attempt))
        for finished in witnessed.of(Finished, attempt):
            yield from (_pair(each, finished) for each in witnessed.of(StepDone, attempt))


def _pair(sent: Seen, received: Seen) -> Pair:
    return Pair((sent.boot, sent.t_ns), (received.boot, received.t_ns))
