"""What a checkpoint brought back beside what was there when it was taken, as a part of invariant 4.

After every step each rank records a digest of each part of its state, and after a restore it does so again. Where no
step lies between the two they are the same, whoever else the run is compared with: a state that went on changing while
it was written is of two moments, though the checkpoint is consistent in itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.audit.evidence import Evidence
from chaos.audit.findings import listed
from chaos.audit.logbook import started_from
from chaos.audit.steps import Finder
from chaos.audit.witnesses import restored_by_attempt, steps


def changed_since(evidence: Evidence) -> Iterator[str]:
    """Parts of a checkpoint, as they were restored, that its ranks had not recorded so. Only at a step's boundary."""
    done = steps(evidence)
    for attempt, told in sorted(restored_by_attempt(evidence).items()):
        origin = started_from(evidence.store.log.entries, attempt)
        if origin is None or origin.moment[1]:
            continue
        for event in told:
            rank, now = event.what.rank, event.what.state
            own = done.by_rank.get((origin.attempt, rank))
            place = None if own is None else Finder(done, own).index(origin.step)
            if place is None or (event.what.name, event.what.step) != (origin.name, origin.step):
                continue
            then = done[place].what.state
            differing = [part for part in sorted(now.keys() | then.keys()) if now.get(part) != then.get(part)]
            if differing:
                yield (
                    f"{origin.name}: its {listed(differing)}, restored by rank {rank} of attempt {attempt}, "
                    f"{'is' if len(differing) == 1 else 'are'} not what that rank recorded after step {origin.step} in "
                    f"attempt {origin.attempt}"
                )
