"""A run from fence to target and back, with everything real but the cluster: the ranks are objects of this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray.data
import torch
from rank_kit import Points
from training_kit import LocalStream, events, flip, make_available, make_unavailable, training_spec, write_data
from virtual_ray import Died, LocalActor, VirtualRay

from storage.errors import Fenced, NoCandidate
from storage.history import History
from storage.log import Choose, CommitLog, Fence, Publish
from storage.manifest import ledger_path, manifest_path, shard_path
from storage.objects import LocalObjects
from storage.process import ProcessId
from trainers.committer import Committer
from trainers.errors import GaveUp, NonFinite
from trainers.events import Chosen, Event, Finished, Published
from trainers.points import KillPoints, NoPoints
from trainers.pool import Pool, Process, Trade
from trainers.rank import Rank
from trainers.reports import CommitterSetup, Heartbeat, Member, Outcome
from trainers.spec import TrainingSpec
from trainers.supervisor import Supervisor


class LocalWorker:
    """What a worker's process does, but for its threads."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank

    def __getattr__(self, method: str) -> Any:
        return getattr(self._rank, method)

    def ping(self, clock: int) -> Heartbeat:
        return Heartbeat(self._rank.ticks, self._rank.phase, self._rank.step, self._rank.loss, clock)

    def train(self, clock: int, committer: LocalActor) -> Outcome:
        return self._rank.train(clock, committer.instance.report)


class LocalGroup:
    """One rank and a committer; a lost process is replaced by a new object with a history of its own."""

    ray = VirtualRay()

    def __init__(
        self, spec: TrainingSpec, points: KillPoints, notify: object, history: History, *_settings: object
    ) -> None:
        self._spec, self._points, self._history = spec, points, history
        self._number = itertools.count()
        self.ranks: dict[int, Process] = {}
        self.committer: Process | None = None

    def _place(self) -> Path:
        return self._history.path.parent / str(next(self._number))

    def _process(self, instance: Any, role: str, rank: int | None) -> Process:
        actor = LocalActor(self.ray, instance)
        return Process(actor, rank, role, rank, hold=actor.hold_ref)

    def start(self) -> None:
        history = History.open(self._place(), "worker", self._spec.run)
        rank = Rank(self._spec, history, self._points)
        self.ranks[0] = self._process(LocalWorker(rank), "rank", 0)

    def start_committer(self) -> Process:
        place = self._place()
        place.mkdir(parents=True)
        (place / "store").symlink_to(self._spec.folder / "store")
        committer = Committer()
        committer.serve(CommitterSetup(self._spec.run, str(place), 1, 8, self._spec.keep), NoPoints())
        self.committer = self._process(committer, "committer", None)
        return self.committer

    def introduce(self, process: Process, role: str, rank: int | None, attempt: int) -> None:
        process.member = Member(ProcessId("here", 1, 1), "w.jsonl", "node", "l.jsonl")

    def replace_process(self, lost: Process) -> None:
        self.start()

    def is_stopped(self, process: Process) -> bool:
        return False

    def end(self, *_what: object) -> None: ...
    def confirm_exit(self, *_what: object) -> None: ...
    def refill(self) -> None: ...
    def close(self, trade: Trade | None = None) -> None: ...


