"""Invariant 3 in the ranks' own record: updates that were repeated, left out or out of turn, and their samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import plan_reference
import pytest
from audit_files import bodies, bulk, rechain
from evidence_by_hand import RUN, Line, begun, evidence, recorded, step
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import Judge
from simulated_run import F0, Settings, Simulation, one_kill, two_kills

from chaos.audit import audit_run
from chaos.audit import order as order_module
from chaos.audit.events import Restored
from chaos.audit.evidence import Segment, SegmentMeta
from chaos.audit.order import disorder, strange_samples
from chaos.audit.plan import Plan

Bodies = list[dict[str, Any]]


def rewrite(run: Simulation, attempt: int, rank: int, change: Callable[[Bodies, list[int]], None]) -> str:
    """Changes the history of the process that trained as this rank; at: where its steps of this attempt stand.

    Heads of it that others recorded no longer fit, so invariant 10 is unknown: the order is judged all the same.
    """
    for path in sorted((run.folder / "history").glob("worker-*.jsonl")):
        lines = bodies(path)
        at = [n for n, b in enumerate(lines) if (b["event"], b["attempt"], b.get("rank")) == ("step", attempt, rank)]
        if at:
            change(lines, at)
            rechain(path, lines)
            return path.name
    raise AssertionError


def repeat(number: int) -> Callable[[Bodies, list[int]], None]:
    def change(lines: Bodies, at: list[int]) -> None:
        again = copy.deepcopy(lines[at[number]])
        again["ids"] = "xxh3-128:" + "0" * 32
        lines.insert(at[number], again)

    return change


def steps_first(*steps: int) -> Callable[[Bodies, list[int]], None]:
    def change(lines: Bodies, at: list[int]) -> None:
        lines[at[0] : at[0]] = [{**lines[at[0]], "step": step, "samples_seen": 8 * step} for step in steps]

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (repeat(1), "rank 0 of attempt 2 trained step 8 after step 8, where 9 was next"),
        (steps_first(5, 6), "rank 0 of attempt 2 trained step 5 after restoring step 6, where 7 was next"),
        (steps_first(11), "rank 0 of attempt 2 trained step 11 after restoring step 6"),
        (lambda lines, at: lines.pop(at[0]), "rank 0 of attempt 2 trained step 8 after restoring step 6"),
        (lambda lines, at: lines.pop(at[2]), "rank 0 of attempt 2 trained step 10 after step 8, where 9 was next"),
        (lambda lines, at: lines.insert(at[-1], {**lines[at[-1]], "rank": 1}),
         "trained as rank 0 and as rank 1 of attempt 2"),
        (lambda lines, at: lines.insert(at[-1] + 1, {**lines[at[-1]], "attempt": 1, "step": 8}),
         "trained on in attempt 1 after it had begun attempt 2"),
    ],
)  # fmt: skip
def test_updates_out_of_turn(run: Simulation, judged: Judge, change: Any, words: str) -> None:
    rewrite(run, 2, 0, change)
    judged(run.folder, 3, "invalid", words)


def test_a_rank_that_restored_twice(run: Simulation, judged: Judge) -> None:
    def change(lines: Bodies, at: list[int]) -> None:
        restored = next(n for n, b in enumerate(lines) if (b["event"], b["attempt"]) == ("restored", 2))
        lines.insert(restored, lines[restored])

    rewrite(run, 2, 1, change)
    judged(run.folder, 3, "invalid", "rank 1 of attempt 2 restored its state 2 times")


def test_a_rank_in_two_processes(run: Simulation, judged: Judge) -> None:
    def change(lines: Bodies, at: list[int]) -> None:
        lines.insert(at[0], {**lines[at[0]], "rank": 1})

    rewrite(run, 2, 0, change)
    judged(run.folder, 3, "invalid", "rank 1 of attempt 2 trained in 2 processes: worker-h-")


def after_the_last_save(tmp_path: Path, attempt: int, change: Callable[[dict[str, Any]], None]) -> Simulation:
    """Step 5 of attempt 0 is trained, lost and trained again: no published ledger has what attempt 0 consumed in it."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing["attempt"], thing.get("step")) == ("step", attempt, 5):
            change(thing)

    return one_kill(tmp_path / "run", edit)


