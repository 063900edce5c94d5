"""Invariant 8, redo is bounded and explained: what is trained again lay after the last save that had to be there.

A save is due at every multiple of save_every and at the last step, and waits for the one in flight. So a rank that
has finished update g has staged every save due before g, and all of those but the last are published.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.audit.events import Finished, SaveDue, SaveStaged
from chaos.audit.evidence import Candidate, Evidence, Publish
from chaos.audit.facts import RunBegun
from chaos.audit.findings import Case, Finding
from chaos.audit.logbook import Attempt, attempts, candidates, unusable
from chaos.audit.witnesses import events, steps_by_attempt

ID, NAME = 8, "redo is bounded and explained"


def check(evidence: Evidence) -> Finding:
    """Invalid: a save was skipped, or a restart went back further than the saves explain."""
    case = Case()
    if broken := unusable(evidence):
        case.unsure.append(broken)
        return case.finding()
    begun = evidence.begun
    if begun is None:
        case.unsure.append("the history does not say what the run was")
        return case.finding()
    lives = attempts(evidence.store.log.entries)
    done = steps_by_attempt(evidence)
    case.used = len(lives) > 1
    for number, life in sorted(lives.items()):
        base = restored_step(life)
        _judge_records(evidence, begun, number, base, done.get(number, {}), case)
        _judge_published(begun, number, base, life.published, _ended(evidence, number), case)
        _judge_restart(evidence, begun, lives, done, number, case)
    return case.finding("nothing was restarted")


def restored_step(life: Attempt) -> int:
    """Updates done in the state that the attempt started from."""
    return life.choose.parent.step if life.choose is not None and life.choose.parent is not None else 0


def due(begun: RunBegun, after: int, upto: int) -> list[int]:
    """Steps in (after, upto] at which a save falls due."""
    every = begun.save_every
    steps = list(range((after // every + 1) * every, min(upto, begun.steps) + 1, every))
    return steps + [begun.steps] * (after < begun.steps <= upto and begun.steps % every != 0)


def _ended(evidence: Evidence, number: int) -> int | None:
    """The step at which the run finished, if it did in this attempt; one that is fenced later changes nothing."""
    return max((event.what.step for event in events(evidence, Finished) if event.attempt == number), default=None)


def _judge_records(
    evidence: Evidence, begun: RunBegun, attempt: int, base: int, ranks: dict[int, int], case: Case
) -> None:
    """Each rank has a record of every save that fell due before its last update."""
    fell_due = {(e.what.rank, e.what.step) for e in events(evidence, SaveDue) if e.attempt == attempt}
    staged = {(e.what.rank, e.what.step) for e in events(evidence, SaveStaged) if e.attempt == attempt}
    for rank, greatest in sorted(ranks.items()):
        for step in due(begun, base, greatest - 1):
            for noted, word in ((fell_due, "fell due"), (staged, "was staged")):
                if (rank, step) not in noted:
                    case.wrong.append(
                        f"the save of step {step} was skipped: rank {rank} of attempt {attempt} trained on "
                        "to step "
                        f"{greatest} and has no record that it {word}"
                    )


def _judge_published(
    begun: RunBegun, attempt: int, base: int, published: Sequence[Publish], ended: int | None, case: Case
) -> None:
    """Saves are published one after another: none is left out before a later one, or before the end."""
    there = {publish.step for publish in published}
    upto = max([*there, ended or 0], default=0)
    for step in due(begun, base, upto):
        if step not in there:
            later = (
                "the run finished"
                if step > max(there, default=0)
                else f"that of step {min(t for t in there if t > step)} was"
            )
            case.wrong.append(
                f"the save of step {step} in attempt {attempt} was skipped: it was never published, {later}"
            )


def _judge_restart(
    evidence: Evidence,
    begun: RunBegun,
    lives: dict[int, Attempt],
    done: dict[int, dict[int, int]],
    number: int,
    case: Case,
) -> None:
    life, before = lives[number], last_trained(done, number)
    if number == 0 or life.choose is None or before is None or before not in lives:
        return
    greatest = max(done[before].values())
    staged = [event.what.step for event in events(evidence, SaveStaged) if event.attempt == before]
    base, restored = restored_step(lives[before]), restored_step(life)
    known = sorted({*due(begun, base, greatest - 1), *(step for step in staged if step > base)})
    needed = known[-2] if len(known) > 1 else base
    between = [lives[later] for later in range(before + 1, number + 1) if later in lives]
    rejected = any(note.step >= needed for each in between for note in _rejections(evidence, each))
    if restored < needed and not rejected:
        skipped = (
            f"the save of step {needed}"
            if len(known) > 1
            else f"step {needed}, from which attempt {before} started,"
        )
        case.wrong.append(
            f"attempt {number} redid {greatest - restored} steps from step {restored}, which nothing "
            "explains: at step "
            f"{greatest} of attempt {before} {skipped} had to be there, and no candidate was rejected"
        )


def _rejections(evidence: Evidence, life: Attempt) -> list[Candidate]:
    """What the attempt rejected of the candidates that it had; what else it lists explains nothing."""
    had = {publish.ref for publish in candidates(evidence.store.log.entries, life.number)}
    listed = life.choose.candidates if life.choose is not None else ()
    return [note for note in listed if note.status == "rejected" and note.ref in had]


def last_trained(done: dict[int, dict[int, int]], attempt: int) -> int | None:
    """The last attempt before this one that finished any update."""
    return max((number for number in done if number < attempt), default=None)


def greatest_update(done: dict[int, dict[int, int]], attempt: int) -> int:
    """Greatest number of updates that was finished on any rank in the attempt that trained last before this one."""
    before = last_trained(done, attempt)
    return 0 if before is None else max(done[before].values())