class Run:
    """A run's folder; `life` is one supervisor's life over it, the first or a resumption."""

    def __init__(self, folder: Path, dataset: Path) -> None:
        self.folder, self.dataset = folder, dataset
        self.objects = LocalObjects(folder / "store")
        self.log = CommitLog(self.objects, "r1")
        self.lives = 0
        self.told: list[Event] = []

    def life(self, then: Callable[[str], None] | None = None, **changes: Any) -> None:
        """Trains to the target, or raises what the supervisor raises. `then` is called at the ranks' points."""
        self.lives += 1
        points = Points()
        points.then = then or points.then
        history = History.open(self.folder / f"life-{self.lives}", "supervisor", "r1")
        supervisor = Supervisor(
            training_spec(self.folder, self.dataset, **changes), points=points, notify=self.told.append,
            history=history, pool=Pool(),
        )  # fmt: skip
        supervisor.run()
        supervisor.close()

    def entries(self, kind: type[Any]) -> list[Any]:
        return [entry for entry in self.log.read() if isinstance(entry, kind)]

    def published(self) -> list[str]:
        return [entry.name for entry in self.entries(Publish)]

    def chosen(self) -> tuple[str | None, dict[str, str]]:
        """What the last attempt started from, and the reason for every rejection, as the log has it."""
        entry = self.entries(Choose)[-1]
        rejected = {c.name: c.reason for c in entry.candidates if c.status == "rejected"}
        return (entry.parent.name if entry.parent else None), rejected

    def path(self, name: str) -> Path:
        return self.objects.path(name)

    def trace(self) -> dict[int, tuple[Any, ...]]:
        """The last word on each step: samples, loss, gradient and state, bit for bit."""
        lines = [
            event for path in sorted(self.folder.glob("life-*/*/worker-*.jsonl"), key=lambda p: p.stat().st_mtime_ns)
            for event in events(path, "step")
        ]  # fmt: skip
        return {line["step"]: (line["ids"], line["loss"], line["gradient_norm"], line["state"]) for line in lines}


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ray.data, "read_datasource", LocalStream)
    monkeypatch.setattr("trainers.supervisor.Group", LocalGroup)
    monkeypatch.setattr("trainers.supervisor.end_predecessors", lambda *_what: None)
    monkeypatch.setattr("trainers.watch.ray", LocalGroup.ray)
    monkeypatch.setattr("trainers.watch.time", LocalGroup.ray)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("supervised") / "data")


@pytest.fixture
def run(tmp_path: Path, dataset: Path) -> Run:
    return Run(tmp_path / "run", dataset)


@pytest.fixture
def undisturbed(tmp_path: Path, dataset: Path) -> dict[int, tuple[Any, ...]]:
    """Eight steps without any interruption."""
    made = Run(tmp_path / "twin", dataset)
    made.life(steps=8)
    return made.trace()


def test_a_first_life_starts_from_nothing_and_says_so(run: Run) -> None:
    run.life()
    assert run.chosen() == (None, {})
    assert run.published() == ["s00000002-a0000", "s00000004-a0000", "s00000006-a0000"]
    assert [event.name for event in run.told if isinstance(event, Published)] == run.published()
    assert run.told[-1] == Finished(6)


