"""Sample ids computed ahead: the same with the process, without it, and when it dies; and it never stays behind."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from chaos.audit import plan_ahead
from chaos.audit.coverage import cover
from chaos.audit.evidence import Segment, SegmentMeta
from chaos.audit.ideal import Expected
from chaos.audit.plan import Plan
from chaos.audit.plan_ahead import DEPTH, PlanAhead, main, serve

PLAN = Plan(rows=700, group_rows=16, window_groups=3, seed=5)


def right(start: int, limit: int) -> list[int]:
    return PLAN.sample_ids(np.arange(start, limit)).tolist()


def nothing_here(ahead: PlanAhead) -> PlanAhead:
    """Its own process cannot compute anything any more."""
    ahead._plan = SimpleNamespace()  # type: ignore[assignment]
    return ahead


def test_what_was_asked_for_comes_from_the_other_process() -> None:
    with PlanAhead(PLAN) as ahead:
        nothing_here(ahead)
        stretches = [(0, 900), (900, 901), (901, 60_000)]  # the last does not fit into the pipe's buffer
        for stretch in stretches:
            ahead.ask(*stretch)
        for stretch in stretches:
            assert ahead.ids(*stretch).tolist() == right(*stretch)


def test_what_was_not_asked_for_is_computed_here() -> None:
    with PlanAhead(PLAN) as ahead:
        assert ahead.pid is not None
        assert ahead.ids(5, 30).tolist() == right(5, 30)


def test_another_stretch_than_expected_forgets_what_was_asked_for() -> None:
    with PlanAhead(PLAN) as ahead:
        for stretch in [(0, 10), (10, 20), (20, 30)]:
            ahead.ask(*stretch)
        assert ahead.ids(10, 20).tolist() == right(10, 20)
        assert ahead.ids(40, 45).tolist() == right(40, 45)
        ahead.ask(50, 60)
        assert nothing_here(ahead).ids(50, 60).tolist() == right(50, 60)


def test_so_many_stretches_at_once_and_each_only_once() -> None:
    with PlanAhead(PLAN) as ahead:
        for start in range(DEPTH + 2):
            for _ in range(2):
                ahead.ask(start, start + 1)
        nothing_here(ahead)
        assert [ahead.ids(start, start + 1).tolist() for start in range(DEPTH)] == [
            right(start, start + 1) for start in range(DEPTH)
        ]
        with pytest.raises(AttributeError):
            ahead.ids(DEPTH, DEPTH + 1)


def test_a_process_that_was_killed_is_not_missed() -> None:
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 140_000)  # more than the pipe holds: it is not done with it
        assert ahead.pid is not None
        os.kill(ahead.pid, signal.SIGKILL)
        assert ahead.ids(0, 140_000).tolist() == right(0, 140_000)
        assert ahead.pid is None
        ahead.ask(5, 6)
        assert ahead.ids(5, 6).tolist() == right(5, 6)


def test_asking_a_process_that_is_gone() -> None:
    with PlanAhead(PLAN) as ahead:
        assert ahead.pid is not None
        os.kill(ahead.pid, signal.SIGKILL)
        os.waitid(os.P_PID, ahead.pid, os.WEXITED | os.WNOWAIT)
        ahead.ask(0, 9)
        assert ahead.pid is None
        assert ahead.ids(0, 9).tolist() == right(0, 9)


def test_a_process_that_dies_between_two_answers() -> None:
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 9)
        ahead.ask(9, 140_000)
        assert ahead.ids(0, 9).tolist() == right(0, 9)
        assert ahead.pid is not None
        os.kill(ahead.pid, signal.SIGKILL)
        assert ahead.ids(7, 8).tolist() == right(7, 8)
        assert ahead.pid is None


@pytest.mark.parametrize("executable", ["/nonexistent/python", "", None])
def test_without_a_process(executable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    with PlanAhead(PLAN) as ahead:
        assert ahead.pid is None
        ahead.ask(0, 9)
        assert ahead.ids(0, 9).tolist() == right(0, 9)


def test_a_pipe_that_may_not_grow_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(fcntl, "fcntl", refused)
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 60_000)
        assert nothing_here(ahead).ids(0, 60_000).tolist() == right(0, 60_000)


def test_an_interrupt_while_it_starts_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "fcntl", interrupted)
    before = sorted(os.listdir("/proc/self/fd"))
    ahead = PlanAhead(PLAN)
    with pytest.raises(KeyboardInterrupt):
        ahead.__enter__()
    assert ahead.pid is None
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_what_the_process_prints_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_ahead, "_PROGRAM", "print('hello', flush=True); " + plan_ahead._PROGRAM)
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 9)
        assert nothing_here(ahead).ids(0, 9).tolist() == right(0, 9)


@pytest.mark.parametrize("noise", [1, 16, 1000])
def test_an_answer_to_something_else_ends_it(noise: int, monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = f"import os, sys; os.write(int(sys.argv[3]), b'x' * {noise}); "
    monkeypatch.setattr(plan_ahead, "_PROGRAM", noisy + plan_ahead._PROGRAM)
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 900)
        assert ahead.ids(0, 900).tolist() == right(0, 900)
        assert ahead.pid is None


def test_a_process_with_other_code_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_ahead, "__file__", "/another/checkout/chaos/audit/plan_ahead.py")
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 9)
        assert ahead.ids(0, 9).tolist() == right(0, 9)
        assert ahead.pid is None


def test_its_search_path_is_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "chaos").mkdir()
    (tmp_path / "chaos" / "__init__.py").write_text("raise SystemExit('another one')\n")
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 9)
        assert nothing_here(ahead).ids(0, 9).tolist() == right(0, 9)


def test_a_process_that_is_stopped_in_the_middle_of_an_answer_goes_on() -> None:
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 140_000)
        assert ahead.pid is not None
        assert ahead._answers is not None
        nearly_full = fcntl.fcntl(ahead._answers, fcntl.F_GETPIPE_SZ) - 2 * 4096  # its pages are not all full
        deadline = time.monotonic() + 60
        while int.from_bytes(fcntl.ioctl(ahead._answers, termios.FIONREAD, bytes(4)), sys.byteorder) < nearly_full:
            assert time.monotonic() < deadline, "the pipe never was full"
            time.sleep(0.001)
        os.kill(ahead.pid, signal.SIGSTOP)
        os.kill(ahead.pid, signal.SIGCONT)
        ahead.ask(140_000, 140_009)
        nothing_here(ahead)
        assert ahead.ids(0, 140_000).tolist() == right(0, 140_000)
        assert ahead.ids(140_000, 140_009).tolist() == right(140_000, 140_009)


def test_a_stretch_behind_all_that_can_be_asked_for() -> None:
    with PlanAhead(PLAN) as ahead:
        ahead.ask((1 << 63) - 9, 1 << 63)
        assert not ahead._asked
        ahead.ask((1 << 63) - 9, (1 << 63) - 1)
        assert nothing_here(ahead).ids((1 << 63) - 9, (1 << 63) - 1).tolist() == right((1 << 63) - 9, (1 << 63) - 1)


def test_after_stretches_in_vain_fewer_are_asked_for() -> None:
    with PlanAhead(PLAN) as ahead:

        def asked(first: int) -> int:
            for start in range(first, first + DEPTH):
                ahead.ask(start, start + 1)
            return len(ahead._asked)

        assert asked(0) == DEPTH
        ahead.ids(90, 91)
        assert asked(100) == 1
        ahead.ids(100, 101)
        assert asked(200) == 2
        ahead.ids(200, 201)
        ahead.ids(201, 202)
        ahead.ids(50, 51)  # nothing had been asked for
        assert asked(300) == DEPTH


def test_an_interrupt_is_its_parents_affair() -> None:
    with PlanAhead(PLAN) as ahead:
        ahead.ask(0, 1)
        ahead.ids(0, 1)  # it is up
        assert ahead.pid is not None
        os.kill(ahead.pid, signal.SIGINT)
        ahead.ask(1, 9)
        assert nothing_here(ahead).ids(1, 9).tolist() == right(1, 9)


@pytest.mark.parametrize("error", [None, KeyboardInterrupt])
def test_it_ends_with_the_block(error: type[BaseException] | None) -> None:
    ahead = PlanAhead(PLAN)
    try:
        with ahead:
            pid = ahead.pid
            ahead.ask(0, 140_000)
            if error is not None:
                raise error
    except KeyboardInterrupt:
        pass
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ahead.pid is None


def test_it_ends_with_its_parent() -> None:
    program = (
        "import os, signal; from chaos.audit.plan import Plan; from chaos.audit.plan_ahead import PlanAhead\n"
        f"ahead = PlanAhead(Plan(**{asdict(PLAN)!r})).__enter__(); ahead.ask(0, 1); ahead.ids(0, 1)\n"
        "ahead.ask(0, 140000); print(ahead.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    child = int(done.stdout)
    deadline = time.monotonic() + 60
    while _runs(child):
        assert time.monotonic() < deadline, "it has outlived its parent"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"plan_ahead" in file.read()  # of one that ended and nobody waited for it is empty
    except FileNotFoundError:
        return False


REQUESTS = np.array([[3, 9], [700, 702]], "<i8").tobytes()
ANSWERS = [3, 9, *right(3, 9), 700, 702, *right(700, 702)]


def test_what_the_process_does() -> None:
    answers = io.BytesIO()
    serve(PLAN, io.BytesIO(REQUESTS + b"half"), answers)
    assert np.frombuffer(answers.getvalue(), "<i8").tolist() == ANSWERS


@pytest.mark.parametrize(("file", "told"), [(plan_ahead.__file__, ANSWERS), ("/another/plan_ahead.py", [])])
def test_the_process_as_a_whole(
    file: str, told: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requests").write_bytes(REQUESTS)
    stdin, before = os.dup(0), signal.getsignal(signal.SIGINT)
    answers = os.open(tmp_path / "answers", os.O_WRONLY | os.O_CREAT)
    monkeypatch.setattr(sys, "argv", ["-c", "[]", json.dumps(asdict(PLAN)), str(answers), file])
    try:
        with open(tmp_path / "requests", "rb") as requests:
            os.dup2(requests.fileno(), 0)
        main()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        signal.signal(signal.SIGINT, before)
    if not told:
        os.close(answers)  # it was not its business
    assert np.frombuffer((tmp_path / "answers").read_bytes(), "<i8").tolist() == told


def test_nobody_takes_the_answers() -> None:
    class Closed(io.RawIOBase):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    serve(PLAN, io.BytesIO(np.array([0, 9], "<i8").tobytes()), Closed())  # type: ignore[arg-type]


BATCH, STEPS, WINDOW = 20, 40, 64
WANT = Expected(STEPS * BATCH, BATCH, PLAN.rows, PLAN.sample_ids, ranks=2, microbatches=2, partial=1)


def ledger(without: range = range(0), other: int | None = None) -> list[Segment]:
    """One segment up to the cursor and one of the half update behind it. other: the position of a wrong sample."""
    position = np.setdiff1d(np.arange(STEPS * BATCH + BATCH), without)
    microbatch = WANT.microbatch(position).astype(np.int32)
    ids = PLAN.sample_ids(position)
    ids[position == other] += 1
    done = position < STEPS * BATCH
    whole = SegmentMeta("r", 0, STEPS, 0, 0, STEPS - 1)
    half = SegmentMeta("r", 0, STEPS, 0, STEPS, STEPS, microbatch=1)
    return [
        Segment(meta, position[own], ids[own], ids[own].astype(np.uint64), position[own] // BATCH, microbatch[own])
        for meta, own in ((whole, done), (half, ~done & (microbatch < 1)))
    ]


@pytest.mark.parametrize(
    ("segments", "windows_from_there"),
    [
        (ledger(), 13),  # all but the first of 13 up to the cursor and one behind it
        (ledger(other=333), 13),
        (ledger(without=range(100, 110)), 13),
        (ledger(without=range(100, 400)), 8),  # the window behind the gap begins where nobody thought
    ],
)
def test_the_ledger_is_judged_alike(
    segments: list[Segment], windows_from_there: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = cover(segments, WANT, WINDOW)
    with PlanAhead(PLAN) as ahead:
        here: list[int] = []
        ids = PlanAhead.ids

        def counted(self: PlanAhead, start: int, limit: int) -> object:
            here.append((start, limit) not in self._asked)
            return ids(self, start, limit)

        monkeypatch.setattr(PlanAhead, "ids", counted)
        assert cover(segments, WANT, WINDOW, ahead) == alone
    assert (here[0], here.count(False)) == (True, windows_from_there)
