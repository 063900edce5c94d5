"""Which checkpoint a restart starts from (invariant 2). Pure: log entries in, checkpoints out.

Candidates of attempt k+1 are, newest first: what attempt k published; then the checkpoint that k chose with
what lay behind it: what its attempt had published up to it, then what that attempt had chosen, and so on. If
k never chose, they are the candidates of k. So a branch that a choice left behind never returns, even if its
checkpoints verify later. "Newest" is the log's order; step numbers, names and times of files play no part.

An entry by an attempt that was already fenced where it stands has no effect here (invariant 6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storage.entries import Candidate, Choose, Entry, Fence, Parent, Publish, Retire
from storage.errors import LogBroken, NoCandidate


@dataclass(frozen=True)
class Decision:
    """How far a choice has come. One of `chosen` and `examine` is set, or neither: nothing to restore from.

    chosen: the newest that verified. examine: the next one that needs a verdict. candidates: all, as the
    log's choose entry lists them; final once `examine` is None.
    """

    chosen: Publish | None
    examine: Publish | None
    candidates: tuple[Candidate, ...]

    @property
    def parent(self) -> Parent | None:
        """What the choose entry names as the parent."""
        return None if self.chosen is None else self.chosen.as_parent()


@dataclass(frozen=True)
class _Life:
    """What the log says of one attempt. published: oldest first."""

    choose: Choose | None
    published: tuple[Publish, ...]


def candidates(entries: Sequence[Entry], attempt: int) -> tuple[Publish, ...]:
    """What `attempt` may start from, newest first; none for attempt 0. Retired checkpoints are left out.

    The answer is as of the attempt's fence: what is appended later, retirements too, does not change it. An
    attempt 0 that never recorded its choice counts as having started from nothing.
    Raises LogBroken if an attempt chose what no earlier attempt published.
    """
    known = _before_fence(entries, attempt)
    lives = _lives(known)
    gone = retired(known)
    for before in range(attempt - 1, -1, -1):
        life = lives.get(before, _Life(None, ()))
        if life.choose or before == 0:
            found = (*reversed(life.published), *_behind(lives, before))
            return tuple(publish for publish in found if publish.name not in gone)
    return ()


def lineage(entries: Sequence[Entry], publish: Publish) -> tuple[Publish, ...]:
    """The checkpoints that this one's state descends from, itself first, retired ones included.

    Raises LogBroken if the publication has no effect, or if an attempt in the lineage never said what it
    chose.
    """
    return _descent(_lives(entries), publish.as_parent(), f"entry {publish.seq}")


def current_lineage(entries: Sequence[Entry]) -> tuple[Publish, ...] | None:
    """Lineage of the latest attempt's state, newest first; None if that attempt has not chosen yet."""
    lives = _lives(entries)
    latest = max(lives, default=-1)
    if latest < 0 or (latest > 0 and lives[latest].choose is None):
        return None
    return (*reversed(lives[latest].published), *_behind(lives, latest))


def ever_published(entries: Iterable[Entry]) -> bool:
    """Whether anything was ever published, so that a start from nothing would discard work."""
    return any(isinstance(entry, Publish) for entry in entries)


def retired(entries: Iterable[Entry]) -> frozenset[str]:
    """Names of the checkpoints whose state may have been removed."""
    return frozenset(
        name for entry in _in_force(entries) if isinstance(entry, Retire) for name in entry.names
    )


def published(entries: Iterable[Entry]) -> tuple[Publish, ...]:
    """Every publication that has effect, on whatever branch, oldest first."""
    return tuple(entry for entry in _in_force(entries) if isinstance(entry, Publish))


def decide(found: Sequence[Publish], verdicts: Mapping[str, str | None]) -> Decision:
    """The choice so far. found: the candidates, newest first.

    verdicts: name → None if it verified, else what is definitely wrong with it. Call again with each further
    verdict until `examine` is None. A verdict on one whose predecessor has none yet is not looked at.
    Raises NoCandidate if there are candidates and all are rejected.
    """
    listed: list[Candidate] = []
    chosen = examine = None
    for publish in found:
        place = (publish.name, publish.digest, publish.step)
        if chosen or examine:
            listed.append(Candidate(*place, "not_examined"))
        elif publish.name not in verdicts:
            examine = publish
            listed.append(Candidate(*place, "not_examined"))
        elif (reason := verdicts[publish.name]) is None:
            chosen = publish
            listed.append(Candidate(*place, "chosen"))
        else:
            listed.append(Candidate(*place, "rejected", reason))
    if listed and chosen is None and examine is None:
        raise NoCandidate(tuple(f"{candidate.name}: {candidate.reason}" for candidate in listed))
    return Decision(chosen, examine, tuple(listed))


def _before_fence(entries: Sequence[Entry], attempt: int) -> Sequence[Entry]:
    """The log as the attempt's own fence found it; all of it if the attempt has not begun."""
    for index, entry in enumerate(entries):
        if isinstance(entry, Fence) and entry.attempt == attempt:
            return entries[:index]
    return entries


def _in_force(entries: Iterable[Entry]) -> list[Entry]:
    """The entries by the attempt that was the latest where they stand."""
    latest = -1
    kept = []
    for entry in entries:
        if isinstance(entry, Fence):
            latest = entry.attempt
        if entry.attempt == latest:
            kept.append(entry)
    return kept


def _lives(entries: Iterable[Entry]) -> dict[int, _Life]:
    lives: dict[int, _Life] = {}
    for entry in _in_force(entries):
        life = lives.get(entry.attempt, _Life(None, ()))
        if isinstance(entry, Choose):
            life = _Life(entry, life.published)
        elif isinstance(entry, Publish):
            life = _Life(life.choose, (*life.published, entry))
        lives[entry.attempt] = life
    return lives


def _behind(lives: Mapping[int, _Life], attempt: int) -> tuple[Publish, ...]:
    """Lineage of what the attempt started from."""
    choose = lives[attempt].choose if attempt in lives else None
    if choose is None or choose.parent is None:
        return ()
    return _descent(lives, choose.parent, f"entry {choose.seq}", below=attempt)


def _descent(
    lives: Mapping[int, _Life], start: Parent, named_by: str, below: int | None = None
) -> tuple[Publish, ...]:
    """From the checkpoint `start` back to the first. Attempts must fall, so it ends even for a wrong log."""
    line: list[Publish] = []
    parent: Parent | None = start
    while parent is not None:
        attempt, upto = _place(lives, parent, named_by, below)
        line += reversed(upto)
        choose = lives[attempt].choose
        if choose is None and attempt > 0:
            raise LogBroken(named_by, f"descends from attempt {attempt}, which never recorded what it chose")
        parent, below = (choose.parent if choose else None), attempt
        named_by = f"entry {choose.seq}" if choose else named_by
    return tuple(line)


def _place(
    lives: Mapping[int, _Life], parent: Parent, named_by: str, below: int | None
) -> tuple[int, tuple[Publish, ...]]:
    """The attempt that published `parent`, and what it published up to and including it, oldest first."""
    for attempt, life in lives.items():
        for index, publish in enumerate(life.published):
            if publish.as_parent() == parent and (below is None or attempt < below):
                return attempt, life.published[: index + 1]
    raise LogBroken(named_by, f"names {parent.name}, which no earlier attempt has published with this digest")
