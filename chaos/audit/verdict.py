"""The verdict: all checks composed, and the form that other programs read. Invalid beats unknown beats valid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar

from chaos.audit import (
    atomic,
    fenced,
    ledger,
    moment,
    newest,
    recovery_itself,
    redo,
    retention,
    trajectory,
    vacuous,
)
from chaos.audit.deaths import Observed, observe, receipts_of
from chaos.audit.evidence import Evidence
from chaos.audit.facts import Fault, Receipt
from chaos.audit.findings import Check, Finding, Judgement, worst
from chaos.audit.recoveries import Recovery, recoveries
from chaos.audit.unseen import unseen

T = TypeVar("T")
CHECKS: tuple[tuple[int, str, Check], ...] = tuple(
    (module.ID, module.NAME, module.check)
    for module in (atomic, newest, ledger, moment, trajectory, fenced, retention, redo)
)


@dataclass(frozen=True)
class Invariant:
    id: int
    name: str
    finding: Finding


@dataclass(frozen=True)
class FaultSeen:
    """A planned fault, its receipt if it fired, and what was seen of it."""

    fault: Fault
    receipt: Receipt | None
    observed: Observed | None


@dataclass(frozen=True)
class Verdict:
    """What the evidence says. reproduce: the one command that runs the same experiment again."""

    verdict: Judgement
    invariants: tuple[Invariant, ...]
    unseen: tuple[str, ...]
    faults: tuple[FaultSeen, ...]
    recoveries: tuple[Recovery, ...]
    strays: tuple[str, ...]
    run: str | None
    seed: int | None
    config_digest: str | None
    code_version: str | None
    reproduce: str | None

    def invariant(self, number: int) -> Finding:
        """The finding on one invariant, 1 to 10."""
        return next(invariant.finding for invariant in self.invariants if invariant.id == number)

    def to_json(self) -> dict[str, Any]:
        """The contract of verdict.json."""
        return {
            "verdict": self.verdict.value,
            "invariants": [
                {"id": i.id, "name": i.name, "verdict": i.finding.verdict.value, "witness": i.finding.witness}
                for i in self.invariants
            ],
            "unseen": list(self.unseen),
            "faults": [_fault(seen) for seen in self.faults],
            "recoveries": [asdict(recovery) for recovery in self.recoveries],
            "strays": list(self.strays),
            "run": self.run, "seed": self.seed, "config_digest": self.config_digest,
            "code_version": self.code_version, "reproduce": self.reproduce,
        }  # fmt: skip


def judge(evidence: Evidence) -> Verdict:
    """Runs every check. One that raises makes its invariant unknown, and what is told beside it empty."""
    invariants = [_invariant(number, name, partial(check, evidence)) for number, name, check in CHECKS]
    others = [(invariant.id, invariant.finding) for invariant in invariants]
    itself = partial(recovery_itself.check, evidence, others)
    invariants.append(_invariant(recovery_itself.ID, recovery_itself.NAME, itself))
    invariants.append(_invariant(vacuous.ID, vacuous.NAME, partial(vacuous.check, evidence)))
    overall = worst(invariant.finding.verdict for invariant in invariants)
    begun = evidence.begun
    return Verdict(
        verdict=Judgement.UNKNOWN if overall is Judgement.NOT_JUDGED else overall,
        invariants=tuple(invariants),
        unseen=_or_nothing(unseen, evidence),
        faults=_or_nothing(faults_seen, evidence),
        recoveries=_or_nothing(recoveries, evidence),
        strays=_or_nothing(atomic.strays, evidence),
        run=None if begun is None else begun.run,
        seed=None if begun is None else begun.seed,
        config_digest=None if begun is None else begun.config_digest,
        code_version=None if begun is None else begun.code_version,
        reproduce=None if begun is None else begun.reproduce,
    )


def _invariant(number: int, name: str, check: Callable[[], Finding]) -> Invariant:
    try:
        return Invariant(number, name, check())
    except Exception as error:  # the evidence is beyond what the check foresaw: that proves nothing
        why = f"the check failed: {type(error).__name__}: {error}"
        return Invariant(number, name, Finding(Judgement.UNKNOWN, why))


def _or_nothing(tell: Callable[[Evidence], tuple[T, ...]], evidence: Evidence) -> tuple[T, ...]:
    """Such evidence has made some invariant unknown or invalid already."""
    try:
        return tell(evidence)
    except Exception:
        return ()


def faults_seen(evidence: Evidence) -> tuple[FaultSeen, ...]:
    """Every planned fault with its receipt and what was seen of it."""
    seen = []
    for fault in evidence.faults:
        receipt = next(iter(receipts_of(evidence, fault)), None)
        seen.append(FaultSeen(fault, receipt, None if receipt is None else observe(evidence, receipt)))
    return tuple(seen)


def _fault(seen: FaultSeen) -> dict[str, Any]:
    return {
        **asdict(seen.fault),
        "receipt": None if seen.receipt is None else asdict(seen.receipt),
        "observed": None if seen.observed is None else asdict(seen.observed),
    }
