"""The progress part of checkpoints (invariant 4) beside a slow walk along the lineage, in runs of a few updates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from evidence_by_hand import (
    Line,
    begun,
    checkpoint,
    chose,
    evidence,
    fence,
    manifest,
    note,
    published,
    recorded,
    shard,
    step,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit import progress as progress_module
from chaos.audit.evidence import Entry, Evidence, FileNamed, FileSeen, ManifestSeen, ShardSeen
from chaos.audit.progress import faults

BATCH = 8
Place = tuple[int, int]  # step, attempt


class Run:
    """Two ranks. Every update of each attempt and rank has a loss of its own, so that none is taken for another."""

    def __init__(self, tail: int = 256) -> None:
        self.tail = tail
        self.origins: list[Place | None] = []
        self.entries: list[Entry] = []
        self.steps: dict[tuple[int, int], list[tuple[int, str, bool]]] = {}  # by attempt and rank
        self.published: list[Place] = []
        self.changes: dict[tuple[Place, int], dict[str, Any]] = {}

    def begin(self, origin: Place | None = None) -> int:
        attempt = len(self.origins)
        self.origins.append(origin)
        parent = None if origin is None else checkpoint(*origin)
        self.entries.append(fence(len(self.entries), attempt))
        self.entries.append(chose(len(self.entries), attempt, parent, *([] if parent is None else [note(parent)])))
        for rank in (0, 1):
            self.steps[attempt, rank] = []
        return attempt

    def train(self, attempt: int, *numbers: int, skips: Iterable[int] = ()) -> None:
        for rank in (0, 1):
            self.steps[attempt, rank] += [(n, f"loss {n} of {attempt} on {rank}", n in skips) for n in numbers]

    def publish(self, attempt: int, *numbers: int) -> None:
        for number in numbers:
            self.entries.append(published(len(self.entries), attempt, number))
            self.published.append((number, attempt))

    def before(self, place: Place, rank: int) -> list[tuple[str, bool]]:
        """Loss and skipped of every update up to there, of a run whose record is whole."""
        step, attempt = place
        origin = self.origins[attempt]
        start, earlier = (0, []) if origin is None else (origin[0], self.before(origin, rank))
        return earlier + [(loss, skipped) for n, loss, skipped in self.steps[attempt, rank] if start < n <= step]

    def progress(self, place: Place, rank: int) -> dict[str, Any]:
        updates = self.before(place, rank)
        right = {"samples_seen": BATCH * place[0], "loss_count": place[0], "skipped": sum(s for _, s in updates),
                 "loss_tail": [loss for loss, _ in updates][-self.tail :]}  # fmt: skip
        return {**right, **self.changes.get((place, rank), {})}

    def evidence(self, named: bool = True, no_attempt: bool = False) -> Evidence:
        manifests, seen = {}, {}
        for place in self.published:
            ref = checkpoint(*place)
            paths = [shard(ref, rank) for rank in (0, 1)]
            files = tuple(FileNamed(path, "shard", rank, 0, "") for rank, path in enumerate(paths))
            made = manifest(ref, place[1], cursor=BATCH * place[0], files=files)
            manifests[ref.name] = ManifestSeen(f"manifests/{ref.name}.json", made, ref.digest)
            for rank, path in enumerate(paths):
                texts = {"part.progress": json.dumps(self.progress(place, rank))}
                seen[path] = FileSeen(path, 0, "", ShardSeen(texts, {}))
        files_of = []
        for rank in (0, 1):
            lines: list[Line] = [
                (None if no_attempt else attempt, step(rank, number, loss=loss, skipped=skipped))
                for attempt in range(len(self.origins))
                for number, loss, skipped in self.steps[attempt, rank]
            ]
            files_of.append(recorded("worker", rank + 1, *lines))
        return evidence(self.entries, files_of, (), manifests, begun() if named else None, seen=seen)

    def faults(self, **others: bool) -> list[str]:
        return list(faults(self.evidence(**others)))


def says(place: Place, rank: int, words: str) -> str:
    return f"{checkpoint(*place).name}: the progress of rank {rank} has {words}"


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Up to three attempts from nothing or from any earlier checkpoint; all but one may publish without an update."""
    run = Run(draw(st.integers(1, 4)))
    for least in (1, 0, 0)[: draw(st.integers(1, 3))]:
        origin = draw(st.sampled_from([None, *run.published]))
        attempt, start = run.begin(origin), 0 if origin is None else origin[0]
        end = start + draw(st.integers(least, 4))
        run.train(attempt, *range(start + 1, end + 1), skips=draw(st.sets(st.integers(start + 1, end + 1))))
        run.publish(attempt, *sorted(draw(st.sets(st.integers(start, end)))))
    return run


@settings(max_examples=50, deadline=None)
@given(runs(), st.data())
def test_a_checkpoint_holds_what_its_lineage_recorded(run: Run, data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress_module, "_TAIL", run.tail)
        assert run.faults() == []
        if run.published:
            place, rank = data.draw(st.sampled_from(run.published)), data.draw(st.integers(0, 1))
            right = run.progress(place, rank)
            for change, words in altered(right, place):
                run.changes = {(place, rank): change}
                assert run.faults() == [says(place, rank, words)]


