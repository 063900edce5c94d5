"""Invariant 4 between checkpoints: a part that one of them lacks, and counters that do not advance with the step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evidence_by_hand import checkpoint, chose, evidence, fence, manifest, published
from judging import Judge
from simulated_run import F0, F1, Edit, Settings, Simulation, killed_twice, loss, two_kills

from chaos.audit import audit_run
from chaos.audit.alike import differences, held, json_object
from chaos.audit.evidence import (
    Entry,
    Evidence,
    FileNamed,
    FileSeen,
    ManifestSeen,
    Publish,
    RankNamed,
    ShardSeen,
    TensorSeen,
)
from chaos.audit.facts import Head
from chaos.audit.formats import part_digest

LAST = 12


def on_last(change: Any, ranks: tuple[int, ...] = (0, 1)) -> Edit:
    """Changes the shards of the last checkpoint, everywhere alike, before they are digested and sealed."""

    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and thing["step"] == LAST and thing["rank"] in ranks:
            change(thing)

    return edit


def drop(prefix: str) -> Any:
    def change(thing: dict[str, Any]) -> None:
        for place in ("shared", "mine", "local"):
            for name in [name for name in thing[place] if name.startswith(prefix)]:
                del thing[place][name]

    return change


def put(place: str, name: str, value: Any) -> Any:
    """value: None for the one that is there, without its content."""

    def change(thing: dict[str, Any]) -> None:
        for where in ("shared", "mine") if place == "shared" else (place,):
            if name in thing[where]:
                thing[where][name] = value

    return change


def text(part: str, value: object) -> Any:
    return lambda thing: thing["texts"].update({part: json.dumps(value)})


def progress(**changes: Any) -> Any:
    return lambda thing: text("progress", {**json.loads(thing["texts"]["progress"]), **changes})(thing)


EMPTY = np.zeros(0, np.float32)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop("model/"), "s00000012-a0002: it holds no tensor of the model"),
        (drop("model/p1"), "tensor model/p1 is only in s00000002-a0000, not in both"),
        (put("shared", "model/p0", EMPTY), "tensor model/p0 is F32[0], in s00000010-a0002 it is F32[4]"),
        (put("shared", "model/p0", np.zeros(4)), "tensor model/p0 is F64[4], in s00000010-a0002 it is F32[4]"),
        (drop("optimizer/"), "tensor optimizer/p0/exp_avg is gone, s00000010-a0002 had it"),
        (put("shared", "optimizer/p0/exp_avg", np.zeros(2, np.float32)), "tensor optimizer/p0/exp_avg is F32[2]"),
        (drop("buffer/"), "tensor buffer/n of rank 0 is only in s00000002-a0000"),
        (drop("rng/"), "it holds no state of torch's generator of rank 0"),
        (text("scheduler", None), "part scheduler is empty here or in s00000002-a0000, and not in both"),
        (text("scaler", {"scale": 2}), "part scaler is empty here or in s00000002-a0000"),
        (text("optimizer", None), "part optimizer of rank 0 is empty"),
        (text("rng.numpy", None), "part rng.numpy of rank 0 is empty"),
        (text("rng.python", None), "part rng.python of rank 0 is empty"),
        (text("scheduler", {"last_epoch": 3}), "the scheduler of rank 0 has seen 3 steps at step 12, in"),
        (put("shared", "optimizer/p0/step", np.array(10, np.float32)),
         "optimizer/p0/step counts 10 updates, as in s00000010-a0002, but model/p0 was updated since"),
        (put("shared", "optimizer/p0/step", np.array(9, np.float32)), "counts 9 updates, -1 more than in"),
        (put("shared", "optimizer/p0/step", np.array(13, np.float32)), "counts 13 updates, 3 more than in"),
        (progress(samples_seen=88), "the progress of rank 0 has samples_seen 88, it must be 96"),
        (progress(loss_count=3), "has loss_count 3, it must be 12"),
        (progress(loss_tail=[]), "has a tail of 0 losses, it must be 12"),
        (progress(loss_tail=None), "has a tail of no losses"),
        (progress(loss_tail=[loss(step) for step in [*range(1, 9), 8, 10, 11, 12]]),
         f"has the loss {loss(8)} for step 9, the record {loss(9)}"),
        (progress(best_metric=loss(4)), f"best metric of rank 1 is {loss(4)} of step 12"),
        (progress(best_step=2), f"best metric of rank 1 is {loss(12)} of step 2"),
        (progress(updates=10, skipped=2), "has 2 skipped updates, the record 0"),
    ],
)  # fmt: skip
def test_the_last_checkpoint_lacks_what_others_have(tmp_path: Path, judged: Judge, change: Any, words: str) -> None:
    judged(two_kills(tmp_path / "run", on_last(change)).folder, 4, "invalid", "s00000012-a0002: ", words)


@pytest.mark.parametrize("part", ["scheduler", "scaler", "progress"])
def test_what_is_the_same_on_all_ranks(tmp_path: Path, judged: Judge, part: str) -> None:
    def change(thing: dict[str, Any]) -> None:
        thing["texts"][part] = json.dumps({**(json.loads(thing["texts"][part]) or {}), "more": 1})

    run = two_kills(tmp_path / "run", on_last(change, ranks=(1,)))
    judged(run.folder, 4, "invalid", f"s00000012-a0002: part {part} is not the same on all ranks")


def test_a_retired_checkpoint_is_compared_by_its_manifest(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "shard" and thing["step"] == 4:
            drop("model/p1")(thing)

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid", "s00000004-a0000: tensor model/p1 is only in")


def test_samples_that_a_step_recorded_are_those_of_its_number(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing.get("step"), thing.get("rank")) == ("step", 9, 1):
            thing["samples_seen"] = 64

    judged(two_kills(tmp_path / "run", edit).folder, 4, "invalid",
           "rank 1 of attempt 2 recorded 64 samples after step 9, which are 72")  # fmt: skip


# -- workloads that are right


def valid(tmp_path: Path, edit: Edit, **settings: Any) -> Simulation:
    """A run of two kills, whose live states after a restore follow what was saved."""

    class Following(Simulation):
        def state(self, step: int, rank: int) -> Any:
            _, shared, local, texts = super().state(step, rank)
            thing = {"shared": shared, "mine": {}, "local": local, "texts": texts, "step": step, "rank": rank}
            edit("state", thing)
            return self.parts(shared, local, texts), shared, local, texts

    sim = killed_twice(Following(tmp_path / "run", Settings(faults=[F0, F1], **settings)))
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid", verdict.invariants
    return sim


@pytest.mark.parametrize("keep", [2, 99])
def test_a_scheduler_may_begin_anywhere(tmp_path: Path, keep: int) -> None:
    valid(tmp_path, lambda kind, thing: text("scheduler", {"last_epoch": thing["step"] + 10})(thing), keep=keep)


@pytest.mark.parametrize("keep", [2, 99])
def test_a_parameter_may_be_frozen_at_first(tmp_path: Path, keep: int) -> None:
    """It is not updated before step 7, and the optimizer makes its state for it then."""

    def frozen(kind: str, thing: dict[str, Any]) -> None:
        updates = max(0, thing["step"] - 7)
        thing["shared"]["model/p0"] = np.full(4, updates, np.float32)
        thing["shared"]["optimizer/p0/step"] = np.array(updates, np.float32)
        if not updates:
            for key in ("step", "exp_avg"):
                thing["shared"].pop(f"optimizer/p0/{key}", None)

    valid(tmp_path, frozen, keep=keep)


def test_a_parameter_may_be_frozen_later(tmp_path: Path) -> None:
    def frozen(kind: str, thing: dict[str, Any]) -> None:
        updates = min(thing["step"], 5)
        thing["shared"]["model/p0"] = np.full(4, updates, np.float32)
        if updates:
            thing["shared"]["optimizer/p0/step"] = np.array(updates, np.float32)

    valid(tmp_path, frozen, keep=99)


def test_an_optimizer_may_begin_with_a_state(tmp_path: Path) -> None:
    def begun(kind: str, thing: dict[str, Any]) -> None:
        thing["shared"]["optimizer/p0/step"] = np.array(1000 + thing["step"], np.float32)

    valid(tmp_path, begun, keep=99)


def test_a_long_run_keeps_the_tail_of_its_losses_only(tmp_path: Path) -> None:
    sim = Simulation(tmp_path / "run", Settings(steps=300, save_every=100))
    sim.start()
    sim.train(300)
    sim.finish()
    assert audit_run(sim.folder).invariant(4).verdict == "valid"


def test_without_the_number_of_updates_their_counters_prove_nothing(tmp_path: Path, judged: Judge) -> None:
    def change(thing: dict[str, Any]) -> None:
        progress(updates=None)(thing)
        put("shared", "optimizer/p0/step", np.array(13, np.float32))(thing)

    witness = judged(two_kills(tmp_path / "run", on_last(change)).folder, 4, "invalid", "has None updates")
    assert "counts 13" not in witness


# -- one thing at a time, without files

NULL = part_digest("scheduler", {}, "null")


@dataclass
class Saved:
    """A right checkpoint of two ranks, to be changed. lost: ranks whose shard is not there."""

    number: int
    attempt: int = 0
    shared: dict[str, str] = field(default_factory=dict)
    own: list[dict[str, str]] = field(default_factory=list)
    parts: list[dict[str, str]] = field(default_factory=list)
    texts: list[dict[str, Any]] = field(default_factory=list)
    seen: list[dict[str, TensorSeen]] = field(default_factory=list)
    lost: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        n = self.number
        self.shared = {"model/p0": f"m{n}", "optimizer/p0/step": f"o{n}", "optimizer/p0/exp_avg": f"e{n}"}
        self.own = [{"rng/torch": f"r{n}", "buffer/n": f"b{n}"} for _ in range(2)]
        self.parts = [{"scheduler": f"s{n}", "scaler": NULL, "progress": f"p{n}"} for _ in range(2)]
        self.texts = [
            {"optimizer": {}, "scheduler": {"last_epoch": n}, "scaler": None, "progress": {"updates": n},
             "rng.python": [], "rng.numpy": []} for _ in range(2)
        ]  # fmt: skip
        self.seen = [{"model/p0": TensorSeen("F32", (4,), "", None)}, {"optimizer/p0/step": counter(n)}]

    @property
    def name(self) -> str:
        return self.publish.name

    @property
    def publish(self) -> Publish:
        return published(10 * self.attempt + self.number, self.attempt, self.number)

    def manifest_seen(self) -> ManifestSeen:
        ranks = [RankNamed(rank, self.parts[rank], own, Head("w", 1, "c")) for rank, own in enumerate(self.own)]
        files = [FileNamed(f"shards/{self.name}-{rank}", "shard", rank, 1, "") for rank in range(len(self.own))]
        body = manifest(self.publish, self.attempt, ranks=tuple(ranks), files=tuple(files),
                        tensors=self.shared, world=len(self.own))  # fmt: skip
        return ManifestSeen(f"manifests/{self.name}.json", body, self.publish.digest)

    def files(self) -> list[FileSeen]:
        found = []
        for rank, tensors in enumerate(self.seen):
            texts = {f"part.{part}": json.dumps(value) for part, value in self.texts[rank].items()}
            shard = None if rank in self.lost else ShardSeen(texts, tensors)
            found.append(FileSeen(f"shards/{self.name}-{rank}", 1, "", shard=shard))
        return found


def counter(value: float | None) -> TensorSeen:
    return TensorSeen("F32", (), "", value)


def holding(checkpoints: Sequence[Saved], entries: Sequence[Entry] | None = None) -> Evidence:
    """entries: by default all of one attempt, one after another."""
    line: list[Entry] = [fence(0, 0), *(each.publish for each in checkpoints)]
    files = [file for each in checkpoints for file in each.files()]
    return evidence(
        entries=line if entries is None else entries,
        manifests=[each.manifest_seen() for each in checkpoints],
        seen=files,
    )


def told(*checkpoints: Saved) -> list[str]:
    return list(differences(holding(checkpoints)))


def three() -> tuple[Saved, Saved, Saved]:
    """Of steps 2, 4 and 6."""
    return Saved(2), Saved(4), Saved(6)


FIRST, SECOND, LAST_OF_THREE = (each.name for each in three())


def test_right_checkpoints_have_everything_in_common() -> None:
    assert told() == []
    assert told(*three()) == []


@pytest.mark.parametrize("part", ["scheduler", "scaler", "progress"])
@pytest.mark.parametrize("other", [True, False])
def test_each_part_that_all_ranks_have_alike(part: str, other: bool) -> None:
    """other: a rank has it otherwise, or not at all."""
    first, second, last = three()
    for each in (first, second, last):
        each.parts = [{**own, part: "same"} for own in each.parts]
    second.parts[1] = (
        {**second.parts[1], part: "x"} if other else {k: v for k, v in second.parts[1].items() if k != part}
    )
    assert told(first, second, last) == [f"{second.name}: part {part} is not the same on all ranks"]


@pytest.mark.parametrize("part", ["scheduler", "scaler"])
def test_a_part_is_empty_in_all_checkpoints_or_in_none(part: str) -> None:
    def with_parts(*values: str) -> list[str]:
        checkpoints = three()
        for each, value in zip(checkpoints, values, strict=True):
            each.parts = [{**own, part: value} for own in each.parts]
        return told(*checkpoints)

    words = f"{{}}: part {part} is empty here or in {FIRST}, and not in both"
    assert with_parts("a", "b", "c") == with_parts(NULL, NULL, NULL) == []
    assert with_parts("a", NULL, "c") == [words.format(SECOND)]
    assert with_parts("a", "b", NULL) == [words.format(LAST_OF_THREE)]
    assert with_parts(NULL, NULL, "c") == [words.format(LAST_OF_THREE)]


@pytest.mark.parametrize("part", ["optimizer", "progress", "rng.python", "rng.numpy"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_part_that_is_never_empty(part: str, rank: int) -> None:
    first, second, last = three()
    last.texts[rank] = {**last.texts[rank], part: None}
    assert told(first, second, last) == [f"{last.name}: part {part} of rank {rank} is empty"]


def test_shared_tensors_are_the_same_but_the_optimizers() -> None:
    first, second, last = three()
    second.shared["best/p0"] = "x"
    last.shared = {**last.shared, "optimizer/p1/step": "x"}
    last.shared["best/p1"] = "x"
    assert told(first, second, last) == [
        f"{second.name}: tensor best/p0 is only in this one, not in both",
        f"{last.name}: tensor best/p1 is only in this one, not in both",
    ]


def test_the_first_three_shared_tensors_that_only_one_checkpoint_has() -> None:
    first, second, _ = three()
    first.shared |= {f"model/q{i}": "x" for i in range(2)}
    second.shared |= {f"best/q{i}": "x" for i in range(2)}
    assert told(first, second) == [
        f"{second.name}: tensor best/q0 is only in this one, not in both",
        f"{second.name}: tensor best/q1 is only in this one, not in both",
        f"{second.name}: tensor model/q0 is only in {first.name}, not in both",
    ]


def test_a_checkpoint_without_a_model() -> None:
    first, second, _ = three()
    del second.shared["model/p0"]
    assert told(first, second) == [
        f"{second.name}: it holds no tensor of the model",
        f"{second.name}: tensor model/p0 is only in {first.name}, not in both",
    ]


def test_each_ranks_own_tensors_but_what_belongs_to_an_unfinished_step() -> None:
    first, second, _ = three()
    second.own[1] |= {"gradient/p0": "x", "accumulation/sample_ids": "x", "buffer/m": "x"}
    del second.own[0]["buffer/n"]
    assert told(first, second) == [
        f"{second.name}: tensor buffer/n of rank 0 is only in {first.name}, not in both",
        f"{second.name}: tensor buffer/m of rank 1 is only in this one, not in both",
    ]


def test_the_first_three_tensors_of_a_rank_that_only_one_checkpoint_has() -> None:
    first, second, _ = three()
    second.own[1] |= {f"buffer/q{i}": "x" for i in range(5)}
    assert told(first, second) == [
        f"{second.name}: tensor buffer/q{i} of rank 1 is only in this one, not in both" for i in range(3)
    ]


def test_a_checkpoint_without_a_generators_state() -> None:
    first, second, _ = three()
    for each in (first, second):
        del each.own[1]["rng/torch"]
    words = "it holds no state of torch's generator of rank 1"
    assert told(first, second) == [f"{first.name}: {words}", f"{second.name}: {words}"]


def test_a_rank_that_the_first_checkpoint_has_not_is_compared_with_nothing() -> None:
    first, second, _ = three()
    second.own.append({"rng/torch": "x", "buffer/m": "x"})
    second.parts.append(second.parts[0])
    assert told(first, second) == []
    del second.own[2]["rng/torch"]
    assert told(first, second) == [f"{second.name}: it holds no state of torch's generator of rank 2"]


def test_type_and_shape_of_a_tensor_are_those_that_it_had_first() -> None:
    first, second, last = three()
    second.seen[0]["model/p0"] = replace(second.seen[0]["model/p0"], shape=(2, 2))
    last.seen[0]["model/p0"] = replace(last.seen[0]["model/p0"], dtype="F64")
    second.seen[1]["buffer/n"] = TensorSeen("I64", (3,), "", None)
    last.seen[1]["buffer/n"] = TensorSeen("I32", (2,), "", None)
    assert told(first, second, last) == [
        f"{second.name}: tensor model/p0 is F32[2, 2], in {first.name} it is F32[4]",
        f"{last.name}: tensor model/p0 is F64[4], in {first.name} it is F32[4]",
        f"{last.name}: tensor buffer/n is I32[2], in {second.name} it is I64[3]",
    ]


def test_what_is_counted_within_a_step_grows() -> None:
    first, second, _ = three()
    first.seen[0]["accumulation/sample_ids"] = TensorSeen("I64", (2,), "", None)
    second.seen[0]["accumulation/sample_ids"] = TensorSeen("I64", (6,), "", None)
    assert told(first, second) == []


def test_a_scheduler_takes_one_step_with_every_step() -> None:
    first, second, last = three()
    second.texts[1] = {**second.texts[1], "scheduler": {"last_epoch": 5}}
    last.texts[0] = {**last.texts[0], "scheduler": {"last_epoch": 4}}
    assert told(first, second, last) == [
        f"{second.name}: the scheduler of rank 1 has seen 5 steps at step 4, in {first.name} 2 at step 2",
        f"{last.name}: the scheduler of rank 0 has seen 4 steps at step 6, in {first.name} 2 at step 2",
    ]


def test_a_scheduler_may_begin_at_any_count_and_with_any_checkpoint() -> None:
    checkpoints = three()
    for each in checkpoints:
        for rank, texts in enumerate(each.texts):
            texts["scheduler"] = {"last_epoch": None if each.number == 2 or rank == 0 else each.number + 7}
    assert told(*checkpoints) == []
    checkpoints[2].texts[1]["scheduler"] = {"last_epoch": 14}
    assert told(*checkpoints) == [
        f"{LAST_OF_THREE}: the scheduler of rank 1 has seen 14 steps at step 6, in {SECOND} 11 at step 4"
    ]


def test_the_optimizer_keeps_what_it_has() -> None:
    first, second, last = three()
    first.shared |= {f"optimizer/q{i}/step": "x" for i in range(5)}
    del last.shared["optimizer/p0/exp_avg"]
    assert told(first, second, last) == [
        *(f"{second.name}: tensor optimizer/q{i}/step is gone, {first.name} had it" for i in range(3)),
        f"{last.name}: tensor optimizer/p0/exp_avg is gone, {second.name} had it",
    ]


# -- counters of updates


def counted(value: float | None, *, updates: object = 4, changed: bool = True, before: float | None = 2.0) -> list[str]:
    """What is told of the counter of the second of two checkpoints, of steps 2 and 4."""
    first, second, _ = three()
    first.seen[1]["optimizer/p0/step"], second.seen[1]["optimizer/p0/step"] = counter(before), counter(value)
    second.texts[0] = {**second.texts[0], "progress": {"updates": updates}}
    if not changed:
        second.shared["model/p0"] = first.shared["model/p0"]
    return told(first, second)


AT_MOST = f"{SECOND}: optimizer/p0/step counts {{}} updates, {{}} more than in {FIRST}, 2 updates before"
AT_LEAST = f"{SECOND}: optimizer/p0/step counts 2 updates, as in {FIRST}, but model/p0 was updated since"


@pytest.mark.parametrize("changed", [True, False])
def test_a_counter_advances_by_one_an_update_at_most(changed: bool) -> None:
    assert counted(3, changed=changed) == counted(4, changed=changed) == []
    assert counted(5, changed=changed) == [AT_MOST.format(5, 3)]
    assert counted(1, changed=changed) == [AT_MOST.format(1, -1)]


def test_a_counter_advances_where_its_parameter_changed() -> None:
    assert counted(2) == [AT_LEAST]
    assert counted(2, changed=False) == []


def test_a_counter_that_is_new_begins_at_nothing() -> None:
    assert counted(2, before=None) == []
    assert counted(3, before=None) == [AT_MOST.format(3, 3)]
    assert counted(None) == []


@pytest.mark.parametrize("updates", [None, 4.0, "4"])
def test_without_a_number_of_updates_nothing_is_counted(updates: object) -> None:
    assert counted(9, updates=updates) == []


@pytest.mark.parametrize("name", ["optimizer/p0/exp_avg", "buffer/step", "optimizer/step_size"])
def test_only_the_optimizers_counters_count(name: str) -> None:
    first, second, _ = three()
    for each, value in ((first, 1.0), (second, 99.0)):
        each.seen[1][name] = counter(value)
    assert told(first, second) == []


# -- which checkpoint one is compared with


def off_by(*checkpoints: Saved, value: float = 99) -> None:
    for each in checkpoints:
        each.seen[1]["optimizer/p0/step"] = counter(value)


def test_counters_are_compared_with_the_nearest_checkpoint_that_is_whole() -> None:
    first, second, last = three()
    off_by(last, value=7)
    second.lost = (0,)
    words = f"{last.name}: optimizer/p0/step counts 7 updates, 5 more than in {first.name}, 4 updates before"
    assert told(first, second, last) == [words]
    second.lost = ()
    words = f"{last.name}: optimizer/p0/step counts 7 updates, 3 more than in {second.name}, 2 updates before"
    assert told(first, second, last) == [words]
    first.lost = second.lost = (0, 1)
    assert told(first, second, last) == []


def test_counters_of_a_checkpoint_that_is_not_whole_are_not_compared() -> None:
    first, second, last = three()
    off_by(last)
    last.lost = (0,)
    assert told(first, second, last) == []


def test_a_tensor_that_is_gone_is_gone_from_the_nearest_whether_that_is_whole_or_not() -> None:
    first, second, last = three()
    second.lost = last.lost = (0, 1)
    del second.shared["optimizer/p0/exp_avg"], last.shared["optimizer/p0/exp_avg"]
    assert told(first, second, last) == [f"{second.name}: tensor optimizer/p0/exp_avg is gone, {first.name} had it"]


def test_what_an_attempt_did_not_start_from_is_not_before_it() -> None:
    first, second, _ = three()
    last = Saved(3, attempt=1)
    off_by(second, value=2.5)
    second.shared["optimizer/p1/step"] = "x"
    entries: list[Entry] = [fence(0, 0), first.publish, second.publish, fence(11, 1),
               chose(12, 1, first.publish), last.publish]  # fmt: skip
    assert list(differences(holding([first, second, last], entries))) == []
    off_by(last, value=9)
    assert list(differences(holding([first, second, last], entries))) == [
        f"{last.name}: optimizer/p0/step counts 9 updates, 7 more than in {first.name}, 1 updates before"
    ]


# -- what there is to compare


def test_a_checkpoint_without_its_manifest_is_left_out() -> None:
    checkpoints = three()
    run = holding(checkpoints)
    others = {name: seen for name, seen in run.store.manifests.items() if name != SECOND}
    odd = {**run.store.manifests, SECOND: replace(run.store.manifests[SECOND], digest="sha256:other")}
    for manifests in (others, odd):
        store = replace(run.store, manifests=manifests)
        assert [each.name for each in held(replace(run, store=store))] == [FIRST, LAST_OF_THREE]
        assert list(differences(replace(run, store=store))) == []


def test_shards_that_are_there_and_whole_are_held() -> None:
    first, second, _ = three()
    second.lost = (0,)
    run = holding([first, second])
    assert [sorted(each.shards) for each in held(run)] == [[0, 1], [1]]
    files = {path: file for path, file in run.store.files.items() if path != f"shards/{first.name}-1"}
    assert [sorted(each.shards) for each in held(replace(run, store=replace(run.store, files=files)))] == [[0], [1]]


def test_a_damaged_shard_is_not_held() -> None:
    """Only of a checkpoint whose manifest is right can be said which of its files are damaged."""
    name, every = (
        "s00000002-a0000",
        ("buffers", "scheduler", "scaler", "progress", "rng.python", "rng.numpy", "rng.torch"),
    )
    paths = [("shard", f"shards/{name}-r0000.safetensors"), ("ledger", f"ledger/{name}-r0000.arrow")]

    def shards(digest: str) -> list[int]:
        body = manifest(checkpoint(2, 0), world=1, parts={"model": "", "optimizer": ""}, files=tuple(
            FileNamed(path, kind, 0, 1, digest) for kind, path in paths
        ), ranks=(RankNamed(0, dict.fromkeys(every, ""), {}, Head("w", 1, "c")),))  # fmt: skip
        files = [
            FileSeen(path, 1, "right", shard=ShardSeen({}, {}) if kind == "shard" else None) for kind, path in paths
        ]
        entries: list[Entry] = [fence(0, 0), published(1, 0, 2)]
        seen = ManifestSeen(f"manifests/{name}.json", body, f"sha256:{name}")
        (found,) = held(evidence(entries=entries, manifests=[seen], seen=files))
        return sorted(found.shards)

    assert shards("right") == [0]
    assert shards("other") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [(None, {}), ("", {}), ("null", {}), ("[1]", {}), ("{", {}), ("[" * 100_000, {}), ('{"a": 1}', {"a": 1})],
)
def test_a_text_that_is_no_json_object_says_nothing(text: str | None, value: object) -> None:
    assert json_object(text) == value
