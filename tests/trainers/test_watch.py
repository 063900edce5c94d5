"""Who is dead, stopped, hung, stalled or merely waiting, and when that is known; in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError
from virtual_ray import NEVER, Ref, VirtualRay, raised

from storage.history import History
from trainers.errors import Interrupted, StateError
from trainers.pool import Process
from trainers.reports import WAITS_FOR_INPUT, WARMS_UP, Heartbeat, Outcome
from trainers.watch import AttemptFailed, Watch, result_of

HANG_S = 10.0
POLL_S = 0.3  # how much later than it happened something may be noticed
Beats = Callable[[float], Heartbeat | Exception | None]


def beat(ticks: float, phase: str = "microbatch.forward", clock: int = 0) -> Heartbeat:
    return Heartbeat(int(ticks), phase, 3, 0.5, clock)


def training(now: float) -> Heartbeat:
    """Passes a point every 10 ms."""
    return beat(now * 100)


class Scene:
    """Two ranks and a committer. `beats` of a rank says what it answers at a time; None is silence."""

    def __init__(self, ray: VirtualRay, folder: Path) -> None:
        self.ray = ray
        self.history = History.open(folder, "supervisor", "r1")
        self.committer = Process(None, None, "committer", hold=Ref())
        self.ranks = [Process(self._actor(rank), rank, "rank", rank, hold=Ref()) for rank in (0, 1)]
        self.beats: list[Beats] = [training, training]
        self.stopped: dict[Process, float] = {}
        self.heard: list[tuple[int | None, int]] = []
        self.watch = Watch(
            self.ranks, self.committer, lambda p: self.stopped.get(p, NEVER) <= ray.now, self.history, HANG_S,
            lambda process, answer: self.heard.append((process.rank, answer.ticks)),
        )  # fmt: skip

    def _actor(self, rank: int) -> Any:
        def ping(clock: int) -> Ref:
            answer = self.beats[rank](self.ray.now)
            return Ref() if answer is None else Ref(self.ray.now, answer)

        method = type("Method", (), {"remote": staticmethod(ping)})
        return type("Actor", (), {"ping": method})

    def dies(self, process: Process, at: float) -> None:
        process.hold = Ref(at, ActorDiedError())

    def collect(self, *refs: Ref, deadline_s: float | None = None) -> dict[Process, Any]:
        return self.watch.collect(dict(zip(refs, self.ranks, strict=False)), deadline_s)

    def fails(self, *refs: Ref, deadline_s: float | None = None) -> list[tuple[str, str]]:
        """(who, how) of the lost."""
        with pytest.raises(AttemptFailed) as caught:
            self.collect(*refs, deadline_s=deadline_s)
        self.failure = caught.value
        return [(f"{lost.process.role} {lost.process.rank}", lost.how) for lost in self.failure.lost]


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    ray = VirtualRay()
    monkeypatch.setattr("trainers.watch.ray", ray)
    monkeypatch.setattr("trainers.watch.time", ray)
    return Scene(ray, tmp_path)


def test_results_come_back_by_process(scene: Scene) -> None:
    done = Outcome(True, 6)
    assert scene.collect(Ref(3.0, done), Ref(200.0, "other")) == {scene.ranks[0]: done, scene.ranks[1]: "other"}
    assert scene.ray.now == pytest.approx(200, abs=POLL_S)
    assert {rank for rank, _ticks in scene.heard} == {0, 1}


def test_a_heartbeats_clock_is_taken_in(scene: Scene) -> None:
    scene.beats[1] = lambda now: beat(now * 100, clock=1234)
    scene.collect(Ref(3.0), Ref(3.0))
    assert scene.history.clock >= 1234


@pytest.mark.parametrize("who", ["rank 0", "rank 1", "committer None"])
def test_a_death_shows_at_once_whatever_the_hang_deadline(scene: Scene, who: str) -> None:
    process = {"rank 0": scene.ranks[0], "rank 1": scene.ranks[1], "committer None": scene.committer}[who]
    scene.dies(process, 2.0)
    first, second = Ref(), Ref()
    assert scene.fails(first, second) == [(who, "actor_died")]
    assert scene.ray.now == pytest.approx(2, abs=POLL_S)
    assert set(scene.failure.pending) >= {ref for ref, p in zip((first, second), scene.ranks, strict=True)
                                          if p is not process}  # fmt: skip


def test_a_call_to_a_process_that_is_out_of_reach_counts_as_its_death(scene: Scene) -> None:
    assert scene.fails(Ref(), Ref(1.0, ActorUnavailableError("gone", None))) == [("rank 1", "actor_died")]
    assert list(scene.failure.pending.values()) == [scene.ranks[0]]


def test_what_a_call_raised_is_told_with_its_cause(scene: Scene) -> None:
    cause = StateError("does not fit")
    assert scene.fails(Ref(), Ref(1.0, raised(cause))) == [("rank 1", "raised")]
    (lost,) = scene.failure.lost
    assert lost.error is cause
    assert lost.detail == "StateError: does not fit"
    assert "rank 1 raised" in str(scene.failure)


@pytest.mark.parametrize("end", [Outcome(False, 2, "a peer was lost"), raised(Interrupted("a peer was lost"))])
def test_who_was_interrupted_is_not_the_one_that_is_lost(scene: Scene, end: object) -> None:
    scene.dies(scene.ranks[0], 1.2)  # shows a moment after its neighbour has noticed
    assert scene.fails(Ref(), Ref(1.0, end)) == [("rank 0", "actor_died")]


def test_a_stopped_peer_is_found_when_its_neighbour_was_interrupted(scene: Scene) -> None:
    scene.stopped[scene.ranks[0]] = 1.1
    assert scene.fails(Ref(), Ref(1.0, Outcome(False, 2))) == [("rank 0", "stopped")]


def test_an_interruption_without_a_death_ends_the_attempt_and_blames_nobody(scene: Scene) -> None:
    running = Ref()
    assert scene.fails(running, Ref(1.0, Outcome(False, 2))) == []
    assert scene.failure.pending == {running: scene.ranks[0]}
    assert scene.ray.now < 2.2


def test_a_committer_whose_death_the_ranks_know_of_first_is_the_one_that_is_lost(scene: Scene) -> None:
    """Both waited for what it had published last, and have returned before its death shows here."""
    scene.dies(scene.committer, 1.7)
    gone = Outcome(False, 2, "the committer is gone")
    assert scene.fails(Ref(1.0, gone), Ref(1.0, gone)) == [("committer None", "actor_died")]


@pytest.mark.parametrize("who", ["rank 1", "committer None"])
def test_a_stopped_process_is_found_by_its_state(scene: Scene, who: str) -> None:
    scene.stopped[scene.ranks[1] if who == "rank 1" else scene.committer] = 4.0
    assert scene.fails(Ref(), Ref()) == [(who, "stopped")]
    assert scene.ray.now == pytest.approx(4, abs=POLL_S)


def test_a_hang_shows_by_silence_after_the_deadline_and_not_before(scene: Scene) -> None:
    scene.beats[0] = lambda now: training(now) if now < 5 else None
    assert scene.fails(Ref(), Ref()) == [("rank 0", "stalled")]
    assert scene.failure.lost[0].detail == "does not answer"
    assert scene.ray.now == pytest.approx(5 + HANG_S, abs=2 * POLL_S)


def test_silence_that_ends_in_time_is_no_hang(scene: Scene) -> None:
    late = [Ref(5 + 0.9 * HANG_S, training(14))]
    answer = scene.ranks[0].actor.ping.remote
    scene.ranks[0].actor.ping.remote = staticmethod(
        lambda clock: late.pop() if scene.ray.now > 5 and late else answer(clock)
    )
    assert scene.collect(Ref(40.0, 1), Ref(40.0, 2)) == {scene.ranks[0]: 1, scene.ranks[1]: 2}
    assert not late


def test_a_live_lock_answers_and_passes_no_point(scene: Scene) -> None:
    scene.beats = [lambda now: beat(min(now, 5) * 100)] * 2
    assert scene.fails(Ref(), Ref()) == [("rank 0", "stalled"), ("rank 1", "stalled")]
    assert scene.failure.lost[0].detail == "passed no point since microbatch.forward"
    assert scene.ray.now == pytest.approx(5 + HANG_S, abs=2 * POLL_S)


def test_who_waits_for_the_others_is_not_suspected(scene: Scene) -> None:
    scene.beats = [lambda now: beat(7, "reduce.before"), lambda now: beat(6)]
    assert scene.fails(Ref(), Ref()) == [("rank 1", "stalled")]


def test_if_all_wait_for_the_others_all_are_suspected(scene: Scene) -> None:
    scene.beats = [lambda now: beat(7, "reduce.before")] * 2
    assert scene.fails(Ref(), Ref()) == [("rank 0", "stalled"), ("rank 1", "stalled")]


def test_one_that_moves_keeps_the_attempt_going(scene: Scene) -> None:
    scene.beats[0] = lambda now: beat(7, "reduce.before")
    assert scene.collect(Ref(100.0, 1), Ref(100.0, 2)) == {scene.ranks[0]: 1, scene.ranks[1]: 2}


def test_who_has_finished_is_not_expected_to_move(scene: Scene) -> None:
    scene.beats[0] = lambda now: beat(min(now, 1) * 100, "step.end")
    assert scene.collect(Ref(1.0, Outcome(True, 6)), Ref(100.0, Outcome(True, 6)))


@pytest.mark.parametrize("phase", [WAITS_FOR_INPUT, WARMS_UP])
def test_a_slow_input_or_start_is_no_hang_until_it_is_very_slow(scene: Scene, phase: str) -> None:
    scene.beats = [lambda now: beat(7, "reduce.before"), lambda now: beat(6, phase)]
    assert scene.fails(Ref(), Ref()) == [("rank 1", "stalled")]
    assert 3 * HANG_S < scene.ray.now < 10 * HANG_S


def test_every_wait_begins_with_fresh_patience(scene: Scene) -> None:
    scene.beats = [lambda now: beat(7, "idle")] * 2
    scene.collect(Ref(1.0), Ref(1.0))
    scene.ray.sleep(5 * HANG_S)  # nobody was asked in between
    assert scene.collect(Ref(scene.ray.now + 1, 1)) == {scene.ranks[0]: 1}


def test_a_deadline_names_those_that_missed_it(scene: Scene) -> None:
    assert scene.fails(Ref(1.0, "vote"), Ref(), deadline_s=5.0) == [("rank 1", "missed_deadline")]
    assert scene.ray.now == pytest.approx(5, abs=POLL_S)


def test_a_single_result_raises_its_own_error_or_says_who_is_gone(scene: Scene) -> None:
    process = scene.ranks[1]
    assert result_of(Ref(0.0, 7), process) == 7
    with pytest.raises(StateError, match="odd"):
        result_of(Ref(0.0, raised(StateError("odd"))), process)
    with pytest.raises(AttemptFailed, match="rank 1 actor died"):
        result_of(Ref(0.0, ActorDiedError()), process)
