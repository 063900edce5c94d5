"""Faults as values: what is done, at which passage or time, behind which gate.

Pure. The JSON form is that of the `run` event in the history, which the auditor reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from chaos.damage import Damage, DamageHow
from chaos.points import Role
from trainers.points import PointRaised

DEFAULT_GRACE_S = 30.0  # Kubernetes' terminationGracePeriodSeconds


class FaultKind(StrEnum):
    """What a fault does to its process; damage, stray: to the store; outage: between the two."""

    SIGKILL = "sigkill"
    EXCEPTION = "exception"
    HANG = "hang"
    SIGTERM = "sigterm"
    SLOW = "slow"
    DAMAGE = "damage"
    STRAY = "stray"
    OUTAGE = "outage"


@dataclass(frozen=True, slots=True)
class Slow:
    """The passage that is named and those after it, `passages` in all, take `delay_s` longer each."""

    delay_s: float
    passages: int


@dataclass(frozen=True, slots=True)
class Outage:
    """For the struck process every use of the store fails: the next `operations` of them, or all for `for_s` seconds.

    Exactly one is set.
    """

    operations: int | None = None
    for_s: float | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """One passage of a kill point. Hits count from 1 within the attempt, in one process."""

    attempt: int
    role: Role
    rank: int | None
    point: str
    hit: int

    def __str__(self) -> str:
        who = self.role.value if self.rank is None else f"{self.role.value} {self.rank}"
        return f"attempt {self.attempt}, {who}, {self.point} hit {self.hit}"


@dataclass(frozen=True, slots=True)
class Gate:
    """A passage in the background that is held until the fault has struck; its attempt is the fault's."""

    role: Role
    rank: int | None
    point: str
    hit: int

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as in the `run` event."""
        return {"role": self.role.value, "rank": self.rank, "point": self.point, "hit": self.hit}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Gate:
        """The inverse of `to_json`."""
        return cls(Role(value["role"]), value["rank"], value["point"], value["hit"])


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault. Either `point` and `hit` are set, or `after_s` (seconds after training began)."""

    id: str
    kind: FaultKind
    attempt: int
    role: Role
    rank: int | None
    point: str | None = None
    hit: int | None = None
    after_s: float | None = None
    gate: Gate | None = None
    damage: Damage | None = None
    grace_s: float | None = None  # of a sigterm: from the signal to the SIGKILL
    slow: Slow | None = None
    outage: Outage | None = None

    @property
    def passage(self) -> Passage | None:
        """Where it strikes; None for a fault at a time."""
        if self.point is None or self.hit is None:
            return None
        return Passage(self.attempt, self.role, self.rank, self.point, self.hit)

    def to_json(self) -> dict[str, Any]:
        """The JSON form, as in the `run` event."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "attempt": self.attempt,
            "role": self.role.value,
            "rank": self.rank,
            "point": self.point,
            "hit": self.hit,
            "after_s": self.after_s,
            "gate": None if self.gate is None else self.gate.to_json(),
            **self.settings(),
        }

    def settings(self) -> dict[str, Any]:
        """What only this kind of fault has, as JSON; receipts repeat it."""
        found: dict[str, Any] = {} if self.damage is None else {"damage": self.damage.to_json()}
        if self.grace_s is not None:
            found["grace_s"] = self.grace_s
        return found | {
            name: asdict(value) for name, value in (("slow", self.slow), ("outage", self.outage)) if value is not None
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Fault:
        """The inverse of `to_json`."""
        gate, damage = value["gate"], value.get("damage")
        return cls(
            value["id"],
            FaultKind(value["kind"]),
            value["attempt"],
            Role(value["role"]),
            value["rank"],
            value["point"],
            value["hit"],
            value["after_s"],
            None if gate is None else Gate.from_json(gate),
            None if damage is None else Damage(damage["file"], damage["rank"], DamageHow(damage["how"])),
            value.get("grace_s"),
            Slow(**value["slow"]) if "slow" in value else None,
            Outage(**value["outage"]) if "outage" in value else None,
        )

    def __str__(self) -> str:
        if self.damage is not None:
            return f"{self.damage.how.value} the newest {self.damage.file} at {self.passage}"
        if self.passage is not None:
            return f"{self.kind.value} at {self.passage}"
        who = self.role.value if self.rank is None else f"{self.role.value} {self.rank}"
        return f"{self.kind.value} of {who}, attempt {self.attempt}, {self.after_s:.3f} s into training"


class InjectedFault(PointRaised):
    """Raised by a kill point for a fault of kind `exception`. Ray carries it between processes."""

    def __init__(self, fault: str, passage: str) -> None:
        super().__init__(fault, passage)
        self.fault = fault
        self.passage = passage

    def __str__(self) -> str:
        return f"injected fault {self.fault}: exception at {self.passage}"
