"""What the commit log means, derived anew (invariants 2, 6 and 7): attempts, lineage, candidates.

Each publication points back at the one that its state descends from: the one before it in the same attempt, or
what the attempt's choose entry names. Lineages and candidates are walks along these pointers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.audit.events import Chosen, Fenced, Published, Retired
from chaos.audit.evidence import Choose, Entry, Evidence, Fence, Publish, Ref, Retire
from chaos.audit.witnesses import events

_SAID: Mapping[str, type[Any]] = {"fence": Fenced, "choose": Chosen, "publish": Published, "retire": Retired}


@dataclass(frozen=True)
class Attempt:
    """What the log says of one attempt while it was the latest. published: oldest first."""

    number: int
    fence: Fence
    chooses: tuple[Choose, ...]
    published: tuple[Publish, ...]

    @property
    def choose(self) -> Choose | None:
        return self.chooses[0] if self.chooses else None


def in_force(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """The entries by the attempt that was the latest where they stand; others have no effect."""
    kept: list[Entry] = []
    latest = -1
    for entry in entries:
        if isinstance(entry, Fence):
            latest = max(latest, entry.attempt)
        if entry.attempt == latest:
            kept.append(entry)
    return tuple(kept)


def attempts(entries: Sequence[Entry]) -> dict[int, Attempt]:
    """By number. Only entries in force count."""
    fences: dict[int, Fence] = {}
    chooses: dict[int, list[Choose]] = {}
    published: dict[int, list[Publish]] = {}
    for entry in in_force(entries):
        match entry:
            case Fence():
                fences[entry.attempt] = entry
            case Choose():
                chooses.setdefault(entry.attempt, []).append(entry)
            case Publish():
                published.setdefault(entry.attempt, []).append(entry)
    return {
        number: Attempt(number, fence, tuple(chooses.get(number, ())), tuple(published.get(number, ())))
        for number, fence in fences.items()
    }


def handed_on(entries: Sequence[Entry], attempt: int) -> bool:
    """Whether another supervisor than the attempt's own began the next one."""
    lives = attempts(entries)
    own, following = lives.get(attempt), lives.get(attempt + 1)
    return own is not None and following is not None and own.fence.owner != following.fence.owner


def publications(entries: Sequence[Entry]) -> tuple[Publish, ...]:
    """Every publication in force, oldest first."""
    return tuple(entry for entry in in_force(entries) if isinstance(entry, Publish))


def retired(entries: Sequence[Entry]) -> dict[str, Retire]:
    """name → the entry that retired it first."""
    gone: dict[str, Retire] = {}
    for entry in in_force(entries):
        if isinstance(entry, Retire):
            for name in entry.names:
                gone.setdefault(name, entry)
    return gone


def started_from(entries: Sequence[Entry], attempt: int) -> Publish | None:
    """The publication that the attempt's choose entry names; None for a start from nothing or for no such."""
    return _start(attempts(entries), publications(entries), attempt)


def _start(lives: Mapping[int, Attempt], published: Sequence[Publish], attempt: int) -> Publish | None:
    choose = lives[attempt].choose if attempt in lives else None
    if choose is None or choose.parent is None:
        return None
    parent = choose.parent  # names first: there may be thousands
    earlier = [p for p in published if p.attempt < attempt and p.name == parent.name and p.ref == parent]
    return earlier[-1] if earlier else None


def ancestry(entries: Sequence[Entry], newest: Publish | None) -> tuple[Publish, ...]:
    """The publication and what its state descends from, newest first."""
    lives, published = attempts(entries), publications(entries)
    line: list[Publish] = []
    publish = newest
    while publish is not None:
        line += [p for p in reversed(lives[publish.attempt].published) if p.seq <= publish.seq]
        publish = _start(lives, published, publish.attempt)
    return tuple(line)