def test_samples_of_an_abandoned_step_are_those_of_the_plan(tmp_path: Path, judged: Judge) -> None:
    sim = after_the_last_save(tmp_path, 0, lambda step: step.update(ids="xxh3-128:" + "0" * 32))
    judged(sim.folder, 3, "invalid", "rank 0 of attempt 0 recorded other samples for step 4 than the plan says")


def test_an_abandoned_step_is_no_repetition(tmp_path: Path) -> None:
    assert audit_run(after_the_last_save(tmp_path, 0, lambda step: None).folder).verdict == "valid"


def test_a_process_that_wakes_up_and_trains_on_in_its_own_attempt(tmp_path: Path) -> None:
    """It is continued when the next attempt has long begun; its own history knows of one attempt only."""
    sim = Simulation(tmp_path / "run", Settings(faults=[F0]))
    sim.start()
    sim.train(5)
    zombie = sim.of("rank", 1)
    sim.kill(F0)
    sim.recover()
    sim.train(7)
    ids = next(b for b in bodies(sim.of("rank", 1).history.path) if (b["event"], b.get("step")) == ("step", 6))
    sim.say(zombie.history, "step", 0, **{k: ids[k] for k in ids if k not in ("event", "attempt", "t_ns", "clock")})
    sim.train(12)
    sim.finish()
    assert audit_run(sim.folder).invariant(3).verdict == "valid"


def test_an_uneven_share_is_not_looked_up(tmp_path: Path) -> None:
    run = two_kills(tmp_path / "run", ranks=3, global_batch=9)
    assert audit_run(run.folder).verdict == "valid"


# -- of a few lines: turns


def restored(rank: int, number: int) -> Restored:
    return Restored(rank, None, None, number, 8 * number, {}, {})


def trained(attempt: int | None, rank: int, *numbers: int) -> list[Line]:
    return [(attempt, step(rank, number)) for number in numbers]


def out_of_turn(*histories: list[Line]) -> list[str]:
    """Each of a process of its own: 1, 2, …"""
    files = [recorded("worker", pid, *lines) for pid, lines in enumerate(histories, 1)]
    return list(disorder(evidence(files=files)))


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((5, 6, 7), ""),
        ((), ""),
        ((6,), "trained step 6 after restoring step 4, where 5 was next"),
        ((4, 5), "trained step 4 after restoring step 4, where 5 was next"),
        ((5, 7), "trained step 7 after step 5, where 6 was next"),
        ((5, 6, 6, 8), "trained step 6 after step 6, where 7 was next"),
    ],
)
def test_the_first_update_out_of_turn_is_told(numbers: tuple[int, ...], words: str) -> None:
    expected = [f"rank 1 of attempt 2 {words}"] if words else []
    assert out_of_turn([(2, restored(1, 4)), *trained(2, 1, *numbers)]) == expected


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), max_size=5), st.booleans())
def test_any_updates_are_in_turn_or_told_once(numbers: list[int], has_restored: bool) -> None:
    start = 0 if has_restored else min(numbers[:1], default=1) - 1
    in_turn = numbers == list(range(start + 1, start + 1 + len(numbers)))
    found = out_of_turn([*([(0, restored(0, 0))] if has_restored else []), *trained(0, 0, *numbers)])
    assert len(found) == (not in_turn)


def test_without_a_restore_the_first_update_of_each_rank_is_where_it_began() -> None:
    found = out_of_turn(trained(0, 0, 5, 6, 7), trained(0, 1, 3, 4, 9))
    assert found == ["rank 1 of attempt 0 trained step 9 after step 4, where 5 was next"]


