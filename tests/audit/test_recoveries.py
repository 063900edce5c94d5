"""What each recovery cost, from events in memory: which instants count, and what is None where one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from evidence_by_hand import begun, chose, evidence, fence, published, receipt, recorded, step

from chaos.audit.events import Detected, Fenced, Formed, Joined, Previous, Restored, Resumed, SaveDue
from chaos.audit.evidence import Entry, Evidence, HistoryFile
from chaos.audit.facts import Receipt, RunBegun
from chaos.audit.recoveries import Recovery, recoveries

MS = 1_000_000
FOUR = published(1, 0, 4)
LOG: list[Entry] = [fence(0, 0), FOUR, fence(2, 1), chose(3, 1, FOUR)]


def detected(pid: int | None = 5, rank: int = 0) -> Detected:
    return Detected("rank", rank, pid, None if pid is None else pid * 10, "actor_died", "")


def restored(rank: int = 0) -> Restored:
    return Restored(rank, None, None, 4, 32, {}, {})


SUPERVISOR = recorded("supervisor", 1, (0, Fenced(0), 0), (0, detected(), 13 * MS), (1, Fenced(2), 20 * MS))
WORKER = recorded(
    "worker", 1, (0, step(0, 4), 5 * MS), (0, step(0, 5), 6 * MS), (0, step(0, 6), 7 * MS), (1, Joined(0), 40 * MS),
    (1, restored(), 70 * MS), (1, step(0, 5), 110 * MS), (1, step(0, 6), 160 * MS), (1, step(0, 7), 220 * MS),
)  # fmt: skip
STRUCK = [receipt(pid=5, t_ns=3 * MS)]
WHOLE = Recovery(1, 4, 0.01, 0.027, 0.03, 0.09, 0.107, 2, 16)


def of(
    files: Sequence[HistoryFile] = (SUPERVISOR, WORKER),
    receipts: Sequence[Receipt] = STRUCK,
    entries: Sequence[Entry] = LOG,
    began: RunBegun | None = None,
) -> Recovery:
    """The only recovery of such a run."""
    (found,) = recoveries(evidence(entries, files, receipts, begun=began or begun(ranks=3)))
    return found


def test_each_part_of_a_recovery_is_from_one_instant_to_the_next() -> None:
    assert of() == WHOLE


def test_the_first_attempt_is_no_recovery_and_the_others_come_in_order() -> None:
    log: list[Entry] = [fence(0, 0), fence(1, 1), chose(2, 1, None), fence(3, 2), chose(4, 2, None)]
    assert recoveries(evidence(log[:1])) == ()
    assert [each.attempt for each in recoveries(evidence(log))] == [1, 2]


def test_of_an_attempt_that_did_not_choose_it_is_not_known_what_it_did_again() -> None:
    found = of(entries=LOG[:3], began=begun(save_every_microbatches=1))
    assert (found.restored_step, found.redo_steps, found.redo_samples, found.redo_microbatches) == (None,) * 4
    assert (found.restored_microbatch, found.detect_s) == (0, 0.01)


def test_without_the_run_event_samples_and_microbatches_are_not_known() -> None:
    (found,) = recoveries(evidence(LOG, (SUPERVISOR, WORKER), STRUCK))
    assert (found.redo_steps, found.redo_samples, found.redo_microbatches) == (2, None, None)


def test_nothing_is_done_again_where_nothing_was_finished_behind_what_was_restored() -> None:
    """The attempt has then caught up when it has restored, even if it never finishes an update."""
    worker = recorded("worker", 1, (0, step(0, 2), 5 * MS), (1, Joined(0), 40 * MS), (1, restored(), 70 * MS))
    found = of((SUPERVISOR, worker))
    assert (found.redo_steps, found.redo_samples, found.redo_s, found.first_step_s) == (0, 0, 0.0, None)
    unrestored = of((SUPERVISOR, recorded("worker", 1, (0, step(0, 4), 5 * MS), (1, Joined(0), 40 * MS))))
    assert (unrestored.redo_steps, unrestored.redo_s, unrestored.load_s) == (0, None, None)


def test_the_last_rank_counts_for_joining_and_restoring_and_the_first_for_having_caught_up() -> None:
    late = recorded(
        "worker", 2, (1, Joined(1), 45 * MS), (1, restored(1), 65 * MS), (1, step(1, 5), 105 * MS),
        (1, step(1, 6), 170 * MS),
    )  # fmt: skip
    found = of((SUPERVISOR, WORKER, late))
    assert (found.reacquire_s, found.load_s, found.redo_s, found.first_step_s) == (0.032, 0.025, 0.09, 0.102)


def test_where_no_rank_said_that_it_joined_the_group_was_formed() -> None:
    worker = recorded("worker", 1, (1, restored(), 70 * MS))
    formed = recorded("supervisor", 2, (0, Formed(2), 1 * MS), (1, Formed(2), 50 * MS))
    assert (of((SUPERVISOR, worker, formed)).reacquire_s, of((SUPERVISOR, worker, formed)).load_s) == (0.037, 0.02)
    assert of((SUPERVISOR, worker)).reacquire_s is None


def test_events_of_other_attempts_do_not_count() -> None:
    other = recorded("worker", 2, (2, Joined(1), 400 * MS), (0, restored(1), 700 * MS), (2, step(1, 9), 90 * MS),
                    (None, Joined(1), 800 * MS))  # fmt: skip
    assert of((SUPERVISOR, WORKER, other)) == WHOLE


@pytest.mark.parametrize(("number", "first_step_s"), [(0, 0.057), (-1, None)])
def test_an_update_with_the_least_number_is_one_and_with_a_number_below_it_is_none(
    number: int, first_step_s: float | None
) -> None:
    assert of((SUPERVISOR, recorded("worker", 1, (1, step(0, number), 60 * MS)))).first_step_s == first_step_s


# -- durations


def test_durations_are_rounded_to_microseconds() -> None:
    assert of(receipts=[receipt(pid=5, t_ns=13 * MS - 1_234_567_849)]).detect_s == 1.234568
    assert of(receipts=[receipt(pid=5, t_ns=13 * MS - 1_234_561)]).detect_s == 0.001235


@pytest.mark.parametrize("boot", ["other", None])
def test_no_duration_spans_two_boots(boot: str | None) -> None:
    """Of a file without its first line the boot is not known; nor is it the same as that of another such file."""
    lines = [(event.attempt, event.what, event.t_ns) for event in SUPERVISOR.events[1:]]
    found = of((recorded("supervisor", 1, *lines, boot=str(boot), opened=boot is not None), WORKER))
    assert (found.detect_s, found.reacquire_s, found.load_s, found.first_step_s) == (None, None, 0.03, 0.107)


def test_instants_of_files_whose_boot_is_not_known_do_not_compare() -> None:
    lines = [(event.attempt, event.what, event.t_ns) for event in sorted(
        [*WORKER.events[1:], *WORKER.steps], key=lambda event: event.n)]  # fmt: skip
    found = of((SUPERVISOR, recorded("worker", 1, *lines, opened=False)))
    assert (found.reacquire_s, found.load_s, found.redo_s, found.first_step_s) == (None,) * 4


def test_the_last_of_several_ranks_is_not_known_over_two_boots() -> None:
    late = recorded("worker", 2, (1, Joined(1), 45 * MS), (1, restored(1), 60 * MS), (1, step(1, 5), 90 * MS),
                   boot="other")  # fmt: skip
    found = of((SUPERVISOR, WORKER, late))
    assert (found.reacquire_s, found.load_s, found.redo_s, found.first_step_s) == (None,) * 4
    early = recorded("worker", 2, (1, step(1, 5), 90 * MS), boot="other")
    found = of((SUPERVISOR, WORKER, early))
    assert (found.load_s, found.redo_s, found.first_step_s) == (0.03, 0.09, None)


# -- detection and strike


def test_the_first_detection_after_the_fence_before_counts() -> None:
    supervisor = recorded(
        "supervisor", 1, (0, detected(3), 1 * MS), (0, Fenced(0), 2 * MS), (0, detected(5), 13 * MS),
        (0, detected(6), 14 * MS), (1, Fenced(2), 20 * MS), (1, detected(7), 30 * MS),
    )  # fmt: skip
    assert of((supervisor, WORKER), [receipt(pid=5, t_ns=3 * MS)]).detect_s == 0.01
    assert of((supervisor, WORKER), [receipt(pid=6, t_ns=4 * MS)]).detect_s == 0.009
    assert of((supervisor, WORKER), [receipt(pid=3, t_ns=1 * MS)]).detect_s is None
    assert of((supervisor, WORKER), [receipt(pid=7, t_ns=1 * MS)]).detect_s is None


def test_each_recovery_has_its_own_detection_and_strike() -> None:
    supervisor = recorded(
        "supervisor", 1, (0, Fenced(0), 2 * MS), (0, detected(5), 13 * MS), (1, Fenced(2), 20 * MS),
        (1, detected(7), 300 * MS), (2, Fenced(4), 310 * MS),
    )  # fmt: skip
    struck = [receipt(pid=5, t_ns=3 * MS), receipt(pid=7, t_ns=280 * MS, attempt=1)]
    first, second = recoveries(evidence([*LOG, fence(4, 2)], (supervisor, WORKER), struck))
    assert (first.detect_s, second.detect_s) == (0.01, 0.02)


def test_only_the_file_of_the_supervisor_that_fenced_has_the_detection() -> None:
    """Another one's detection, of a run that it gave up, is none of this recovery."""
    other = recorded("supervisor", 0, (9, Fenced(9), 1 * MS), (0, detected(5), 2 * MS))
    assert of((other, SUPERVISOR, WORKER)) == WHOLE
    gone = of((other, WORKER))
    assert (gone.detect_s, gone.reacquire_s, gone.first_step_s, gone.load_s) == (None, None, None, 0.03)


