"""What a run of the experiment passes: the outline from which trials are drawn up. Pure but for reading run folders.

A clean run says what every process passes in attempt 0, a run that was killed once what it passes on the way back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from chaos.passages import PassageCount, recorded_passages
from chaos.points import Role, is_user_point
from chaos.schema import RunSettings
from storage.log import CommitLog, Publish, Retire
from storage.objects import LocalObjects

Who = tuple[Role, int | None]


@dataclass(frozen=True)
class Outline:
    """Passages of a clean run and of one recovery, and the order in which the clean run's committer wrote the log.

    clean, recovery: (role, rank) → point → hits; of a recovery in attempt 1. detection: points that the supervisor of
    attempt 0 passes only if something died. committed: `publish` and `retire`, entry by entry.
    """

    run: RunSettings
    clean: Mapping[Who, Mapping[str, int]]
    recovery: Mapping[Who, Mapping[str, int]]
    detection: Mapping[str, int]
    committed: tuple[str, ...]

    @property
    def due(self) -> tuple[int, ...]:
        """The steps after which a save falls due, in order."""
        run = self.run
        return tuple(s for s in range(1, run.steps + 1) if s % run.save_every == 0 or s == run.steps)


def outline(run: RunSettings, clean: Path, killed: Path, run_id: str, blocks: Mapping[int, int]) -> Outline:
    """From the folders of the two runs. blocks: of each rank's input, as many as tasks of Ray Data read.

    Raises StorageError if a history or the log is broken.
    """
    first, second = recorded_passages(clean), recorded_passages(killed)
    passed = _by_process(first, 0)
    passed |= {(Role.DATA, rank): {"data.read": count} for rank, count in blocks.items() if count}
    supervisor = (Role.SUPERVISOR, None)
    again = _by_process(second, 0).get(supervisor, {})
    detection = {p: hits for p, hits in again.items() if hits > passed.get(supervisor, {}).get(p, 0)}
    entries = (e for e in CommitLog(LocalObjects(clean / "store"), run_id).read() if isinstance(e, Publish | Retire))
    committed = tuple("publish" if isinstance(entry, Publish) else "retire" for entry in entries)
    return Outline(run, passed, _by_process(second, 1), detection, committed)


def _by_process(counts: Iterable[PassageCount], attempt: int) -> dict[Who, dict[str, int]]:
    """A standby's passages are those of attempt 0: it serves none.

    Of the user's points it passes some while it warms up, which one that has served a run before does not do again.
    """
    found: dict[Who, dict[str, int]] = {}
    for count in counts:
        role = Role(count.role)
        standby = role is Role.STANDBY
        if standby and is_user_point(count.point):
            continue
        if count.attempt == attempt or (standby and attempt == 0):
            hits = 1 if standby else count.hits
            found.setdefault((role, count.rank), {})[count.point] = hits
    return found