def test_the_first_of_two_restores_counts_and_both_are_told() -> None:
    lines: list[Line] = [(1, restored(0, 2)), (1, restored(0, 4)), *trained(1, 0, 3, 4)]
    assert out_of_turn(lines) == ["rank 0 of attempt 1 restored its state 2 times"]


def test_restores_of_several_ranks_and_attempts_are_told_apart() -> None:
    once: list[Line] = [(0, restored(0, 0)), (1, restored(0, 2))]
    three: list[Line] = [(1, restored(1, 2))] * 3
    twice: list[Line] = [(0, restored(2, 0))] * 2
    told = [f"rank {rank} of attempt {attempt} restored its state {count} times"
            for rank, attempt, count in ((2, 0, 2), (1, 1, 3))]  # fmt: skip
    assert out_of_turn(once, three, twice) == told


def test_what_a_process_recorded_under_no_attempt_has_no_turn() -> None:
    assert (
        out_of_turn([(None, restored(0, 0)), (None, restored(1, 0)), *trained(None, 0, 4, 2), *trained(None, 1, 7)])
        == []
    )


def test_of_a_rank_in_two_processes_only_that_is_told() -> None:
    found = out_of_turn([(0, restored(0, 0)), *trained(0, 0, 1, 5)], trained(0, 0, 9))
    assert found == ["rank 0 of attempt 0 trained in 2 processes: worker-h-1-10.jsonl and worker-h-2-20.jsonl"]


# -- of a few lines: processes


def test_a_process_serves_one_attempt_after_the_other() -> None:
    lines: list[Line] = [
        (0, restored(1, 0)),
        *trained(0, 1, 1, 2),
        (1, restored(0, 2)),
        *trained(1, 0, 3),
        (3, restored(2, 3)),
    ]
    assert out_of_turn(lines) == []


def test_a_process_of_two_ranks_is_told_once() -> None:
    found = out_of_turn([*trained(0, 0, 1), *trained(0, 1, 1), *trained(0, 2, 1)])
    assert found == ["worker-h-1-10.jsonl trained as rank 0 and as rank 1 of attempt 0"]


def test_a_process_that_restores_as_one_rank_and_trains_as_another() -> None:
    found = out_of_turn([(0, restored(0, 0)), *trained(0, 1, 1)])
    assert found == ["worker-h-1-10.jsonl trained as rank 0 and as rank 1 of attempt 0"]


def test_a_process_that_only_restores_serves_too() -> None:
    assert out_of_turn([(0, restored(0, 0)), (0, restored(1, 0))]) == [
        "worker-h-1-10.jsonl trained as rank 0 and as rank 1 of attempt 0"
    ]
    assert out_of_turn([(1, restored(0, 0)), (0, restored(0, 0))]) == [
        "worker-h-1-10.jsonl trained on in attempt 0 after it had begun attempt 1"
    ]


def test_a_process_that_trains_on_behind_the_restore_of_a_later_attempt() -> None:
    """Though its updates are in turn, and nothing of the later attempt lies between them."""
    lines = [(1, restored(0, 0)), *trained(1, 0, 1, 2), (2, restored(0, 2)), *trained(1, 0, 3)]
    told = ["worker-h-1-10.jsonl trained on in attempt 1 after it had begun attempt 2"]
    assert out_of_turn(lines) == told
    assert out_of_turn([*lines, *trained(2, 0, 3)]) == told
    assert out_of_turn([*lines[:-1], *trained(2, 0, 3, 4)]) == []


