"""Whether the auditor saw a planted bug, named it rightly, and left its latent control alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chaos.gallery.bugs import Bug

Verdict = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """One bug. witness: of the invariants that had to be named. why: all that is not as it must be.

    missing: nobody has planted it.
    """

    key: str
    number: int
    title: str
    seen_in: str = ""
    planted: bool = False
    caught: bool = False
    named: bool = False
    control: str = ""
    control_told: bool = False
    witness: str = ""
    unseen: str = ""
    why: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Caught, rightly named, and the control neither called invalid nor passed over in silence."""
        return self.planted and self.caught and self.named and self.control == "valid" and self.control_told


def row(bug: Bug, planted: Verdict, control: Verdict) -> Row:
    """What the two verdicts say of the bug."""
    caught = planted["verdict"] == bug.verdict
    why = [*_misnamed(bug, planted), *_other(bug, planted)]
    named = caught and not why
    if not caught:
        why.insert(0, f"the verdict is {planted['verdict']}, it must be {bug.verdict}")
    told = next((text for text in control["unseen"] if re.search(bug.unseen, text)), "")
    if control["verdict"] != "valid":
        why.append(f"the latent control is called {control['verdict']}: {'; '.join(_told(control))}")
    elif not told:
        why.append(f"the latent control's verdict does not list what it could not have seen ({bug.unseen})")
    witness = "; ".join(each["witness"] for each in planted["invariants"] if each["id"] in bug.named)
    return Row(
        bug.key, bug.number, bug.title, bug.seen_in, True, caught, named, control["verdict"], bool(told), witness,
        told, tuple(why),
    )  # fmt: skip


def _misnamed(bug: Bug, verdict: Verdict) -> Iterator[str]:
    """What had to be named and is not."""
    for number, pattern in bug.named.items():
        found = next(each for each in verdict["invariants"] if each["id"] == number)
        if found["verdict"] != bug.verdict:
            yield f"invariant {number} is {found['verdict']}, it must be {bug.verdict} ({found['witness']})"
        elif not re.search(pattern, found["witness"]):
            yield f"the witness of invariant {number} does not say {pattern!r}: {found['witness']}"


def _other(bug: Bug, verdict: Verdict) -> Iterator[str]:
    """What is called invalid and is not broken by the defect."""
    for each in verdict["invariants"]:
        if each["verdict"] == "invalid" and each["id"] not in {*bug.named, *bug.may}:
            yield f"invariant {each['id']} is called invalid: {each['witness']}"


def _told(verdict: Verdict) -> Iterator[str]:
    for each in verdict["invariants"]:
        if each["verdict"] in ("invalid", "unknown"):
            yield f"{each['id']} {each['name']}: {each['witness']}"
