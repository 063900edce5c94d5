"""What a check says: three values and `not_judged`, with a witness in prose. Invalid beats unknown beats valid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from chaos.audit.evidence import Evidence

_SENTENCES = 6  # of one witness; the rest is counted


class Judgement(StrEnum):
    """not_judged: the run never used what the check is about. It does not count."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"
    NOT_JUDGED = "not_judged"


@dataclass(frozen=True)
class Finding:
    """witness: empty when valid; otherwise what is wrong or missing, and where, the first of it first."""

    verdict: Judgement
    witness: str = ""


Check: TypeAlias = "Callable[[Evidence], Finding]"


@dataclass
class Case:
    """Collects what one check finds. used: whether the run had anything for it to judge."""

    used: bool = False
    wrong: list[str] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)

    def finding(self, otherwise: str = "") -> Finding:
        """otherwise: why there was nothing to judge."""
        if self.wrong:
            return Finding(Judgement.INVALID, prose([*self.wrong, *self.unsure]))
        if self.unsure:
            return Finding(Judgement.UNKNOWN, prose(self.unsure))
        return Finding(Judgement.VALID) if self.used else Finding(Judgement.NOT_JUDGED, otherwise)


def worst(verdicts: Iterable[Judgement]) -> Judgement:
    """The composition of verdicts; not_judged if there is nothing else."""
    found = set(verdicts)
    for verdict in (Judgement.INVALID, Judgement.UNKNOWN, Judgement.VALID):
        if verdict in found:
            return verdict
    return Judgement.NOT_JUDGED


def prose(sentences: Iterable[str]) -> str:
    """The sentences once each, in order, the first few of them."""
    distinct = list(dict.fromkeys(sentences))
    text = "; ".join(distinct[:_SENTENCES])
    more = len(distinct) - _SENTENCES
    return f"{text}; and {more} more of the kind" if more > 0 else text


def span(first: int, last: int) -> str:
    """`7` or `7–9`."""
    return f"{first}" if first == last else f"{first}–{last}"


def listed(items: Iterable[object]) -> str:
    """`a, b and c`."""
    words = [str(item) for item in items]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def microbatches(number: int) -> str:
    """`1 microbatch`, `2 microbatches`."""
    return f"{number} microbatch" + ("" if number == 1 else "es")


def count(number: int, singular: str) -> str:
    """`1 sample`, `2 samples`."""
    return f"{number} {singular}" if number == 1 else f"{number} {singular}s"
