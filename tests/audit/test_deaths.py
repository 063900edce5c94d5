"""What is seen of faults, and deaths without one (invariant 10), in evidence of a few lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from evidence_by_hand import Line, begun, evidence, fence, receipt, recorded

from chaos.audit.deaths import Observed, explained, mismatch, observe, orphaning, receipts_of, unexplained
from chaos.audit.disturbance_events import StoreFailed
from chaos.audit.events import (
    Detected,
    ExitConfirmed,
    Exited,
    GaveUp,
    Killing,
    Previous,
    ProcessNamed,
    Resumed,
)
from chaos.audit.evidence import Entry, Evidence, FileSeen, HistoryFile
from chaos.audit.facts import Fault, Gate, GateHeld, Head, Outage, Process, Receipt, Slow

FAULT = Fault("f0", "sigkill", 0, "rank", 1, "step.end", 1, None, None)
HEAD = Head("worker-h-5-50.jsonl", 3, "c")
STRUCK = receipt("sigkill", "rank", 1, 0, 5, history=HEAD)


# -- receipts and what was planned


@pytest.mark.parametrize(
    ("planned", "held", "words"),
    [
        ({}, {}, ""),
        ({}, {"run": "run-2"}, "was planned with run run-1, its receipt has run-2"),
        ({}, {"kind": "hang"}, "was planned with kind sigkill, its receipt has hang"),
        ({}, {"role": "standby"}, "was planned with role rank, its receipt has standby"),
        ({}, {"point": "step.begin"}, "was planned with point step.end, its receipt has step.begin"),
        ({}, {"hit": 2}, "was planned with hit 1, its receipt has 2"),
        ({}, {"rank": 0}, "was planned with rank 1, its receipt has 0"),
        ({"rank": 0}, {"rank": None}, "was planned with rank 0, its receipt has None"),
        ({"rank": None}, {"rank": 0}, ""),
        ({}, {"attempt": 1}, "was planned with attempt 0, its receipt has 1"),
        ({"role": "standby"}, {"role": "standby", "attempt": 1}, ""),
        ({"point": None, "hit": None}, {"point": None, "hit": 4}, ""),
        ({"point": None, "hit": None}, {}, "was planned with point None, its receipt has step.end"),
        ({"grace_s": 2.0}, {}, "was planned with grace_s 2.0, its receipt has None"),
        ({}, {"grace_s": 2.0}, "was planned with grace_s None, its receipt has 2.0"),
        ({"grace_s": 2.0}, {"grace_s": 2.0}, ""),
        ({}, {"slow": Slow(0.5, 2)}, "was planned with slow None, its receipt has Slow"),
        ({"outage": Outage(2, None)}, {"outage": Outage(3, None)}, "was planned with outage Outage"),
        ({}, {"kind": "hang", "role": "committer"}, "was planned with kind"),
    ],
)
def test_a_receipt_is_of_what_was_planned(planned: dict[str, Any], held: dict[str, Any], words: str) -> None:
    found = mismatch(evidence(begun=begun()), replace(FAULT, **planned), replace(STRUCK, **held))
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_without_a_supervisors_record_any_run_may_be_the_one() -> None:
    assert mismatch(evidence(), FAULT, replace(STRUCK, run="run-2")) == ""


@pytest.mark.parametrize(
    ("held", "fits"),
    [
        (None, False),
        (GateHeld("committer", None, "publish.before", 2, True), True),
        (GateHeld("committer", None, "publish.before", 2, False), False),
        (GateHeld("committer", None, "publish.before", 3, True), False),
    ],
)
def test_a_gate_that_was_planned_has_been_held(held: GateHeld | None, fits: bool) -> None:
    planned = replace(FAULT, gate=Gate("committer", None, "publish.before", 2))
    words = "was planned behind a gate at publish.before, its receipt does not say that it was held"
    assert mismatch(evidence(begun=begun()), planned, replace(STRUCK, gate=held)) == ("" if fits else words)
    assert mismatch(evidence(begun=begun()), FAULT, replace(STRUCK, gate=held)) == ""


@pytest.mark.parametrize(
    ("role", "file"),
    [("rank", "worker"), ("standby", "worker"), ("committer", "committer"), ("supervisor", "supervisor")],
)
def test_a_receipt_is_written_beside_the_history_of_the_process_that_it_names(role: str, file: str) -> None:
    planned, name = replace(FAULT, role=role), f"{file}-h-5-50.jsonl"
    struck = replace(STRUCK, role=role, history=Head(name, 3, "c"))
    for boot, words in (("b", ""), ("c", f"has a receipt of another boot than history/{name}")):
        known = evidence(files=[recorded(file, 5, boot=boot)], begun=begun())
        assert mismatch(known, planned, struck) == words
    unknown = evidence(files=[recorded(file, 6, boot="c")], begun=begun())
    assert mismatch(unknown, planned, struck) == ""
    words = "has a receipt that does not say how far the struck process had recorded"
    assert mismatch(unknown, planned, replace(struck, history=None)) == words
    for other in (f"{file}-h-6-50.jsonl", f"{file}-h-5-51.jsonl", f"{file}-i-5-50.jsonl", "launcher-h-5-50.jsonl"):
        words = f"struck process 5, but its receipt was written beside history/{other}"
        assert mismatch(unknown, planned, replace(struck, history=Head(other, 3, "c"))) == words


def test_a_data_task_has_no_history() -> None:
    data = replace(STRUCK, role="data", history=None)
    assert mismatch(evidence(begun=begun()), replace(FAULT, role="data"), data) == ""


def test_receipts_of_a_fault_are_those_of_its_name() -> None:
    receipts = [replace(STRUCK, fault=name) for name in ("f0", "f1", "f0", "f00")]
    assert receipts_of(evidence(receipts=receipts), FAULT) == (receipts[0], receipts[2])


# -- what was seen


def lost(pid: int, how: str = "actor_died", detail: str = "") -> Line:
    return 0, Detected("rank", 1, pid, 10 * pid, how, detail)


def killing(pid: int, attempt: int | None = 0, signal: int = 9) -> Line:
    return attempt, Killing(pid, 10 * pid, signal, "recovery")


def exited(pid: int, signal: int | None, code: int | None = None) -> Line:
    return None, Exited(pid, 10 * pid, signal, code)


def confirmed(pid: int, signal: int | None, code: int | None = None) -> Line:
    return 0, ExitConfirmed(pid, 10 * pid, signal, code)


def led(*lines: Line, **others: Any) -> HistoryFile:
    return recorded("supervisor", 1, *lines, **others)


def launched(*lines: Line, **others: Any) -> HistoryFile:
    return recorded("launcher", 2, *lines, **others)


def seen(struck: Receipt, *files: HistoryFile, entries: tuple[Entry, ...] = ()) -> Observed | None:
    return observe(evidence(entries, files, (struck,), begun=begun()), struck)


@pytest.mark.parametrize("end", [exited, confirmed])
def test_a_kill_is_seen_where_the_process_ended_and_was_found_lost(end: Any) -> None:
    died = Observed(5, "actor_died", 9, None)
    assert seen(STRUCK, led(lost(5)), launched(end(5, 9))) == died
    assert seen(STRUCK, led(lost(6), lost(5), lost(5, "raised")), launched(end(6, 9), end(5, 9))) == died
    assert seen(STRUCK, led(lost(5)), launched(end(5, 11), end(5, 9))) == died
    assert seen(STRUCK, led(lost(5)), launched(end(6, 9))) is None
    assert seen(STRUCK, led(lost(5))) is None
    for signal, code in ((11, None), (15, None), (None, 0), (None, 9)):
        assert seen(STRUCK, led(lost(5)), launched(end(5, signal, code))) is None
    assert seen(replace(STRUCK, target=Process(5, 51, "h")), led(lost(5)), launched(end(5, 9))) is None


def test_a_process_that_nobody_missed_was_not_seen_to_die() -> None:
    alone = Observed(5, "exited", 9, None)
    end = launched(exited(5, 9))
    one = (fence(0, 0), fence(1, 1))
    two = (fence(0, 0), fence(1, 1, 3))
    assert seen(STRUCK, led(), end) is None
    assert seen(STRUCK, led(lost(6)), end, entries=one) is None
    assert seen(STRUCK, end, entries=two) == alone
    assert seen(replace(STRUCK, attempt=1), end, entries=two) is None
    assert seen(replace(STRUCK, role="standby"), end) == alone


@pytest.mark.parametrize("how", ["stopped", "stalled", "missed_deadline"])
def test_a_hang_is_seen_by_those_who_waited(how: str) -> None:
    hang, end = replace(STRUCK, kind="hang"), launched(exited(5, 9))
    hung = Observed(5, how, 9, None)
    assert seen(hang, led(lost(5, how)), end) == hung
    assert seen(hang, led(lost(5), lost(5, how), lost(5, "stopped")), end) == hung
    assert seen(hang, led(lost(5, "actor_died"), lost(5, "raised")), end) is None
    assert seen(hang, led(), end, entries=(fence(0, 0), fence(1, 1, 3))) is None
    assert seen(hang, led(lost(5, how))) is None


def test_a_process_that_its_supervisor_killed_before_it_was_lost_was_not_ended_by_the_fault() -> None:
    died, end = Observed(5, "actor_died", 9, None), launched(exited(5, 9))
    assert seen(STRUCK, led(lost(5), killing(5)), end) == died
    assert seen(STRUCK, led(killing(5), lost(5)), end) is None
    assert seen(STRUCK, led(killing(6), lost(5)), end) == died
    assert seen(STRUCK, led(lost(6), killing(5), lost(5)), end) is None
    assert seen(STRUCK, led(lost(5), killing(5), lost(5)), end) == died
    assert seen(STRUCK, led(killing(5), lost(5), killing(5)), end) is None
    assert seen(STRUCK, led(killing(5)), recorded("supervisor", 3, lost(5)), end) == died
    assert seen(replace(STRUCK, role="standby"), led(killing(5)), end) is None


@pytest.mark.parametrize("end", [exited, confirmed])
def test_after_a_notice_a_process_ends_by_that_signal_or_is_killed_when_its_grace_is_over(end: Any) -> None:
    notice = replace(STRUCK, kind="sigterm", grace_s=2.0, t_ns=100)
    over = 2_000_000_100

    def left(signal: int, at: int, struck: Receipt = notice, boot: str = "b") -> bool:
        return seen(struck, led(lost(5)), launched((*end(5, signal), at), boot=boot)) is not None

    assert left(15, 0)
    assert left(15, 0, boot="c")
    assert not left(11, over)
    assert not left(9, over - 1)
    assert left(9, over)
    assert left(9, over + 1)
    assert not left(9, over, boot="c")
    without = replace(notice, grace_s=None)
    assert left(9, 100, without)
    assert not left(9, 99, without)
    assert not left(15, 0, replace(notice, kind="sigkill"))


def test_of_several_ends_by_that_signal_one_after_the_grace_is_enough() -> None:
    notice = replace(STRUCK, kind="sigterm", grace_s=None, t_ns=100)
    early, late = launched((*exited(5, 9), 50)), led(lost(5), (*confirmed(5, 9), 150))
    assert seen(notice, early, late) == Observed(5, "actor_died", 9, None)
    assert seen(notice, launched((*exited(6, 9), 150)), led(lost(5), (*confirmed(5, 9), 50))) is None


def test_a_data_task_is_seen_by_its_receipt_only() -> None:
    assert seen(replace(STRUCK, role="data", kind="exception")) == Observed(5, "receipt only")


@pytest.mark.parametrize(
    ("detail", "named"),
    [
        ("injected fault f0: exception", True),
        ("f0", True),
        ("(f0)", True),
        ("fault f00", False),
        ("fault xf0", False),
        ("fault f0-1", False),
        ("fault -f0", False),
        ("f00 after f0", True),
        ("", False),
    ],
)
def test_an_exception_is_seen_where_it_names_the_fault(detail: str, named: bool) -> None:
    raises = replace(STRUCK, kind="exception")
    other = lost(6, "raised", "fault f0")
    assert seen(raises, led(other, lost(5, "raised", detail))) == (Observed(5, "raised") if named else None)
    assert seen(raises, led(lost(5, "actor_died", detail)), launched(exited(5, 9))) is None
    stopped = replace(STRUCK, role="supervisor", kind="exception")
    mine, others = recorded("supervisor", 5, (0, GaveUp(detail))), led((0, GaveUp("fault f0")))
    assert seen(stopped, others, mine) == (Observed(5, "gave up") if named else None)


def test_a_name_of_a_fault_is_no_pattern() -> None:
    raises = replace(STRUCK, kind="exception", fault="f.0")
    assert seen(raises, led(lost(5, "raised", "fault fx0"))) is None
    assert seen(raises, led(lost(5, "raised", "fault f.0"))) == Observed(5, "raised")


def test_a_supervisor_is_seen_to_be_gone_by_the_next_one() -> None:
    struck = replace(STRUCK, role="supervisor")
    previous = tuple(Previous("", pid, ticks) for pid, ticks in ((4, 40), (5, 50)))
    assert seen(struck, led((None, Resumed(previous[:1])), (None, Resumed(previous)))) == Observed(5, "resumed")
    assert seen(struck, led((None, Resumed((Previous("", 5, 51), Previous("", 6, 50)))))) is None
    assert seen(struck, led(lost(5)), launched(exited(5, 9))) is None
    unnamed = recorded("supervisor", 5, (0, GaveUp("fault f0")), opened=False)
    assert seen(struck, unnamed) is None
    assert seen(struck, unnamed, led((None, Resumed(previous)))) == Observed(5, "resumed")


def test_what_ends_no_process_is_seen_of_the_file_or_of_the_process() -> None:
    damage = replace(STRUCK, kind="damage", path="store/shards/x", before="a", after="b")
    for digest, seen_as in (("b", Observed(None, "damaged")), ("a", None)):
        files = {"shards/x": FileSeen("shards/x", 1, digest)}
        assert observe(evidence(receipts=(damage,), seen=files), damage) == seen_as
    outage = replace(STRUCK, kind="outage", outage=Outage(2, None), t_ns=0)
    failures: list[Line] = [(0, StoreFailed("the store"))] * 2
    assert seen(outage, recorded("worker", 5, *failures)) == Observed(5, "2 errors")
    assert seen(outage, recorded("worker", 5, *failures[:1])) is None


# -- deaths that nothing explains


def named(pid: int, role: str = "rank", rank: int | None = 1) -> Line:
    return 0, ProcessNamed(role, rank, pid, 10 * pid, "h", "")


def told(*files: HistoryFile, receipts: tuple[Receipt, ...] = ()) -> list[str]:
    return list(unexplained(evidence((), files, receipts)))


def says(pid: int, how: str, who: str = "rank 1") -> str:
    return f"process {pid} ({who}) died {how}, and no receipt or recorded kill accounts for it"


@pytest.mark.parametrize(
    ("signal", "code", "how"),
    [(11, None, "by signal 11"), (9, None, "by signal 9"), (11, 1, "by signal 11"), (None, 1, "with exit code 1"),
     (None, -1, "with exit code -1"), (None, 0, ""), (None, None, "")],
)  # fmt: skip
@pytest.mark.parametrize("end", [exited, confirmed])
def test_a_process_of_the_run_that_died_of_itself(end: Any, signal: int | None, code: int | None, how: str) -> None:
    expected = [says(5, how)] if how else []
    assert told(led(named(5)), launched(end(5, signal, code))) == expected
    assert told(led(named(5)), launched(end(6, signal, code))) == []
    assert told(led(named(5)), launched(end(5, signal, code)), receipts=(STRUCK,)) == []
    assert told(led(named(5)), launched(end(5, signal, code)), receipts=(replace(STRUCK, kind="slow"),)) == expected


def test_each_death_is_told_once_with_the_role_of_the_process() -> None:
    names = led(named(5), named(6, "committer", None), named(7, "rank", 0))
    ends = launched(exited(5, None, 0), confirmed(5, 6), exited(5, 11), exited(7, 11), confirmed(7, 11), exited(6, 4))
    assert told(names, ends) == [says(5, "by signal 11"), says(6, "by signal 4", "committer"),
                                 says(7, "by signal 11", "rank 0")]  # fmt: skip


@pytest.mark.parametrize(
    ("kills", "signal", "code", "explains"),
    [
        ([(0, 9)], 9, None, True),
        ([(0, 9)], 11, None, False),
        ([(0, 9)], None, 1, False),
        ([(0, 9)], None, 0, True),
        ([(None, 9)], 11, None, True),
        ([(None, 9)], 9, None, True),
        ([(0, 9), (None, 9)], 11, None, True),
        ([(0, 9), (1, 15)], 15, None, True),
        ([(0, 9), (1, 15)], 11, None, False),
        ([], 9, None, False),
    ],
)
def test_a_kill_in_an_attempt_accounts_for_an_end_by_its_own_signal(
    kills: list[tuple[int | None, int]], signal: int | None, code: int | None, explains: bool
) -> None:
    lines = [killing(5, attempt, number) for attempt, number in kills]
    how = f"by signal {signal}" if signal is not None else f"with exit code {code}"
    end = launched(exited(5, signal, code))
    assert told(led(named(5), killing(6), *lines), end) == ([] if explains else [says(5, how)])
    assert told(led(named(5), *lines), end, receipts=(STRUCK,)) == []


def whole(*files: HistoryFile, receipts: tuple[Receipt, ...] = ()) -> Evidence:
    return evidence((), files, receipts)


def test_processes_of_a_supervisor_that_is_gone_are_left_behind() -> None:
    gone = recorded("supervisor", 3, named(5), named(6))
    other = led(named(7), (None, Resumed((Previous(gone.name, 3, 30),))))
    ends = launched(exited(5, 11), exited(7, 11))
    assert told(gone, other, ends) == [says(7, "by signal 11")]
    assert explained(whole(gone, other)) == {(5, 50), (6, 60)}
    assert orphaning(whole(gone, other)) == {gone.name}


def test_processes_of_a_supervisor_that_was_struck_are_left_behind() -> None:
    files = (recorded("supervisor", 3, named(5)), led(named(7)), recorded("supervisor", 4, named(8), opened=False))
    struck = receipt("sigkill", "supervisor", None, 0, 3)
    assert orphaning(whole(*files, receipts=(struck,))) == {files[0].name}
    assert explained(whole(*files, receipts=(struck,))) == {(3, 30), (5, 50)}
    for other in (replace(struck, role="rank"), replace(struck, kind="slow")):
        assert orphaning(whole(*files, receipts=(other,))) == set()
    assert explained(whole(*files, receipts=(replace(struck, kind="slow"),))) == set()


def test_whoever_was_killed_or_struck_is_explained() -> None:
    files = (led(killing(6), killing(7, None), named(8)), launched(exited(8, 9)))
    assert explained(whole(*files, receipts=(STRUCK,))) == {(5, 50), (6, 60), (7, 70)}