def altered(right: dict[str, Any], place: Place) -> Iterator[tuple[dict[str, Any], str]]:
    """Changes of a progress, and what is said of each."""
    skipped, tail = right["skipped"], right["loss_tail"]
    for by in (1, -1):
        yield {"skipped": skipped + by}, f"{skipped + by} skipped updates, the record {skipped}"
        samples, count = right["samples_seen"] + by, place[0] + by
        yield {"samples_seen": samples}, f"samples_seen {samples}, it must be {right['samples_seen']}"
        yield {"loss_count": count}, f"loss_count {count}, it must be {place[0]}"
    yield {"loss_tail": ["x", *tail]}, f"a tail of {len(tail) + 1} losses, it must be {len(tail)}"
    for i, loss in enumerate(tail):
        step = place[0] - len(tail) + i + 1
        yield {"loss_tail": [*tail[:i], *["x"] * (len(tail) - i)]}, f"the loss x for step {step}, the record {loss}"


def test_a_tail_has_256_losses() -> None:
    run = Run()
    run.train(run.begin(), *range(1, 301))
    run.publish(0, 255, 256, 257, 300)
    assert run.faults() == []
    run.changes = {((300, 0), 1): {"loss_tail": run.progress((300, 0), 1)["loss_tail"][1:]}}
    assert run.faults() == [says((300, 0), 1, "a tail of 255 losses, it must be 256")]


@pytest.mark.parametrize("tail", [None, "xy", {"0": "x", "1": "y"}])
def test_a_tail_that_is_no_list(tail: Any) -> None:
    run = Run()
    run.train(run.begin(), 1, 2)
    run.publish(0, 2)
    run.changes = {((2, 0), 0): {"loss_tail": tail}}
    assert run.faults() == [says((2, 0), 0, "a tail of no losses, it must be 2")]


@pytest.mark.parametrize("own", [1, 2, 3])
def test_a_tail_reaches_into_earlier_attempts_as_far_as_it_lacks_losses(
    monkeypatch: pytest.MonkeyPatch, own: int
) -> None:
    """own: losses of the last of three attempts."""
    run = Run(tail=3)
    monkeypatch.setattr(progress_module, "_TAIL", run.tail)
    run.train(run.begin(), 1, 2, 3)
    run.publish(0, 3)
    run.train(run.begin((3, 0)), 4)
    run.publish(1, 4)
    run.train(run.begin((4, 1)), *range(5, 5 + own))
    place = 4 + own, 2
    run.publish(2, place[0])
    assert run.faults() == []
    right = run.progress(place, 0)["loss_tail"]
    assert len(right) == 3
    run.changes = {(place, 0): {"loss_tail": ["x", *right[1:]]}}
    assert run.faults() == [says(place, 0, f"the loss x for step {own + 2}, the record {right[0]}")]


def test_everything_that_is_wrong_is_told() -> None:
    run = Run()
    run.train(run.begin(), 1, 2)
    run.publish(0, 2)
    run.changes = {((2, 0), 1): {"loss_tail": ["x", "y"], "skipped": 7, "samples_seen": 0}}
    words = ("samples_seen 0, it must be 16", "7 skipped updates, the record 0",
             "the loss x for step 1, the record loss 1 of 0 on 1")  # fmt: skip
    assert run.faults() == [says((2, 0), 1, each) for each in words]


def test_a_step_without_a_record_ends_what_is_known() -> None:
    """In its attempt, and in all that come of it; what needs no record is judged all the same."""
    run = Run()
    run.train(run.begin(), 1, 2, 4, 5)
    run.publish(0, 2, 3, 4)
    run.train(run.begin((4, 0)), 5, 6)
    run.publish(1, 6)
    run.train(run.begin((6, 1)), 7)
    run.publish(2, 7)
    run.train(run.begin((2, 0)), 3)
    run.publish(3, 3)
    change = {"skipped": 9, "loss_count": 0}
    unknown = [(3, 0), (4, 0), (6, 1), (7, 2)]
    run.changes = {(place, 0): {**change, "loss_tail": ["x"] * place[0]} for place in unknown}
    run.changes |= {(place, 1): {"loss_tail": ["x"] * place[0]} for place in unknown}
    run.changes |= {((2, 0), 1): {"skipped": 1}, ((3, 3), 0): {"skipped": 1}}
    counts = [says(place, 0, f"loss_count 0, it must be {place[0]}") for place in unknown]
    words = "1 skipped updates, the record 0"
    assert run.faults() == [says((2, 0), 1, words), *counts, says((3, 3), 0, words)]


def test_a_checkpoint_of_a_step_before_its_attempt_began_is_not_known() -> None:
    run = Run()
    run.train(run.begin(), 1, 2, 3)
    run.publish(0, 3)
    run.train(run.begin((3, 0)), 4)
    run.publish(1, 2)
    run.changes = {((2, 1), rank): {"skipped": 5, "loss_tail": ["x", "y"]} for rank in (0, 1)}
    assert run.faults() == []


def test_updates_of_no_attempt_count_for_the_first() -> None:
    run = Run()
    run.train(run.begin(), 1, 2)
    run.publish(0, 2)
    run.changes = {((2, 0), 0): {"skipped": 1}}
    assert run.faults(no_attempt=True) == [says((2, 0), 0, "1 skipped updates, the record 0")]


def test_samples_that_an_update_came_after() -> None:
    lines: list[Line] = [
        (0, step(1, 1)),
        (0, step(1, 2, samples_seen=15)),
        (3, step(0, 3, samples_seen=25)),
    ]
    whole = evidence(files=[recorded("worker", 1, *lines)], begun=begun())
    assert list(faults(whole)) == [
        "rank 1 of attempt 0 recorded 15 samples after step 2, which are 16",
        "rank 0 of attempt 3 recorded 25 samples after step 3, which are 24",
    ]
    assert list(faults(evidence(files=[recorded("worker", 1, *lines)]))) == []