@pytest.mark.parametrize("before", [[], trained(1, 0, 1)])
def test_a_process_that_restores_for_an_earlier_attempt_in_between(before: list[Line]) -> None:
    """Its updates lie on both sides of it, all of the later attempt."""
    lines = [*before, *trained(2, 0, 1, 2), (1, restored(1, 2)), *trained(2, 0, 3)]
    told = "worker-h-1-10.jsonl trained as rank 0 and as rank 1 of attempt 1" if before else (
        "worker-h-1-10.jsonl trained on in attempt 1 after it had begun attempt 2"
    )
    assert told in out_of_turn(lines)
    lines = [*before, *trained(2, 0, 1, 2), (1, restored(0, 2)), *trained(2, 0, 3)]
    assert "worker-h-1-10.jsonl trained on in attempt 1 after it had begun attempt 2" in out_of_turn(lines)


def test_a_process_that_goes_back_is_told_once() -> None:
    found = out_of_turn([*trained(2, 0, 3), *trained(1, 0, 2), *trained(0, 0, 1)])
    assert found == ["worker-h-1-10.jsonl trained on in attempt 1 after it had begun attempt 2"]


def test_each_process_is_told_for_itself() -> None:
    found = out_of_turn([*trained(1, 0, 3), *trained(0, 0, 1)], [*trained(0, 1, 1), *trained(1, 1, 2)],
                        [*trained(3, 1, 5), *trained(2, 1, 4)])  # fmt: skip
    assert [text.partition(" ")[0] for text in found] == ["worker-h-1-10.jsonl", "worker-h-3-30.jsonl"]


# -- of a few lines: samples

PLAN = (20, 3, 2, 5)
BATCH = 6


def segment(attempt: int, rank: int, save: int, steps: Sequence[int]) -> Segment:
    """Of the save after `save` updates; steps: of each row, from 0."""
    meta = SegmentMeta(RUN, attempt, save, rank, min(steps, default=0), save - 1)
    at, none = np.arange(len(steps)), np.zeros(len(steps), np.int64)
    return Segment(meta, at, at, none.astype(np.uint64), np.array(steps, np.int64), none.astype(np.int32))


def ids_of(rank: int, number: int, ranks: int) -> str:
    """As a rank records them after `number` updates."""
    share = BATCH // ranks
    first = (number - 1) * BATCH + rank * share
    ids = [plan_reference.sample_id(position, *PLAN) for position in range(first, first + share)]
    return bulk(np.array(ids, "<i8").tobytes())


def strange(lines: Sequence[Line], segments: Sequence[Segment] = (), **run: Any) -> list[str]:
    told = begun(**{"ranks": 2, "global_batch": BATCH, "steps": 9, **run})
    return list(strange_samples(evidence(files=[recorded("worker", 1, *lines)]), told, Plan(*PLAN), segments))


def consumed(attempt: int | None, rank: int, *numbers: int, wrong: tuple[int, ...] = (), ranks: int = 2) -> list[Line]:
    """Updates with the planned ids, but for those that are `wrong`."""
    return [(attempt, step(rank, n, ids="x" if n in wrong else ids_of(rank, n, ranks))) for n in numbers]


def says_strange(rank: int, attempt: int, update: int) -> str:
    return f"rank {rank} of attempt {attempt} recorded other samples for step {update} than the plan says"


@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_planned_samples_of_any_number_of_ranks(ranks: int) -> None:
    planned = [line for rank in range(ranks) for line in consumed(0, rank, 1, 2, 3, 4, 9, ranks=ranks)]
    assert strange(planned, ranks=ranks) == []
    last = ranks - 1
    wrong = consumed(0, last, 1, 2, 3, wrong=(2, 3), ranks=ranks)
    assert strange(wrong, ranks=ranks) == [says_strange(last, 0, 1)]


@pytest.mark.parametrize("number", [1, 5, 9])
def test_the_first_wrong_update_of_each_rank_of_each_attempt(number: int) -> None:
    everything = range(1, 10)
    lines = [
        *consumed(1, 1, *everything, wrong=(number, 9)),
        *consumed(0, 1, *everything),
        *consumed(0, 0, *everything, wrong=(number,)),
    ]
    assert strange(lines) == [says_strange(0, 0, number - 1), says_strange(1, 1, number - 1)]