def test_a_fence_without_a_detection_before_it_answers_nothing_that_is_known() -> None:
    supervisor = recorded("supervisor", 1, (0, detected(5), 1 * MS), (0, Fenced(0), 2 * MS), (1, Fenced(2), 20 * MS))
    found = of((supervisor, WORKER))
    assert (found.detect_s, found.reacquire_s, found.first_step_s) == (None, None, None)


def test_the_first_strike_counts_of_all_that_was_detected_from_then_on() -> None:
    supervisor = recorded(
        "supervisor", 1, (0, detected(4), 1 * MS), (0, Fenced(0), 2 * MS), (0, detected(5), 13 * MS),
        (0, detected(6), 14 * MS), (0, detected(None), 15 * MS), (1, Fenced(2), 20 * MS), (1, detected(7), 30 * MS),
    )  # fmt: skip
    elsewhere = recorded("supervisor", 2, (0, detected(8), 1 * MS), (0, detected(8), 2 * MS), (0, detected(8), 3 * MS),
                        (0, detected(8), 4 * MS))  # fmt: skip
    files = (supervisor, WORKER, elsewhere)
    struck = [receipt(pid=pid, t_ns=at * MS) for pid, at in ((5, 7), (6, 5), (4, 1), (7, 2), (8, 2))]
    assert of(files, struck).detect_s == 0.008


