"""Invariant 1, atomic: what was published is there whole, and the log has everything that was appended to it.

Damage that a receipt announces is expected. Shards may be gone after a retire entry, manifest and ledger never.
"""

from __future__ import annotations

from collections import Counter

from chaos.audit.evidence import Evidence
from chaos.audit.findings import Case, Finding
from chaos.audit.logbook import lost_entries, publications, retired
from chaos.audit.verified import Damage, announced, damages

ID, NAME = 1, "atomic"


def check(evidence: Evidence) -> Finding:
    """Invalid: unannounced damage of the log or of anything published."""
    case = Case()
    log = evidence.store.log
    case.used = bool(log.entries or log.problems)
    for problem in log.problems:
        if announced(evidence, Damage(problem.path.removeprefix("store/"), problem.what, "log")) is None:
            (case.unsure if problem.unreadable else case.wrong).append(str(problem))
    if evidence.begun is not None and log.run not in (None, evidence.begun.run):
        case.wrong.append(f"the commit log is of run {log.run}, the history of {evidence.begun.run}")
    case.wrong += [f"{lost.path} {lost.what}" for lost in lost_entries(evidence)]
    gone = retired(log.entries)
    published = publications(log.entries)
    for name, times in Counter(publish.name for publish in published).items():
        if times > 1:
            case.wrong.append(f"{name} was published {times} times")
    for publish in published:
        for damage in damages(evidence, publish):
            allowed = damage.missing and damage.kind == "shard" and publish.name in gone
            if not allowed and announced(evidence, damage) is None:
                text = f"published {publish.name} (entry {publish.seq}) is not whole: store/{damage}"
                (case.unsure if damage.unreadable else case.wrong).append(text)
    return case.finding("there is no commit log: nothing was published")


def strays(evidence: Evidence) -> tuple[str, ...]:
    """Paths in the store that nothing published names: left by kills, harmless, never chosen."""
    named = {f"manifests/{publish.name}.json" for publish in publications(evidence.store.log.entries)}
    for publish in publications(evidence.store.log.entries):
        seen = evidence.store.manifests.get(publish.name)
        if seen is not None and seen.manifest is not None:
            named |= {file.path for file in seen.manifest.files}
    named |= {f"log/{entry.seq:08d}.json" for entry in evidence.store.log.entries}
    named |= {problem.path.removeprefix("store/") for problem in evidence.store.log.problems}
    return tuple(sorted(evidence.store.present - named))
