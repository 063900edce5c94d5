"""One life of a rank after another, in this process: load and vote, restore and prove it, train, be interrupted."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray.data
import torch
from rank_kit import Life, Place
from training_kit import LocalStream, events, flip, make_unavailable, training_spec, write_data

from storage.errors import Fenced
from storage.history import History
from storage.manifest import shard_path
from storage.process import current_process
from trainers import reducer
from trainers.errors import FingerprintMismatch, Interrupted, NonFinite, StateError
from trainers.points import NoPoints
from trainers.rank import Rank
from trainers.reports import Outcome

DEADLINE_S = 20.0


@pytest.fixture(autouse=True)
def _threads_and_streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A rank sets its process's threads, and opens Ray Data's streams."""
    monkeypatch.setattr(ray.data, "read_datasource", LocalStream)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("rank") / "data")


@pytest.fixture
def place(tmp_path: Path, dataset: Path) -> Place:
    return Place(tmp_path, dataset)


def trace(life: Life) -> dict[int, tuple[Any, ...]]:
    """What each step was, bit for bit: samples, loss, rate, and every part of the state after it."""
    return {
        event["step"]: (event["ids"], event["loss"], event["lr"], event["gradient_norm"], event["state"])
        for event in events(life.history.path, "step")
    }


def trained(place: Place, **changes: Any) -> Life:
    life = place.life(**changes)
    assert life.prepare().ok
    assert life.train() == Outcome(True, life.spec.steps)
    return life


def test_a_start_from_nothing_reaches_the_last_step(place: Place) -> None:
    life = trained(place)
    assert [entry.step for entry in place.published()] == [2, 4, 6]
    assert (life.rank.step, life.rank.ticks > 50) == (6, True)
    (restored,) = events(life.history.path, "restored")
    assert (restored["step"], restored["cursor"], restored["name"]) == (0, 0, None)
    assert [event["step"] for event in events(life.history.path, "ended")] == [6]


@pytest.mark.parametrize("index", [0, 1])
def test_after_a_restore_it_goes_on_as_if_nothing_had_happened(place: Place, index: int) -> None:
    first = trained(place)
    publish = place.published()[index]
    second = place.life()
    vote = second.prepare(publish)
    assert vote.ok
    assert vote.bytes == place.objects.size(shard_path(publish.name, 0))
    assert second.train() == Outcome(True, 6)
    before, after = trace(first), trace(second)
    assert sorted(after) == list(range(publish.step + 1, 7))
    assert after == {step: before[step] for step in after}
    (restored,) = events(second.history.path, "restored")
    assert (restored["name"], restored["digest"]) == (publish.name, publish.digest)
    assert restored["cursor"] == 8 * publish.step
    assert events(second.history.path, "loaded")[0]["ok"]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


@pytest.mark.parametrize(
    ("harm", "damaged", "words"),
    [
        (flip, True, "has digest"), (Path.unlink, True, "does not exist"), (_cut, True, "bytes, the manifest says"),
        (make_unavailable, False, "This may pass"),
    ],
)  # fmt: skip
def test_the_vote_on_a_candidate_that_cannot_be_loaded(
    place: Place, harm: Callable[[Path], object], damaged: bool, words: str
) -> None:
    trained(place)
    older, newest = place.published()[-2:]
    harm(place.objects.path(shard_path(newest.name, 0)))
    life = place.life()
    vote = life.prepare(newest)
    assert (vote.ok, vote.damaged) == (False, damaged)
    assert vote.reason.startswith(shard_path(newest.name, 0))
    assert words in vote.reason
    (loaded,) = events(life.history.path, "loaded")
    assert (loaded["name"], loaded["ok"], loaded["reason"]) == (newest.name, False, vote.reason)
    # The same rank, in the same group, takes the next one that is proposed.
    assert life.rank.load(place.candidate(older)).ok
    assert life.rank.train(100, lambda report: None) == Outcome(True, 6)
    (restored,) = events(life.history.path, "restored")
    assert restored["name"] == older.name
    assert min(trace(life)) == older.step + 1


@pytest.mark.parametrize("what", ["dataset", "plan", "config", "code"])
def test_a_checkpoint_of_something_else_is_an_error_not_a_rejection(place: Place, what: str) -> None:
    trained(place)
    life = place.life()
    with pytest.raises(FingerprintMismatch, match=f"written for another {what} .*start a new run"):
        life.prepare(place.published()[-1], **{what: "sha256:" + "0" * 64})


def test_a_workload_that_does_not_take_its_state_back_is_found_before_the_first_step(
    place: Place, dataset: Path
) -> None:
    forgetful = {"dataset": str(dataset), "forgetful": True}
    trained(place, workload_config=forgetful)
    life = place.life(workload_config=forgetful)
    life.prepare(place.published()[0])
    with pytest.raises(StateError, match=r"after restoring s00000002-a0001 the live scheduler differ"):
        life.train()
    assert trace(life) == {}


def test_an_interrupted_rank_stops_at_its_next_point(place: Place) -> None:
    life = place.life()
    life.prepare()

    def strike(point: str) -> None:
        if point == "microbatch.forward" and life.points.passed.count(point) == 7:
            life.rank.interrupt(life.attempt - 1)  # an attempt that is over: not meant for this one
        if point == "microbatch.backward" and life.points.passed.count(point) == 9:
            life.rank.interrupt(life.attempt)

    life.points.then = strike
    outcome = life.train()
    assert (outcome.finished, outcome.step) == (False, 4)
    assert "the supervisor ended the attempt at" in outcome.reason
    assert life.points.passed.count("microbatch.backward") == 9
    (event,) = events(life.history.path, "interrupted")
    assert (event["step"], event["phase"]) == (4, outcome.reason.rpartition(" ")[2])
    # The same process is used again, and nothing of the old attempt is.
    life.points.then = lambda point: None
    life.attempt = -1
    publish = place.published()[-1]
    assert life.prepare(publish).ok
    assert life.train() == Outcome(True, 6)
    assert trace(life)[6] == trace(trained(Place(place.folder / "other", place.dataset)))[6]


