"""The lineage of checkpoints as a graph: what descends from what, what was chosen, what was rejected and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.audit import logbook
from chaos.audit.evidence import Entry, Evidence, Publish
from chaos.audit.verified import damages
from chaos.audit.witnesses import steps_by_attempt
from chaos.page.values import Edge, Lineage, Node, Standing, Start

MOST = 400  # checkpoints that are drawn


def lineage(evidence: Evidence) -> Lineage:
    """By the commit log. Of too many checkpoints those are left out in which nothing parts or meets."""
    entries = evidence.store.log.entries
    published = logbook.publications(entries)
    line = {publish.seq for publish in logbook.lineage(entries)}
    chosen, rejected = _choices(entries)
    gone = logbook.retired(entries)
    kept = _kept(published, entries, {*chosen, *rejected})
    nodes = tuple(
        Node(
            publish.name, publish.step, publish.moment[1], publish.attempt,
            Standing.LINEAGE if publish.seq in line else Standing.ABANDONED, publish.name in gone,
            tuple(chosen.get(publish.name, ())), tuple(rejected.get(publish.name, ())),
            _damage(evidence, publish, retired=publish.name in gone),
        )
        for publish in kept
    )  # fmt: skip
    return Lineage(nodes, tuple(_edges(kept, entries)), tuple(_starts(evidence)), len(published) - len(kept))


def _choices(entries: Sequence[Entry]) -> tuple[dict[str, list[int]], dict[str, list[tuple[int, str]]]]:
    """By checkpoint: the attempts that chose it, and those that rejected it with their reasons."""
    chosen: dict[str, list[int]] = {}
    rejected: dict[str, list[tuple[int, str]]] = {}
    for life in logbook.attempts(entries).values():
        if life.choose is None:
            continue
        if life.choose.parent is not None:
            chosen.setdefault(life.choose.parent.name, []).append(life.number)
        for candidate in life.choose.candidates:
            if candidate.status == "rejected":
                rejected.setdefault(candidate.name, []).append((life.number, candidate.reason))
    return chosen, rejected


def _kept(published: Sequence[Publish], entries: Sequence[Entry], named: set[str]) -> list[Publish]:
    if len(published) <= MOST:
        return list(published)
    ends = {life.published[place].seq for life in logbook.attempts(entries).values() if life.published
            for place in (0, -1)}  # fmt: skip
    needed = [publish for publish in published if publish.seq in ends or publish.name in named]
    room = max(0, MOST - len(needed))
    others = [publish for publish in published if publish not in set(needed)]
    every = max(1, -(-len(others) // room)) if room else len(others) + 1
    return sorted([*needed, *others[every - 1 :: every]], key=lambda publish: publish.seq)


def _edges(kept: Sequence[Publish], entries: Sequence[Entry]) -> Iterable[Edge]:
    before: dict[int, Publish] = {}
    names = {publish.name for publish in kept}
    for publish in kept:
        parent = before.get(publish.attempt)
        restart = parent is None
        if parent is None:
            parent = logbook.started_from(entries, publish.attempt)
        yield Edge(parent.name if parent is not None and parent.name in names else None, publish.name, restart)
        before[publish.attempt] = publish


def _starts(evidence: Evidence) -> Iterable[Start]:
    done = steps_by_attempt(evidence)
    for number, life in sorted(logbook.attempts(evidence.store.log.entries).items()):
        parent = None if life.choose is None else life.choose.parent
        step = 0 if parent is None else parent.step
        reached = max(done.get(number, {}).values(), default=step)
        yield Start(number, None if parent is None else parent.name, step, reached, life.choose is not None)


def _damage(evidence: Evidence, publish: Publish, *, retired: bool) -> str:
    """What keeps it from verifying now; that the shards of a retired one are gone is as it should be."""
    found = [each for each in damages(evidence, publish) if not (retired and each.kind == "shard" and each.missing)]
    return "; ".join(map(str, found[:3])) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
