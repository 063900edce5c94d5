"""What a restart is offered: the newest candidate if it is whole, a reason if it is not, patience if it is away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from storage_kit import CONFIG, OWNER, RUN, draft
from training_kit import flip, make_available, make_unavailable
from virtual_ray import VirtualRay

from storage.commit import commit_checkpoint
from storage.errors import Damaged, NoCandidate, NotThere, Unavailable
from storage.log import CommitLog, Publish
from storage.manifest import decode, ledger_path, manifest_path, shard_path
from storage.objects import LocalObjects
from storage.selection import candidates, decide
from trainers.choosing import propose, retried
from trainers.errors import GaveUp
from trainers.spec import Candidate


class Store:
    """A real store and log; every checkpoint in it is small and whole."""

    def __init__(self, folder: Path) -> None:
        self.objects = LocalObjects(folder / "store")
        self.log = CommitLog(self.objects, RUN)

    def attempt(self, number: int, parent: Publish | None, *steps: int) -> list[Publish]:
        """One life: fence, choose `parent`, publish a checkpoint at each of the steps."""
        assert self.log.fence(CONFIG, OWNER).attempt == number
        chosen = decide([parent], {parent.name: None}).candidates if parent else ()
        self.log.choose(number, parent.as_parent() if parent else None, chosen)
        return [commit_checkpoint(self.objects, self.log, draft(self.objects, step, number)) for step in steps]

    def choose(self, attempt: int) -> tuple[Candidate | None, dict[str, str]]:
        """What `attempt` is offered, and why each newer one is not, as the supervisor goes about it."""
        verdicts: dict[str, str | None] = {}
        found = candidates(self.log.read(), attempt)
        while (publish := decide(found, verdicts).examine) is not None:
            try:
                return propose(self.objects, publish), {name: why for name, why in verdicts.items() if why}
            except Damaged as error:
                verdicts[publish.name] = str(error)
        return None, {}

    def path(self, name: str) -> Path:
        return self.objects.path(name)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_the_newest_is_offered_with_the_manifest_that_the_log_names(store: Store) -> None:
    *_, newest = store.attempt(0, None, 2, 4)
    candidate, rejected = store.choose(1)
    assert candidate is not None
    assert (candidate.name, candidate.step, candidate.digest) == ("s00000004-a0000", 4, newest.digest)
    assert decode(candidate.manifest, "here")[1] == newest.digest
    assert rejected == {}


def test_with_nothing_published_nothing_is_offered(store: Store) -> None:
    store.attempt(0, None)
    assert store.choose(1) == (None, {})


NAME = "s00000004-a0000"


def _another_manifest(store: Store) -> None:
    """Well-formed and sealed, but not the one that was published."""
    source = store.path(manifest_path("s00000002-a0000"))
    store.path(manifest_path(NAME)).write_bytes(source.read_bytes())


DAMAGE: dict[str, tuple[Callable[[Store], object], str]] = {
    "manifest gone": (lambda s: s.path(manifest_path(NAME)).unlink(), f"manifests/{NAME}.json: does not exist"),
    "manifest changed": (lambda s: flip(s.path(manifest_path(NAME)), 40), f"manifests/{NAME}.json: "),
    "manifest of another": (_another_manifest, "the log published sha256:"),
    "ledger gone": (lambda s: s.path(ledger_path(NAME, 1)).unlink(), f"ledger/{NAME}-r0001.arrow: does not exist"),
    "ledger changed": (lambda s: flip(s.path(ledger_path(NAME, 0)), 99), f"ledger/{NAME}-r0000.arrow: has digest"),
    "ledger longer": (
        lambda s: s.path(ledger_path(NAME, 0)).open("ab").write(b"x"), f"ledger/{NAME}-r0000.arrow: has "
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_newest_is_passed_over_and_the_reason_names_the_file(store: Store, what: str) -> None:
    store.attempt(0, None, 2, 4)
    damage, words = DAMAGE[what]
    damage(store)
    candidate, rejected = store.choose(1)
    assert candidate is not None
    assert candidate.name == "s00000002-a0000"
    assert list(rejected) == [NAME]
    assert words in rejected[NAME]


def test_several_damaged_ones_are_passed_over_each_with_its_own_reason(store: Store) -> None:
    store.attempt(0, None, 2, 4, 6)
    store.path(manifest_path("s00000006-a0000")).unlink()
    store.path(ledger_path("s00000004-a0000", 0)).unlink()
    candidate, rejected = store.choose(1)
    assert candidate is not None
    assert candidate.step == 2
    assert [(name, why.partition("/")[0]) for name, why in rejected.items()] == [
        ("s00000006-a0000", "manifests"), ("s00000004-a0000", "ledger"),
    ]  # fmt: skip


def test_if_all_are_damaged_it_is_an_error_that_names_them_not_a_fresh_start(store: Store) -> None:
    store.attempt(0, None, 2, 4)
    for name in ("s00000002-a0000", NAME):
        store.path(manifest_path(name)).unlink()
    with pytest.raises(NoCandidate, match=r"s00000004-a0000: .*; s00000002-a0000: "):
        store.choose(1)


def test_shards_are_left_to_the_ranks(store: Store) -> None:
    """They are large, and every rank reads and verifies them anyway."""
    store.attempt(0, None, 2)
    store.path(shard_path("s00000002-a0000", 0)).unlink()
    candidate, _ = store.choose(1)
    assert candidate is not None


def test_another_branch_is_never_offered_even_if_it_is_newer_and_whole(store: Store) -> None:
    older, newer = store.attempt(0, None, 2, 4)
    store.attempt(1, older)  # the choice of attempt 1 left `newer` behind
    candidate, _ = store.choose(2)
    assert candidate is not None
    assert candidate.name == older.name
    store.path(manifest_path(older.name)).unlink()
    with pytest.raises(NoCandidate) as caught:
        store.choose(2)
    assert newer.name not in str(caught.value)


def test_what_was_never_published_is_never_offered(store: Store) -> None:
    store.attempt(0, None, 2)
    draft(store.objects, 4)  # its files lie there, written and whole
    candidate, _ = store.choose(1)
    assert candidate is not None
    assert candidate.step == 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualRay:
    made = VirtualRay()
    monkeypatch.setattr("trainers.choosing.time", made)
    return made


@pytest.mark.parametrize("path", [manifest_path(NAME), ledger_path(NAME, 1)])
def test_what_is_merely_away_is_waited_for(
    store: Store, clock: VirtualRay, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    *_, newest = store.attempt(0, None, 2, 4)
    kept = make_unavailable(store.path(path))
    with pytest.raises(Unavailable, match=path):
        propose(store.objects, newest)
    pause = clock.sleep

    def sleep(seconds: float) -> None:
        pause(seconds)
        if clock.now > 3 and store.path(path).is_symlink():
            make_available(store.path(path), kept)

    monkeypatch.setattr(clock, "sleep", sleep)
    assert retried(lambda: propose(store.objects, newest), 10.0).name == NAME
    assert 3 < clock.now < 6


def test_what_stays_away_stops_the_recovery_and_costs_no_work(store: Store, clock: VirtualRay) -> None:
    *_, newest = store.attempt(0, None, 2, 4)
    make_unavailable(store.path(manifest_path(NAME)))
    with pytest.raises(GaveUp, match=rf"unavailable for 10 s: manifests/{NAME}\.json"):
        retried(lambda: propose(store.objects, newest), 10.0)
    assert 6 < clock.now <= 10  # no earlier than the next try would have been too late


def test_it_is_tried_often_at_first_and_not_in_a_frenzy_later(clock: VirtualRay) -> None:
    tries: list[float] = []

    def read() -> None:
        tries.append(clock.now)
        raise Unavailable("x", "is away")

    with pytest.raises(GaveUp):
        retried(read, 60.0)
    assert tries[1] <= 0.1
    assert 20 < len(tries) < 60


def test_definite_damage_is_not_waited_for(store: Store, clock: VirtualRay) -> None:
    *_, newest = store.attempt(0, None, 2, 4)
    store.path(manifest_path(NAME)).unlink()
    with pytest.raises(NotThere):
        retried(lambda: propose(store.objects, newest), 10.0)
    assert clock.now == 0