DAMAGE: dict[str, tuple[Callable[[str], str], Callable[[Path], object], str]] = {
    "a shard changed, which the rank finds": (lambda name: shard_path(name, 0), flip, "has digest"),
    "a shard gone": (lambda name: shard_path(name, 0), Path.unlink, "does not exist"),
    "a manifest changed, which the supervisor finds": (manifest_path, lambda path: flip(path, 40), "manifests/"),
    "a ledger segment gone": (lambda name: ledger_path(name, 0), Path.unlink, "does not exist"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_newest_costs_its_own_steps_and_nothing_else(
    run: Run, undisturbed: dict[int, tuple[Any, ...]], what: str
) -> None:
    run.life()
    file, harm, words = DAMAGE[what]
    harm(run.path(file("s00000006-a0000")))
    run.life(steps=8)
    name, rejected = run.chosen()
    assert name == "s00000004-a0000"
    assert list(rejected) == ["s00000006-a0000"]
    assert words in rejected["s00000006-a0000"]
    assert run.told[-1] == Finished(8)
    (told,) = [event for event in run.told if isinstance(event, Chosen) and event.attempt == 1]
    assert (told.step, dict(told.rejected)) == (4, rejected)
    assert run.published()[-2:] == ["s00000006-a0001", "s00000008-a0001"]
    assert run.trace() == undisturbed


def test_two_damaged_ones_are_passed_over_each_with_its_reason(run: Run, undisturbed: dict[int, Any]) -> None:
    run.life()
    flip(run.path(shard_path("s00000006-a0000", 0)))
    run.path(shard_path("s00000004-a0000", 0)).unlink()
    run.life(steps=8)
    name, rejected = run.chosen()
    assert name == "s00000002-a0000"
    assert {key: value.partition(" ")[2][:8] for key, value in rejected.items()} == {
        "s00000006-a0000": "has dige", "s00000004-a0000": "does not",
    }  # fmt: skip
    assert run.trace() == undisturbed


@pytest.mark.parametrize("file", [manifest_path, lambda name: shard_path(name, 0)])
def test_an_unavailable_newest_stops_the_recovery_instead_of_costing_work(
    run: Run, undisturbed: dict[int, Any], file: Callable[[str], str]
) -> None:
    run.life()
    path = run.path(file("s00000006-a0000"))
    kept = make_unavailable(path)
    with pytest.raises(GaveUp, match="unavailable"):
        run.life(steps=8)
    assert [entry.attempt for entry in run.entries(Choose)] == [0]  # nothing was chosen in its stead
    make_available(path, kept)
    run.life(steps=8)
    assert run.chosen() == ("s00000006-a0000", {})
    assert run.trace() == undisturbed


def test_with_every_checkpoint_damaged_it_stops_and_never_starts_afresh(run: Run) -> None:
    run.life()
    for name in run.published():
        run.path(shard_path(name, 0)).unlink()
    with pytest.raises(NoCandidate, match=r"s00000006-a0000: .*s00000004-a0000: .*s00000002-a0000: "):
        run.life(steps=8)
    assert [entry.attempt for entry in run.entries(Choose)] == [0]
    assert len(run.published()) == 3


def test_a_branch_that_was_left_behind_never_returns(run: Run) -> None:
    """What attempt 1 passed over is repaired and verifies again; it belongs to another lineage all the same."""
    run.life()
    path = run.path(shard_path("s00000006-a0000", 0))
    kept = path.read_bytes()
    path.unlink()
    run.life(steps=5, save_every=9)
    assert run.chosen()[0] == "s00000004-a0000"
    path.write_bytes(kept)
    run.path(shard_path("s00000005-a0001", 0)).unlink()
    run.life(steps=8)
    name, rejected = run.chosen()
    assert name == "s00000004-a0000"
    assert list(rejected) == ["s00000005-a0001"]
    assert "s00000006-a0000" not in [c.name for c in run.entries(Choose)[-1].candidates]


@pytest.mark.parametrize(
    ("point", "hit"), [("microbatch.backward", 7), ("save.staged", 2), ("recover.restored", 1), ("step.end", 6)]
)
def test_a_death_costs_a_replacement_and_no_number(
    run: Run, undisturbed: dict[int, Any], point: str, hit: int
) -> None:
    count = itertools.count(1)

    def strike(passed: str) -> None:
        if passed == point and next(count) == hit:
            raise Died

    run.life(strike, steps=8)
    assert [entry.attempt for entry in run.entries(Fence)] == [0, 1]
    name, rejected = run.chosen()
    published = [entry for entry in run.entries(Publish) if entry.attempt == 0]
    assert (name, rejected) == (published[-1].name if published else None, {})
    assert run.trace() == undisturbed


def test_deaths_without_end_are_given_up(run: Run) -> None:
    def strike(point: str) -> None:
        if point == "reduce.after":
            raise Died

    with pytest.raises(GaveUp, match=r"after 3 attempts.*actor died"):
        run.life(strike)
    assert len(run.entries(Fence)) == 3


def test_an_error_that_would_come_again_is_raised_at_once(run: Run) -> None:
    def spoil(point: str) -> None:
        if point == "optimizer.before":
            raise NonFinite("the loss is nan")

    with pytest.raises(NonFinite):
        run.life(spoil)
    assert len(run.entries(Fence)) == 1


def die(point: str) -> None:
    raise Died


@pytest.mark.parametrize("end", [lambda point: None, die], ids=["its save is refused", "its rank is killed"])
def test_a_supervisor_that_another_one_has_fenced_off_stops(run: Run, end: Callable[[str], None]) -> None:
    """It neither publishes nor fences the other one in turn."""
    other = ProcessId("elsewhere", 5, 5)

    def take_over(point: str) -> None:
        if point == "step.begin" and len(run.entries(Fence)) == 1:
            run.log.fence("sha256:" + "c" * 64, other)
            end(point)

    with pytest.raises(Fenced, match="by attempt 1"):
        run.life(take_over)
    assert [entry.owner == other for entry in run.entries(Fence)] == [False, True]
    assert run.published() == []


def test_of_two_that_begin_at_once_the_later_one_goes_on(run: Run) -> None:
    """The other one's fence came after this one had begun and before its own: it is no later one."""
    other, count = ProcessId("elsewhere", 5, 5), itertools.count()

    def strike(point: str) -> None:
        if point == "recover.fence.before" and next(count) == 0:
            run.log.fence("sha256:" + "c" * 64, other)
        if point == "optimizer.after" and len(run.entries(Fence)) == 2:
            raise Died

    run.life(strike)
    assert [entry.owner == other for entry in run.entries(Fence)] == [True, False, False]
    assert run.told[-1] == Finished(6)
