"""Invariant 10: what the log has and nobody recorded; invariant 3: groups of other ranks than the run's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from audit_files import bodies, rechain
from evidence_by_hand import Entries, Line, begun, checkpoint, evidence, recorded, step
from judging import Judge
from simulated_run import F0, F1, Edit, Settings, Simulation, fault, two_kills

from chaos.audit import audit_run
from chaos.audit.events import Chosen, Fenced, Finished, Formed, Joined, Loaded, Published, Restored
from chaos.audit.evidence import Entry
from chaos.audit.told import other_groups, untold


def without(event: str, **fields: Any) -> Edit:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == event and all(thing.get(k) == v for k, v in fields.items()):
            thing["drop"] = True

    return edit


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (without("fenced", attempt=1), "no supervisor recorded the fence of attempt 1, entry 4"),
        (without("chosen", attempt=1), "no supervisor recorded what attempt 1 chose, entry 5"),
        (without("published", step=2), "no committer recorded the publication of s00000002-a0000"),
        (without("published", step=12), "no committer recorded the publication of s00000012-a0002"),
        (without("loaded", rank=1, attempt=2), "nothing says that rank 1 of attempt 2 verified s00000006-a0001"),
    ],
)
def test_an_entry_that_nobody_recorded(tmp_path: Path, judged: Judge, edit: Edit, words: str) -> None:
    judged(two_kills(tmp_path / "run", edit).folder, 10, "unknown", words)


def test_what_was_restored_at_the_end_must_be_told(tmp_path: Path, judged: Judge) -> None:
    """The last attempt has nothing left to train: only its restores say that the state was there."""
    late = fault(0, 0, "committer", None, "publish.after", hit=6)
    sim = Simulation(tmp_path / "run", Settings(faults=[late]), without("restored", attempt=1, rank=1))
    sim.start()
    sim.train(12)
    sim.kill(late)
    sim.recover()
    sim.finish()
    judged(sim.folder, 10, "unknown", "nothing says what rank 1 of attempt 1 restored")


def test_the_history_of_a_supervisor_that_nobody_else_names(tmp_path: Path, judged: Judge) -> None:
    sim = two_kills(tmp_path / "run")
    path = sim.folder / "history" / sim.supervisor.name
    path.rename(path.with_name("supervisor-h-7-7.jsonl"))
    path = path.with_name("supervisor-h-7-7.jsonl")
    lines = bodies(path)
    lines[0].update(pid=7, start_ticks=7)
    rechain(path, lines)
    judged(sim.folder, 10, "unknown", "the history of supervisor 101, which began attempt 0, is missing")


# -- what a kill may leave unrecorded


def test_a_publication_that_its_committer_did_not_live_to_record(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(faults=[F0, F1]), without("published", attempt=1, step=8))
    sim.start()
    sim.train(5)
    sim.kill(F0)
    sim.recover()
    sim.train(8)
    sim.kill(F1)
    sim.recover()
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).verdict == "valid"


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("choose", [True, False])
def test_a_supervisor_that_did_not_live_to_record_its_entry(tmp_path: Path, choose: bool, recorded: bool) -> None:
    planned = fault(0, 0, "supervisor", None, "recover.choose.before")
    edit = (lambda kind, thing: None) if recorded else without("chosen" if choose else "fenced", attempt=0)
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]), edit)
    sim.begin = sim.fence  # type: ignore[method-assign]
    sim.start()
    if choose:
        sim.choose()
    sim.receipt(planned, sim.supervisor)
    old = sim.supervisor
    sim.supervisor = sim._recorder("supervisor")
    sim.say(sim.supervisor, "resumed", previous=[{"file": old.name, **old.who, "head": old.head}])
    del sim.begin  # type: ignore[misc]
    sim.recover()
    sim.train(12)
    sim.finish()
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid", verdict.invariants


# -- groups


@pytest.mark.parametrize(
    ("event", "change", "words"),
    [
        ("formed", {"world": 1}, "attempt 1 formed a group of 1 ranks, the run has 2"),
        ("joined", {"rank": 0}, "both joined attempt 1 as rank 0"),
        ("joined", {"rank": 2}, "joined attempt 1 as rank 2 of 2"),
    ],
)
def test_a_group_of_other_ranks(tmp_path: Path, judged: Judge, event: str, change: dict[str, int], words: str) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing["attempt"], thing.get("rank", 1)) == (event, 1, 1):
            thing.update(change)

    judged(two_kills(tmp_path / "run", edit).folder, 3, "invalid", words)


@pytest.mark.parametrize(
    ("event", "number", "judgement", "words"),
    [
        ("step", 3, "unknown", "the history of rank 1 in attempt 1 lacks step 5"),
        ("restored", 10, "unknown", "nothing says what rank 1 of attempt 1 restored"),
    ],
)
def test_what_a_rank_recorded_under_no_attempt_is_of_none(
    tmp_path: Path, judged: Judge, event: str, number: int, judgement: str, words: str
) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == event and thing["attempt"] == 1 and thing.get("rank") == 1:
            thing["attempt"] = None

    judged(two_kills(tmp_path / "run", edit).folder, number, judgement, words)


# -- of a few lines: entries and their records

START = checkpoint(2, 0)
WHOLE = Entries().fence().choose(None).publish(2, 4, 6).fence().take(START).publish(8, 10).made


def restored(attempt: int, rank: int) -> Line:
    name = START.name if attempt else None
    return attempt, Restored(rank, name, None, 2 if attempt else 0, 0, {}, {})


FENCES: list[Line] = [(0, Fenced(0)), (1, Fenced(5))]
CHOICES: list[Line] = [(0, Chosen(None, None, 0, 1)), (1, Chosen(START.name, START.digest, 2, 6))]
AT = ((0, 2, 2), (0, 4, 3), (0, 6, 4), (1, 8, 7), (1, 10, 8))  # attempt, step, seq
PUBLISHED: list[Line] = [(attempt, Published("", step, "", seq)) for attempt, step, seq in AT]
RESTORED: list[Line] = [restored(attempt, rank) for attempt in (0, 1) for rank in (0, 1)]
LOADED: list[Line] = [(1, Loaded(rank, START.name, True, "")) for rank in (0, 1)]
FINISHED: list[Line] = [(1, Finished(10))]
TRAINED: list[Line] = [(0, step(0, 1))]
EVERYTHING = (*FENCES, *CHOICES, *PUBLISHED, *RESTORED, *LOADED, *FINISHED)


def untold_in(
    lines: tuple[Line, ...] | list[Line], entries: Sequence[Entry] = WHOLE, ranks: int | None = 2
) -> list[str]:
    """Whoever wrote them: supervisor 1 is there."""
    run = None if ranks is None else begun(ranks=ranks)
    return list(untold(evidence(entries, [recorded("supervisor", 1, *lines)], begun=run)))


def lacking(*lines: Line) -> list[Line]:
    return [line for line in EVERYTHING if line not in lines]


def test_a_record_that_lacks_nothing() -> None:
    assert untold_in(EVERYTHING) == []


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_fence_or_a_choice_without_a_record(attempt: int) -> None:
    words = f"no supervisor recorded the fence of attempt {attempt}, entry {(0, 5)[attempt]}"
    assert untold_in(lacking(FENCES[attempt])) == [words]
    words = f"no supervisor recorded what attempt {attempt} chose, entry {(1, 6)[attempt]}"
    assert untold_in(lacking(CHOICES[attempt])) == [words]


def test_a_publication_needs_a_record_if_another_followed_it_or_the_run_has_finished() -> None:
    for line in PUBLISHED:
        found = untold_in(lacking(line, *FINISHED))
        seq = line[1].seq
        name = checkpoint(line[1].step, line[0] or 0).name
        words = f"no committer recorded the publication of {name}, entry {seq}"
        assert found == ([words] if seq in (2, 3, 7) else [])
        assert untold_in(lacking(line)) == ([words] if seq != 4 else [])


def test_everything_that_nobody_recorded_is_told_attempt_by_attempt() -> None:
    found = untold_in([])
    assert [text.partition(", entry ")[2] or text for text in found] == [
        "0", "1", "2", "3", "nothing says what rank 0 of attempt 0 restored",
        "5", "6", "7", "nothing says what rank 0 of attempt 1 restored",
    ]  # fmt: skip


@pytest.mark.parametrize(("attempt", "rank"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_each_rank_of_an_attempt_that_published_has_restored(attempt: int, rank: int) -> None:
    words = f"nothing says what rank {rank} of attempt {attempt} restored"
    assert untold_in(lacking(restored(attempt, rank))) == [words]


def test_the_first_rank_without_a_record_is_told() -> None:
    assert untold_in(lacking(*RESTORED), ranks=3) == [
        f"nothing says what rank 0 of attempt {attempt} restored" for attempt in (0, 1)
    ]
    assert untold_in(EVERYTHING, ranks=4) == [f"nothing says what rank 2 of attempt {n} restored" for n in (0, 1)]
    assert untold_in(lacking(*RESTORED), ranks=None) == []


@pytest.mark.parametrize("ranks", [[0], [1], [0, 1]])
def test_what_a_rank_restored_it_had_verified(ranks: list[int]) -> None:
    gone = [LOADED[rank] for rank in ranks]
    others: list[Line] = [(0, LOADED[rank][1]) for rank in ranks]
    others += [(1, Loaded(rank, "s00000004-a0000", True, "")) for rank in ranks]
    words = f"nothing says that rank {ranks[0]} of attempt 1 verified {START.name} before it restored it"
    assert untold_in([*lacking(*gone), *others]) == [words]


BEGUN = Entries().fence().choose(None).made
CHOSE = "no supervisor recorded what attempt 0 chose, entry 1"


@pytest.mark.parametrize(
    ("entries", "lines", "words"),
    [
        (Entries().fence().made, [], []),
        (Entries().fence().made, [*FENCES, (0, Finished(0)), restored(0, 0), restored(0, 1)], []),
        (BEGUN, FENCES, []),
        (BEGUN, [*FENCES, *TRAINED], [CHOSE]),
        (BEGUN, [*FENCES, restored(0, 0)], [CHOSE]),
        (BEGUN, [*FENCES, (1, step(0, 1)), restored(1, 0)], []),
        (BEGUN, [*FENCES, (0, Finished(0)), restored(0, 0), restored(0, 1)], [CHOSE]),
        (BEGUN, [*FENCES, *CHOICES, (0, Finished(0)), restored(0, 0)],
         ["nothing says what rank 1 of attempt 0 restored"]),
        (BEGUN, [*FENCES, *CHOICES, *TRAINED], []),
        ([*BEGUN, *WHOLE[2:3]], [*FENCES, restored(0, 0), restored(0, 1)], [CHOSE]),
    ],
)  # fmt: skip
def test_what_must_be_told_of_an_attempt_that_went_no_further(
    entries: Sequence[Entry], lines: list[Line], words: list[str]
) -> None:
    assert untold_in(lines, entries) == words


def test_a_supervisor_without_a_history_is_all_that_is_told_of_its_attempt() -> None:
    entries = Entries().fence(7).choose(None).publish(2).fence().choose(None).publish(2)
    others = (recorded("worker", 7), recorded("supervisor", 7, opened=False), recorded("supervisor", 1))
    found = list(untold(evidence(entries, others, begun=begun(ranks=0))))
    assert found == [
        "the history of supervisor 7, which began attempt 0, is missing",
        "no supervisor recorded the fence of attempt 1, entry 3",
        "no supervisor recorded what attempt 1 chose, entry 4",
    ]


# -- of a few lines: groups


def groups(*lines: Line, others: tuple[Line, ...] = (), ranks: int = 2) -> list[str]:
    files = [recorded("worker", 1, *lines), recorded("worker", 2, *others)]
    return list(other_groups(evidence(files=files), ranks))


@pytest.mark.parametrize("world", [0, 1, 2, 3])
def test_a_group_has_as_many_ranks_as_the_run(world: int) -> None:
    words = f"attempt 4 formed a group of {world} ranks, the run has 2"
    assert groups((4, Formed(world)), (5, Formed(2))) == ([] if world == 2 else [words])


@pytest.mark.parametrize("rank", [-1, 0, 1, 2])
def test_a_rank_that_joins_is_one_of_the_run(rank: int) -> None:
    words = f"worker-h-1-10.jsonl joined attempt 4 as rank {rank} of 2"
    assert groups((4, Joined(rank))) == ([] if rank in (0, 1) else [words])


def test_a_rank_joins_an_attempt_in_one_process() -> None:
    assert groups((0, Joined(0)), (0, Joined(0)), (1, Joined(1)), others=((0, Joined(1)), (1, Joined(0)))) == []
    found = groups((0, Joined(0)), (None, Joined(1)), others=((0, Joined(0)), (None, Joined(1))))
    assert found == [f"worker-h-1-10.jsonl and worker-h-2-20.jsonl both joined attempt {attempt} as rank {rank}"
                     for attempt, rank in ((0, 0), (None, 1))]  # fmt: skip