def test_who_joins_is_not_where_the_last_attempt_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that hangs there after a death in the reduction would be taken for one that waits for the others."""
    life = place.life()
    life.prepare()
    life.train()
    phases: list[str] = []
    for place_of, name in ((life.rank, "_start_pipeline"), (reducer, "join_group")):
        monkeypatch.setattr(place_of, name, lambda *_: phases.append(life.rank.phase))
    life.attempt = -1
    life.prepare(place.published()[-1])
    assert phases[:2] == ["preparing", "recover.joining"]


def test_who_waits_for_data_is_interrupted_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    class Slow(LocalStream):
        def iter_batches(self, **settings: Any) -> Iterator[Any]:
            go_on.wait(DEADLINE_S)
            yield from ()

    monkeypatch.setattr(ray.data, "read_datasource", Slow)
    life = place.life(steps=12)  # the first eight the rank reads itself
    life.prepare()
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(life.train()))
    thread.start()
    while not (life.rank.waits_for_input and life.rank.step == 8) and thread.is_alive():
        thread.join(0.005)
    assert outcomes == []
    life.rank.interrupt(life.attempt)
    thread.join(DEADLINE_S)
    go_on.set()
    assert [(outcome.finished, outcome.step) for outcome in outcomes] == [(False, 8)]
    assert not life.rank.waits_for_input


def test_a_committer_that_says_the_attempt_is_over_ends_it_in_order(place: Place) -> None:
    life = place.life()
    life.prepare()

    def report(_report: object) -> None:
        raise Interrupted("the committer is gone")

    outcome = life.rank.train(100, report)
    assert (outcome.finished, outcome.reason) == (False, "the committer is gone")
    assert outcome.step == 4  # it shows at the next boundary


def test_a_fence_ends_it_with_the_error_that_says_so(place: Place) -> None:
    life = place.life()
    life.prepare()
    place.log.fence(life.spec.config_digest, current_process())
    with pytest.raises(Fenced):
        life.train()
    assert place.published() == []


def test_without_a_place_there_is_nothing_to_train(place: Place) -> None:
    life = place.life()
    with pytest.raises(StateError, match=r"prepare\(\) comes first"):
        life.rank.train(0, lambda report: None)
    life.rank.interrupt(0)  # harmless


def test_warming_up_changes_no_number(place: Place, dataset: Path) -> None:
    """A standby that has warmed up trains like one that has not."""
    cold = trained(place)
    other = Place(place.folder / "warm", dataset)
    life = other.life()
    life.rank.warm()
    assert life.points.passed == ["standby.warm"]
    assert events(life.history.path, "step") == []
    life.prepare()
    life.train()
    assert trace(life) == trace(cold)


def test_survey_names_what_a_checkpoint_depends_on(tmp_path: Path, dataset: Path) -> None:
    history = History.open(tmp_path, "worker", "r1")
    spec = training_spec(tmp_path, dataset)
    first = Rank(spec, history, NoPoints()).survey()
    again = Rank(spec, history, NoPoints()).survey()
    seeded = Rank(training_spec(tmp_path, dataset, seed=8), history, NoPoints()).survey()
    other = Rank(training_spec(tmp_path, write_data(tmp_path / "d" / "x"), seed=7), history, NoPoints()).survey()
    assert first == again
    assert first.fingerprints.dataset == other.fingerprints.dataset  # by content, wherever it lies
    assert first.fingerprints.plan != seeded.fingerprints.plan
    assert first.fingerprints.config == spec.config_digest
    assert first.fingerprints.code.startswith("sha256:")


def test_the_rendezvous_can_be_reached(place: Place) -> None:
    life = place.life()
    for attempt in (1, 2):
        host, port = life.rank.open_store(attempt)
        socket.create_connection((host, port), DEADLINE_S).close()


def test_who_waits_for_others_to_join_is_interrupted_there(place: Place) -> None:
    """Which is told by torch, as of a peer that is lost: the deadline is a minute away."""
    life = place.life()
    rank = Rank(dataclasses.replace(life.spec, ranks=2), life.history, NoPoints())
    host, port = rank.open_store(3)
    rank.interrupt(2)  # of the attempt before: it came late
    told: list[str] = []

    def join() -> None:
        try:
            reducer.join_group(3, 0, 2, host, port, 60.0)
        except Interrupted as error:
            told.append(str(error))

    waits = threading.Thread(target=join)
    waits.start()
    waits.join(1.0)
    assert waits.is_alive()
    rank.interrupt(3)
    waits.join(DEADLINE_S)
    assert not waits.is_alive()
    assert "could not join the group of attempt 3" in told[0]


def test_an_error_of_the_workload_leaves_what_was_published(place: Place) -> None:
    life = place.life(save_every=1)
    life.prepare()

    def spoil(point: str) -> None:
        if point == "step.begin" and life.rank.step == 3:
            raise NonFinite("the loss of step 3 is nan")

    life.points.then = spoil
    with pytest.raises(NonFinite):
        life.train()
    # The save of step 3 was still in flight; that of step 2 had to be published before it could begin.
    assert [entry.step for entry in place.published()][:2] == [1, 2]
    second = place.life()
    assert second.prepare(place.published()[1]).ok
    assert second.train() == Outcome(True, 6)