def test_updates_before_the_first_and_after_the_last_have_no_plan() -> None:
    assert strange([(0, step(0, number, ids="x")) for number in (-1, 0, 10, 11)]) == []


def test_ranks_that_the_run_does_not_have_have_no_plan() -> None:
    assert strange([(0, step(rank, 1, ids="x")) for rank in (-1, 2, 3)]) == []


def test_updates_of_no_attempt_are_not_looked_up() -> None:
    assert strange([(None, step(0, 1, ids="x"))]) == []


@pytest.mark.parametrize("ranks", [0, -1, 4, 5])
def test_a_batch_that_ranks_cannot_share_is_not_looked_up(ranks: int) -> None:
    assert strange([(0, step(0, 1, ids="x"))], ranks=ranks) == []


@pytest.mark.parametrize("steps", [[0, 1, 2], [0, 0, 1, 1, 1, 2], [0, 1, 1, 2, 2]])
def test_published_updates_are_judged_by_their_ledger(steps: list[int]) -> None:
    wrong = consumed(0, 0, 1, 2, 3, wrong=(1, 2, 3))
    assert strange(wrong, [segment(0, 0, 3, steps)]) == []
    assert strange([*wrong, *consumed(0, 0, 4, wrong=(4,))], [segment(0, 0, 3, steps)]) == [says_strange(0, 0, 3)]
    for missing in range(3):
        rest = [number for number in steps if number != missing]
        assert strange(wrong, [segment(0, 0, 3, rest)]) == [says_strange(0, 0, missing)]


def test_several_segments_cover_together_and_each_its_own_rank_and_attempt() -> None:
    wrong = [*consumed(0, 0, 1, 2, 3, wrong=(1, 2, 3)), *consumed(0, 1, 1, wrong=(1,)), *consumed(1, 0, 3, wrong=(3,))]
    segments = [segment(0, 0, 1, [0]), segment(0, 0, 2, [1, 1]), segment(0, 0, 3, [2]), segment(0, 1, 1, [])]
    assert strange(wrong, segments) == [says_strange(1, 0, 0), says_strange(0, 1, 2)]


def test_of_an_update_inside_which_a_checkpoint_lies_its_ledger_has_only_a_part() -> None:
    wrong = consumed(0, 0, 1, 2, 3, wrong=(1, 2, 3))
    assert strange(wrong, [segment(0, 0, 2, [0, 0, 1, 2])]) == [says_strange(0, 0, 2)]


@pytest.mark.parametrize("piece", [1, 3, 6, 10])
@pytest.mark.parametrize("wrong", [1, 2, 3, 7])
def test_pieces_of_updates_do_not_show(monkeypatch: pytest.MonkeyPatch, piece: int, wrong: int) -> None:
    monkeypatch.setattr(order_module, "_PIECE", piece)
    assert strange(consumed(0, 1, *range(1, 8), wrong=(wrong,))) == [says_strange(1, 0, wrong - 1)]
    assert strange(consumed(0, 1, *range(1, 8))) == []


def test_many_updates_are_looked_up_together_in_bounded_memory() -> None:
    asked: list[int] = []

    class Zeros(Plan):
        def sample_ids(self, positions: npt.ArrayLike) -> npt.NDArray[np.int64]:
            asked.append(len(np.asarray(positions)))
            return np.zeros(asked[-1], np.int64)

    share, zeros = 1 << 14, bulk(bytes(8 << 14))
    lines: list[Line] = [(0, step(0, number, ids=zeros)) for number in range(1, 10)]
    run = begun(ranks=1, global_batch=share, steps=9)
    found = strange_samples(evidence(files=[recorded("worker", 1, *lines)]), run, Zeros(*PLAN), [])
    assert list(found) == []
    assert sum(asked) == 9 * share
    assert share < max(asked) <= 1 << 16
