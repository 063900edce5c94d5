"""Invariant 8, redo is bounded and explained: what is trained again lay after the last save that had to be there.

A save is due at every multiple of save_every, at the last step and, if the run asks for that, after every so many
microbatches; it waits for the one in flight. So a rank that has finished update g has staged every save due before g,
and all of those but the last are published. A rank that is given notice makes one more fall due, which all ranks
record, and leaves when that one is published.
"""

from __future__ import annotations

from chaos.audit.disturbance_events import Leaving, Noticed
from chaos.audit.events import Finished, SaveDue, SaveStaged
from chaos.audit.evidence import Candidate, Evidence, Moment
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
        base = restored_moment(life)
        _judge_records(evidence, begun, number, base, done.get(number, {}), case)
        _judge_published(evidence, begun, life, base, case)
        _judge_restart(evidence, begun, lives, done, number, case)
    return case.finding("nothing was restarted")


def restored_step(life: Attempt) -> int:
    """Updates done in the state that the attempt started from."""
    return restored_moment(life)[0]


def restored_moment(life: Attempt) -> Moment:
    """Updates done in that state, and microbatches of the next one accumulated in it."""
    return life.choose.parent.moment if life.choose is not None and life.choose.parent is not None else (0, 0)


def due(begun: RunBegun, after: Moment, upto: Moment) -> list[Moment]:
    """Moments in (after, upto] at which a save falls due, in order."""
    size, end = begun.microbatches, begun.steps * begun.microbatches
    first, last = (min(step * size + microbatch, end) for step, microbatch in (after, upto))
    found = {end} if first < end <= last else set()
    for every in (begun.save_every * size, begun.save_every_microbatches):
        if every:
            found.update(range((first // every + 1) * every, last + 1, every))
    return [divmod(done, size) for done in sorted(found)]


def _fell_due(evidence: Evidence, begun: RunBegun, attempt: int, after: Moment, upto: Moment) -> list[Moment]:
    """As `due`, with those that a notice asked for."""
    asked = {(event.what.step, 0) for event in events(evidence, Noticed) if event.attempt == attempt}
    return sorted({*due(begun, after, upto), *(moment for moment in asked if after < moment <= upto)})


def said(moment: Moment) -> str:
    """`step 4`, or `step 4, microbatch 3`."""
    return f"step {moment[0]}" + (f", microbatch {moment[1]}" if moment[1] else "")


def _before(begun: RunBegun, update: int) -> Moment:
    """The last moment before the end of this update."""
    return update - 1, begun.microbatches - 1


def _ended(evidence: Evidence, number: int) -> int | None:
    """The step at which the run finished, if it did in this attempt; one that is fenced later changes nothing."""
    return max((event.what.step for event in events(evidence, Finished) if event.attempt == number), default=None)


def _judge_records(
    evidence: Evidence, begun: RunBegun, attempt: int, base: Moment, ranks: dict[int, int], case: Case
) -> None:
    """Each rank has a record of every save that fell due before its last update."""
    fell_due = {(e.what.rank, _moment(e.what)) for e in events(evidence, SaveDue) if e.attempt == attempt}
    staged = {(e.what.rank, _moment(e.what)) for e in events(evidence, SaveStaged) if e.attempt == attempt}
    for rank, greatest in sorted(ranks.items()):
        for moment in _fell_due(evidence, begun, attempt, base, _before(begun, greatest)):
            for noted, word in ((fell_due, "fell due"), (staged, "was staged")):
                if (rank, moment) not in noted:
                    case.wrong.append(
                        f"the save of {said(moment)} was skipped: rank {rank} of attempt {attempt} trained on "
                        f"to step {greatest} and has no record that it {word}"
                    )
                    break  # what never fell due was not staged either


def _moment(save: SaveDue | SaveStaged) -> Moment:
    return save.step, save.microbatch


def _judge_published(evidence: Evidence, begun: RunBegun, life: Attempt, base: Moment, case: Case) -> None:
    """Saves are published one after another: none is left out before a later one, or before the end. None is there
    that did not fall due.
    """
    attempt, there = life.number, {publish.moment for publish in life.published}
    upto = max([*there, (_ended(evidence, attempt) or 0, 0)])
    fell_due = _fell_due(evidence, begun, attempt, base, upto)
    for publish in life.published:
        if publish.moment > base and publish.moment not in fell_due:
            case.wrong.append(
                f"{publish.name} was published, where no save falls due and no rank recorded that it was given notice"
            )
    for moment in fell_due:
        if moment not in there:
            later = (
                "the run finished"
                if moment > max(there, default=(0, 0))
                else f"that of {said(min(t for t in there if t > moment))} was"
            )
            case.wrong.append(
                f"the save of {said(moment)} in attempt {attempt} was skipped: it was never published, {later}"
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
    if life.choose is None or before is None or before not in lives:
        return
    greatest = max(done[before].values())
    staged = [_moment(event.what) for event in events(evidence, SaveStaged) if event.attempt == before]
    base, restored = restored_moment(lives[before]), restored_moment(life)
    fell_due = _fell_due(evidence, begun, before, base, _before(begun, greatest))
    known = sorted({*fell_due, *(moment for moment in staged if moment > base)})
    left = [(event.what.step, 0) for event in events(evidence, Leaving) if event.attempt == before]
    needed = max([known[-2] if len(known) > 1 else base, *left])
    between = [lives[later] for later in range(before + 1, number + 1) if later in lives]
    rejected = any(note.ref.moment >= needed for each in between for note in _rejections(evidence, each))
    if restored < needed and not rejected:
        skipped = (
            f"the save of {said(needed)}"
            if len(known) > 1 or left
            else f"{said(needed)}, from which attempt {before} started,"
        )
        case.wrong.append(
            f"attempt {number} redid {greatest - restored[0]} steps from {said(restored)}, which nothing "
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
