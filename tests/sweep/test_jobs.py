"""How trials are handed out to several processes. What these do stands for trials here; real ones are run on Ray."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from chaos.errors import SweepError
from chaos.interrupts import Interrupts
from chaos.sweep.conduct import Task
from chaos.sweep.jobs import Jobs, Setting
from chaos.sweep.predict import Prediction
from chaos.sweep.results import Ending, Recovered, Result
from chaos.sweep.trials import Trial

SETTING = Setting("run: {}", "experiment.yaml", "sweep", 60.0)
TRIALS = [Trial(f"rank0/step.end/{n}", ({"kind": "sigkill", "at": {"point": "step.end"}},), ()) for n in range(1, 7)]
RESULT = Result("", "step.end", "rank", 0, Ending.VALID, 1, 1, True, (Recovered(3, 1, 0.5),), 1.0)
BEGINNING = f"""
import json, os, signal, socket, sys, time
channel = socket.socket(fileno=int(sys.argv[-1]))
lines = channel.makefile("rw")
assert json.loads(lines.readline())["experiment"] == "run: {{}}"

def answer(task, **what):
    result = json.loads({json.dumps(asdict(RESULT))!r}) | {{"trial": task["trial"]["name"], "why": str(os.getpid())}}
    lines.write(json.dumps(what or {{"result": result}}) + chr(10))
    lines.flush()

def tasks():
    while line := lines.readline():
        yield json.loads(line)
"""


def jobs(work: str, ended: Callable[[Result], None], interrupts: Interrupts, count: int = 2) -> Jobs:
    return Jobs(SETTING, {}, count, interrupts, ended, [sys.executable, "-c", BEGINNING + work])


def test_a_trial_crosses_a_process_boundary_as_it_is() -> None:
    for predictions in (None, (), (Prediction((0, 3), (4, 6)), Prediction((3,), (5, 5), cut_short=True))):
        task = Task(replace(TRIALS[0], predictions=predictions, gated=True), twice=True, doubted=True)
        assert Task.from_json(json.loads(json.dumps(asdict(task)))) == task


def test_every_trial_is_conducted_once_and_no_more_at_a_time_than_there_are_jobs() -> None:
    under_way: set[str] = set()
    most, results = 0, []

    def began(trial: Trial) -> None:
        nonlocal most
        under_way.add(trial.name)
        most = max(most, len(under_way))

    def ended(result: Result) -> None:
        under_way.remove(result.trial)
        results.append(result)

    with Interrupts() as interrupts, jobs("for task in tasks(): answer(task)", ended, interrupts) as two:
        two.conduct([Task(trial) for trial in TRIALS], began)
    assert sorted(result.trial for result in results) == sorted(trial.name for trial in TRIALS)
    assert (most, under_way) == (2, set())
    assert len({result.why for result in results}) == 2  # process ids: both had work
    assert replace(results[0], trial="", why="") == RESULT


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ("for task in tasks(): sys.exit('out of memory')", "conducted rank0/step.end/1, ended with 1: out of memory"),
        ("for task in tasks(): os.kill(os.getpid(), signal.SIGKILL)", "ended with -9"),
        ("for task in tasks(): answer(task, error='results: No space left on device')", "No space left on device"),
    ],
)  # fmt: skip
def test_a_process_that_fails_ends_the_sweep_and_says_why(work: str, says: str) -> None:
    with (
        Interrupts() as interrupts,
        pytest.raises(SweepError, match=says),
        jobs(work, lambda result: None, interrupts, 1) as one,
    ):
        one.conduct(map(Task, TRIALS), lambda trial: None)


def test_an_interrupt_keeps_what_is_done_and_leaves_nobody_behind(tmp_path: Path) -> None:
    """The first trial answers when it is told to stop, too late to be read in the ordinary way; the second does not."""
    parked = tmp_path / "parked"
    os.mkfifo(parked)
    work = f"""
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
for task in tasks():
    with open({str(parked)!r}, "w") as fifo:
        fifo.write("x")
    signal.sigwait([signal.SIGINT])
    if task["trial"]["name"].endswith("1"):
        answer(task)
    sys.exit(130)
"""
    results: list[Result] = []
    main = threading.get_ident()

    def interrupt_when_both_are_parked() -> None:
        with parked.open() as fifo:  # ends when both writers have closed it
            read = fifo.read()
        while len(read) < 2:
            with parked.open() as fifo:
                read += fifo.read()
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt_when_both_are_parked)
    thread.start()
    with pytest.raises(KeyboardInterrupt), Interrupts() as interrupts, jobs(work, results.append, interrupts) as two:
        two.conduct(map(Task, TRIALS), lambda trial: None)
    thread.join()
    assert [result.trial for result in results] == [TRIALS[0].name]
    with pytest.raises(ProcessLookupError):
        os.kill(int(results[0].why), 0)


def test_without_trials_the_processes_end_by_themselves(tmp_path: Path) -> None:
    work = f"for task in tasks(): pass\nopen({str(tmp_path / 'ended')!r}, 'a').write('x')"
    with Interrupts() as interrupts, jobs(work, lambda result: None, interrupts) as two:
        two.conduct([], lambda trial: None)
    assert (tmp_path / "ended").read_text() == "xx"