class Growth:
    """The log entry by entry: its lineage at each, as `lineage` has it of the entries up to there, in time that does
    not grow with their number.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()  # that were published
        self._latest = -1
        self._fenced: list[int] = []
        self._chooses: dict[int, Choose] = {}
        self._published: dict[int, list[Publish]] = {}
        self._places: dict[int, int] = {}  # of a publication in its attempt, by seq
        self._by_ref: dict[Ref, list[Publish]] = {}

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Fence):
            self._latest = max(self._latest, entry.attempt)
        if entry.attempt != self._latest:
            return
        if isinstance(entry, Fence) and entry.attempt not in self._fenced:
            insort(self._fenced, entry.attempt)
        elif isinstance(entry, Choose):
            self._chooses.setdefault(entry.attempt, entry)
        elif isinstance(entry, Publish):
            self.names.add(entry.name)
            own = self._published.setdefault(entry.attempt, [])
            self._places[entry.seq] = len(own)
            own.append(entry)
            self._by_ref.setdefault(entry.ref, []).append(entry)

    def lineage(self) -> Iterator[Publish]:
        """Newest first."""
        for number in reversed(self._fenced):
            newest = self._published[number][-1] if number in self._published else self._start(number)
            if newest is not None:
                yield newest
                yield from self.before(newest)
                return

    def before(self, publish: Publish) -> Iterator[Publish]:
        """What the state of a publication descends from, newest first."""
        each: Publish | None = publish
        while each is not None:
            place = self._places[each.seq]
            each = self._published[each.attempt][place - 1] if place else self._start(each.attempt)
            if each is not None:
                yield each

    def _start(self, attempt: int) -> Publish | None:
        choose = self._chooses.get(attempt)
        found = self._by_ref.get(choose.parent, ()) if choose is not None and choose.parent is not None else ()
        return next((publish for publish in reversed(found) if publish.attempt < attempt), None)


def candidates(entries: Sequence[Entry], attempt: int) -> tuple[Publish, ...]:
    """What `attempt` might start from, newest first, as of its fence; what was retired before it is left out."""
    known = entries[: attempts(entries)[attempt].fence.seq]
    lives = attempts(known)
    for number in range(attempt - 1, -1, -1):
        life = lives.get(number)
        if life is None or (life.choose is None and number > 0):
            continue
        newest = life.published[-1] if life.published else started_from(known, number)
        gone = retired(known)
        return tuple(publish for publish in ancestry(known, newest) if publish.name not in gone)
    return ()


def lineage(entries: Sequence[Entry]) -> tuple[Publish, ...]:
    """Of the state that the run came to: what its last attempt published, or chose. Newest first."""
    lives = attempts(entries)
    for number in sorted(lives, reverse=True):
        life = lives[number]
        if life.published:
            return ancestry(entries, life.published[-1])
        if life.choose is not None and (start := started_from(entries, number)) is not None:
            return ancestry(entries, start)
    return ()


@dataclass(frozen=True)
class Lost:
    """The history says that this entry was appended; the log does not have it."""

    path: str
    what: str


def lost_entries(evidence: Evidence) -> tuple[Lost, ...]:
    """Entries that a process recorded as appended and that the log lacks or has otherwise."""
    held = {entry.seq: entry for entry in evidence.store.log.entries}
    known = {problem.path for problem in evidence.store.log.problems}
    lost: list[Lost] = []
    for seq, kind, file in _appended(evidence):
        path = f"store/log/{seq:08d}.json"
        if path in known:
            continue
        if seq not in held:
            lost.append(Lost(path, f"is missing: {file} recorded that this {kind} was appended"))
        elif (found := type(held[seq]).__name__.lower()) != kind:
            lost.append(Lost(path, f"is a {found}, where {file} recorded a {kind}"))
    return tuple(sorted(lost, key=lambda each: each.path))


def _appended(evidence: Evidence) -> Iterator[tuple[int, str, str]]:
    """(seq, kind, name of the file) of every entry that an event says was appended."""
    for name, kind in _SAID.items():
        for event in events(evidence, kind):
            if event.what.seq is not None:
                yield event.what.seq, name, event.file


def unusable(evidence: Evidence) -> str:
    """Why nothing that rests on the whole log can be judged; empty if it is whole."""
    problems = evidence.store.log.problems
    lost = lost_entries(evidence)
    if problems:
        return f"the commit log is not whole ({problems[0]}), see invariant 1"
    return f"the commit log is not whole ({lost[0].path} {lost[0].what}), see invariant 1" if lost else ""
