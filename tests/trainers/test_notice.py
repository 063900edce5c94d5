"""A SIGTERM as a notice: real signals in a process of their own, and what a rank makes of one."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import ray.data
from rank_kit import Left, Place
from training_kit import LocalStream, events, write_data

from trainers.notice import NoNotice
from trainers.reports import Outcome

ROOT = Path(__file__).resolve().parents[2]
PRELUDE = """
import ctypes, os, signal, threading
from trainers.notice import notice_of_this_process
"""


def ran(body: str) -> tuple[int, str]:
    """Exit status and output; the main thread ends up in C, where no Python handler runs."""
    code = PRELUDE + textwrap.dedent(body) + "\nctypes.CDLL(None).sleep(20)\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


@pytest.mark.parametrize("send", ["signal.pthread_kill(threading.get_ident(), 15)", "os.kill(os.getpid(), 15)"])
def test_the_thread_that_trains_knows_at_once_and_ends_by_the_signal(send: str) -> None:
    """The process's signal is blocked in the main thread, so that it comes to the one that asks."""
    status, out = ran(f"""
        notice = notice_of_this_process()
        notice.heeded = True
        def train():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [15])
            print(notice.arrived(), flush=True)
            {send}
            print(notice.arrived(), notice.arrived(), flush=True)
            notice.leave()
            print("still there", flush=True)
        thread = threading.Thread(target=train)
        signal.pthread_sigmask(signal.SIG_BLOCK, [15])
        thread.start()
    """)
    assert (status, out) == (-signal.SIGTERM, "False\nTrue True\n")


@pytest.mark.parametrize(("before", "end"), [("", -signal.SIGTERM), ("signal.signal(15, lambda *_: os._exit(7))", 7)])
def test_a_process_that_serves_no_group_ends_as_it_did_before(before: str, end: int) -> None:
    status, _ = ran(f"""
        {before}
        notice = notice_of_this_process()
        os.kill(os.getpid(), 15)
        os.getpid()
    """)
    assert status == end


def test_outside_the_main_thread_there_is_none() -> None:
    status, out = ran("""
        found = []
        thread = threading.Thread(target=lambda: found.append(notice_of_this_process()))
        thread.start()
        thread.join()
        print(type(found[0]).__name__, found[0].arrived(), flush=True)
        os._exit(0)
    """)
    assert (status, out) == (0, f"{NoNotice.__name__} False\n")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(ray.data, "read_datasource", LocalStream)
    return Place(tmp_path, write_data(tmp_path / "data"))


@pytest.mark.parametrize("point", ["microbatch.backward", "optimizer.after", "shard.half"])
def test_a_rank_that_is_given_notice_saves_at_the_next_boundary_and_leaves(place: Place, point: str) -> None:
    """At a point of step 3, of which no save is due: at first in the middle of it, then after its reduction, last in
    the background, where a save stands.
    """
    life = place.life(steps=6, save_every=2)

    def then(reached: str) -> None:
        if reached == point and (life.rank.step == 2 or point == "shard.half"):
            life.notice.came = True

    life.points.then = then
    assert life.prepare().ok
    assert life.notice.heeded
    with pytest.raises(Left):
        life.train()
    (noticed,) = events(life.history.path, "noticed")
    (leaving,) = events(life.history.path, "leaving")
    assert noticed["own"]
    assert noticed["step"] == leaving["step"] == place.published()[-1].step
    if point != "shard.half":
        assert leaving["step"] == (3 if point == "microbatch.backward" else 4)
    assert [e["step"] for e in events(life.history.path, "step")] == list(range(1, leaving["step"] + 1))


def test_a_rank_that_is_told_to_stop_leaves_too(place: Place) -> None:
    """Its attempt is over before a boundary came: nothing is left to save."""
    life = place.life()

    def then(reached: str) -> None:
        if reached == "microbatch.backward" and life.rank.step == 2:
            life.notice.came = True
            life.rank.interrupt(life.attempt)

    life.points.then = then
    life.prepare()
    with pytest.raises(Left):
        life.train()
    assert events(life.history.path, "interrupted")
    assert not events(life.history.path, "noticed")


def test_without_a_notice_nothing_is_saved_besides(place: Place) -> None:
    life = place.life(steps=5, save_every=2)
    life.prepare()
    assert life.train() == Outcome(True, 5)
    assert [publish.step for publish in place.published()] == [2, 4, 5]
    assert life.rank.rest()
    assert not life.notice.heeded
