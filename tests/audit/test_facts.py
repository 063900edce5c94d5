"""How a planned fault is said, and which faults end a process."""

from __future__ import annotations

import pytest
from evidence_by_hand import receipt

from chaos.audit.facts import Fault, Gate, GateHeld


def planned(rank: int | None, point: str | None, hit: int | None, after_s: float | None) -> Fault:
    return Fault("f3", "sigkill", 2, "rank", rank, point, hit, after_s, None)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (planned(0, "step.end", 5, None), "f3 (sigkill of rank 0 at step.end hit 5 of attempt 2)"),
        (planned(None, "step.end", 1, None), "f3 (sigkill of rank at step.end hit 1 of attempt 2)"),
        (planned(1, None, None, 2.5), "f3 (sigkill of rank 1 at 2.5 s into training of attempt 2)"),
    ],
)
def test_a_fault_in_words(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_what_ends_a_process_and_what_does_not() -> None:
    kinds = {kind: receipt(kind=kind).lethal for kind in ("sigkill", "hang", "exception", "sigterm", "notice", "damage",
                                                          "slow", "stray", "outage")}  # fmt: skip
    assert [kind for kind, lethal in kinds.items() if not lethal] == ["damage", "slow", "stray", "outage"]
    assert set(kinds.values()) == {True, False}


def test_the_gate_that_was_held_is_the_planned_one() -> None:
    held = GateHeld("committer", None, "commit.collected", 2, True)
    assert held.gate == Gate("committer", None, "commit.collected", 2)