def test_a_strike_is_lethal_and_at_that_very_process() -> None:
    slow, other = receipt(pid=5, t_ns=1 * MS, kind="slow"), receipt(pid=6, t_ns=2 * MS)
    assert of(receipts=[slow, other, *STRUCK]) == WHOLE
    assert of(receipts=[slow, other]).detect_s is None


def test_a_strike_in_an_earlier_attempt_comes_before_one_in_the_new_one() -> None:
    """Pids are used again, and the new attempt may be struck at a process that had been struck before."""
    late = receipt(pid=5, t_ns=1 * MS, attempt=1)
    assert of(receipts=[late, *STRUCK]) == WHOLE
    assert of(receipts=[late]).detect_s == 0.012


def test_a_supervisor_that_follows_detects_the_one_before_it() -> None:
    previous = (Previous("supervisor-0", 8, 80), Previous("supervisor-1", 9, 90))
    supervisor = recorded("supervisor", 2, (None, Resumed(previous), 15 * MS), (0, detected(5), 17 * MS),
                         (1, Fenced(2), 20 * MS))  # fmt: skip
    struck = [receipt(pid=9, t_ns=5 * MS, role="supervisor"), receipt(pid=5, t_ns=1 * MS)]
    assert of((supervisor, WORKER), struck).detect_s == 0.01
    assert of((supervisor, WORKER), [receipt(pid=8, t_ns=4 * MS)]).detect_s == 0.011
    assert of((supervisor, WORKER), [receipt(pid=5, t_ns=1 * MS)]).detect_s is None


