"""Invariant 9, recovery survives itself: a kill during a recovery changes nothing in invariants 1 to 8.

So it has no evidence of its own. It is judged when a fault struck at a point of recovery, or when an attempt that
was itself a recovery failed before it had finished a step.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.audit.evidence import Evidence
from chaos.audit.facts import Receipt
from chaos.audit.findings import Finding, Judgement, listed, worst
from chaos.audit.logbook import attempts
from chaos.audit.witnesses import steps_by_attempt

ID, NAME = 9, "recovery survives itself"


def check(evidence: Evidence, others: Sequence[tuple[int, Finding]]) -> Finding:
    """others: (id, finding) of invariants 1 to 8."""
    struck = interruptions(evidence)
    if not struck:
        return Finding(Judgement.NOT_JUDGED, "nothing was killed during a recovery")
    verdict = worst(finding.verdict for _, finding in others)
    if verdict in (Judgement.VALID, Judgement.NOT_JUDGED):
        return Finding(verdict, "" if verdict is Judgement.VALID else "nothing else could be judged")
    named = [f"invariant {number}" for number, finding in others if finding.verdict is verdict]
    return Finding(
        verdict, f"after {listed(struck)}: {listed(named)} {'is' if len(named) == 1 else 'are'} {verdict}"
    )


def interruptions(evidence: Evidence) -> list[str]:
    """What interrupted recoveries, in words."""
    found = [
        f"the {receipt.kind} at {receipt.point} in attempt {receipt.attempt}"
        for receipt in evidence.history.receipts
        if receipt.lethal and _in_recovery(receipt)
    ]
    lives, done = attempts(evidence.store.log.entries), steps_by_attempt(evidence)
    found += [
        f"the failure of attempt {number} before its first step"
        for number in sorted(lives)
        if number > 0 and number + 1 in lives and number not in done
    ]
    return found


def _in_recovery(receipt: Receipt) -> bool:
    """Attempt 0 passes points of recovery too, when it starts; only its end begins a recovery."""
    point, hit = receipt.point or "", receipt.hit or 0
    if receipt.attempt > 0:
        return point.startswith("recover.")
    return point == "recover.detected" or (point == "recover.fence.before" and hit > 1)
