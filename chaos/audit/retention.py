"""Invariant 7, a way back: retention never takes the newest verified checkpoint nor the one before it.

It takes state shards only, after a retire entry: manifests and ledger stay. Where a receipt announced that one of
the newest two was damaged before, one more must stay for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from chaos.audit.evidence import Evidence, Publish, Retire
from chaos.audit.findings import Case, Finding
from chaos.audit.logbook import Growth, publications, retired, unusable
from chaos.audit.verified import announced, damages

ID, NAME = 7, "a way back"
_KEPT = 2


def check(evidence: Evidence) -> Finding:
    """Invalid: a retirement of what must stay, a removal without a retirement, manifest or ledger removed."""
    case = Case()
    if broken := unusable(evidence):
        case.unsure.append(broken)
        return case.finding()
    entries = evidence.store.log.entries
    before = Growth()
    for entry in entries:
        if isinstance(entry, Retire):
            case.used = True
            _judge_entry(evidence, before, entry, case)
        before.add(entry)
    gone = retired(entries)
    for publish in publications(entries):
        for damage in damages(evidence, publish):
            if not damage.missing or announced(evidence, damage) is not None:
                continue
            if publish.name in gone and damage.kind != "shard":
                case.wrong.append(f"retiring {publish.name} also took store/{damage.path}, which must stay")
            elif publish.name not in gone:
                case.wrong.append(
                    f"store/{damage.path} of published {publish.name} is gone, and no entry retired it"
                )
    return case.finding("nothing was retired")


def _judge_entry(evidence: Evidence, before: Growth, entry: Retire, case: Case) -> None:
    protected = _protected(evidence, before.lineage(), entry)
    for name in entry.names:
        if name in protected:
            which = (
                "the newest checkpoint"
                if name == protected[0]
                else "a checkpoint that is needed as the way back"
            )
            case.wrong.append(f"entry {entry.seq} retired {name}, at that time {which} of the lineage")
        elif name not in before.names:
            case.wrong.append(f"entry {entry.seq} retired {name}, which was not published")


def _protected(evidence: Evidence, line: Iterable[Publish], entry: Retire) -> list[str]:
    """The newest of the lineage, down to the second that was whole."""
    kept: list[str] = []
    whole = 0
    for publish in line:
        if whole == _KEPT:
            break
        kept.append(publish.name)
        receipts = (announced(evidence, damage) for damage in damages(evidence, publish))
        whole += not any(receipt is not None and receipt.attempt < entry.attempt for receipt in receipts)
    return kept