# -- what is done again


def inside(step: int, microbatch: int, began: RunBegun, *due: tuple[SaveDue, int | None], **more: Any) -> Recovery:
    """The recovery of attempt 2 from that moment, where these saves fell due."""
    source = published(1, 0, step, microbatch)
    log: list[Entry] = [fence(0, 0), source, fence(2, 1), fence(3, 2), chose(4, 2, source)]
    worker = recorded("worker", 1, *((attempt, save, 0) for save, attempt in due), *more.get("lines", ()))
    *_, found = recoveries(evidence(log, (worker,), begun=began))
    return found


@pytest.mark.parametrize(
    ("greatest", "microbatch", "redo", "samples"),
    [(6, 0, 2, 24), (6, 1, 2, 20), (6, 2, 2, 16), (5, 2, 1, 4), (4, 2, 0, 0), (4, 0, 0, 0), (3, 1, 0, 0)],
)
def test_samples_that_the_restored_gradients_hold_are_not_done_again(
    greatest: int, microbatch: int, redo: int, samples: int
) -> None:
    lines = [(1, step(0, greatest), 0)]
    found = inside(4, microbatch, begun(microbatches=3, global_batch=12), lines=lines)
    assert (found.restored_step, found.restored_microbatch) == (4, microbatch)
    assert (found.redo_steps, found.redo_samples) == (redo, samples)


def test_a_run_without_saves_inside_steps_counts_no_microbatches() -> None:
    assert inside(4, 0, begun(), (SaveDue(0, 5, 1), 1)).redo_microbatches is None


@pytest.mark.parametrize(
    ("restored", "due", "redo"),
    [
        ((4, 0), [], 0),
        ((4, 0), [(0, 5, 2, 1)], 2),  # rank, step, microbatch, attempt
        ((5, 0), [(0, 5, 2, 1)], 2),
        ((5, 1), [(0, 5, 2, 1)], 1),
        ((5, 2), [(0, 5, 1, 1)], 0),  # of this moment no microbatch is lost
        ((4, 1), [(0, 5, 2, 1)], 2),  # what was restored is of another update
        ((4, 0), [(0, 5, 1, 1), (1, 5, 2, 1), (2, 5, 1, 1)], 2),  # the rank that came furthest
        ((4, 0), [(0, 4, 3, 1), (0, 5, 0, 1)], 0),  # that update was finished
        ((4, 0), [(0, 5, 1, 1), (0, 4, 3, 1)], 1),
        ((4, 0), [(0, 7, 2, 0), (0, 5, 1, 1)], 1),  # only the last attempt that saved counts
        ((4, 0), [(0, 5, 3, 0), (0, 5, 1, 1)], 1),
        ((4, 0), [(0, 5, 3, 0)], 3),
        ((4, 0), [(0, 5, 1, 1), (0, 5, 3, 2), (0, 5, 2, None)], 1),  # not the recovering one itself
        ((4, 0), [(0, 5, 2, None)], 0),
    ],
)
def test_microbatches_of_the_update_that_was_not_finished(
    restored: tuple[int, int], due: list[tuple[int, int, int, int | None]], redo: int
) -> None:
    saves = [(SaveDue(rank, number, microbatch), attempt) for rank, number, microbatch, attempt in due]
    assert inside(*restored, begun(microbatches=4, save_every_microbatches=1), *saves).redo_microbatches == redo


def test_an_update_that_was_finished_has_no_microbatches_left() -> None:
    began = begun(microbatches=4, save_every_microbatches=1)
    saves = [(SaveDue(0, 5, 3), 1)]
    assert inside(4, 0, began, *saves, lines=[(1, step(0, 6), 0), (1, step(1, 5), 0)]).redo_microbatches == 0
    assert inside(4, 0, began, *saves, lines=[(1, step(0, 5), 0), (0, step(0, 9), 0)]).redo_microbatches == 3
    assert inside(0, 0, began, (SaveDue(0, 0, 2), 0)).redo_microbatches == 2


def test_nothing_is_needed_of_the_files_that_say_nothing() -> None:
    empty: Evidence = evidence(LOG)
    assert recoveries(empty) == (Recovery(1, 4, None, None, None, None, None, 0, None),)
