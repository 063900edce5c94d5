"""A checkpoint inside a step, one thing of another moment at a time. Pure: shards, history and ledger as values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from evidence_by_hand import begun, chose, evidence, fence, manifest, published, said

from chaos.audit.events import Event, SaveDue
from chaos.audit.evidence import (
    Entry,
    Evidence,
    FileNamed,
    FileSeen,
    ManifestSeen,
    Moment,
    Publish,
    RankNamed,
    Segment,
    SegmentMeta,
    ShardSeen,
    TensorSeen,
)
from chaos.audit.facts import Head
from chaos.audit.formats import bulk_digest
from chaos.audit.partial import _json, _number, partial_faults, partial_unknown

NAME = "s00000004-m0003-a0000"
PUBLISH = published(9, 0, 4, 3)
RUN = begun(ranks=2, microbatches=4, global_batch=16)  # a microbatch of a rank is two samples
IDS = {0: [10, 11, 12, 13, 14, 15], 1: [20, 21, 22, 23, 24, 25]}
PARTS = {"gradients": "g", "accumulation": "a", "rng.torch": "r"}
MANIFEST = manifest(PUBLISH, ranks=tuple(RankNamed(rank, PARTS, {}, Head("worker", 1, "c")) for rank in (0, 1)))


def floating(value: float) -> dict[str, str]:
    """A number as state texts have it."""
    return {"~": "f", "v": value.hex()}


def tensor(shape: int = 4, dtype: str = "F32", digest: str = "t") -> TensorSeen:
    return TensorSeen(dtype, (shape,), digest, None)


def sample_ids(ids: list[int], **changes: Any) -> TensorSeen:
    return replace(tensor(len(ids), "I64", bulk_digest(np.array(ids, "<i8").data)), **changes)


def shard(rank: int, *, scaler: object = None, tensors: dict[str, TensorSeen | None] | None = None,
          **said: Any) -> ShardSeen:  # fmt: skip
    """A right one; tensors: None for one to leave out; said: of the accumulation."""
    right = {"step": 4, "microbatch": 3, "microbatches": 4, "samples": 6, "denominator": 16, "scale": None}
    accumulation = {**right, "loss_sum": floating(1.5), **said}
    there = {
        "accumulation/sample_ids": sample_ids(IDS[rank]), "gradient/p0": tensor(), "gradient/p1": tensor(2),
        f"model/p{rank}": tensor(4 - 2 * rank), **(tensors or {}),
    }  # fmt: skip
    texts = {"part.accumulation": json.dumps(accumulation), "part.scaler": json.dumps(scaler)}
    return ShardSeen(texts, {name: seen for name, seen in there.items() if seen is not None})


def segment(start: Moment, end: Moment, rows: list[tuple[int, int, int]], rank: int = 0) -> Segment:
    """rows: (update, microbatch, sample id), in order of position."""
    meta = SegmentMeta("r", 0, end[0], rank, start[0], end[0] if end[1] else end[0] - 1, start[1], end[1])
    update, microbatch, ids = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    count = np.arange(len(rows))
    return Segment(meta, count, ids, count.astype(np.uint64), update, microbatch.astype(np.int32))


def ledger(rank: int) -> Segment:
    """Of the checkpoint, from the boundary before it on."""
    return segment((3, 0), (4, 3), [(3, 0, 99), *((4, i // 2, each) for i, each in enumerate(IDS[rank]))], rank)


def file(name: str, held: Segment | None, rank: int = 0) -> FileSeen:
    return FileSeen(f"ledger/{name}-r{rank:04d}.arrow", 1, "d", segment=held)


ENTRIES: list[Entry] = [fence(0, 0), PUBLISH]
LEDGERS = [file(NAME, ledger(rank), rank) for rank in (0, 1)]


def seen(**known: Any) -> Evidence:
    return evidence(**{"begun": RUN, "entries": ENTRIES, "seen": LEDGERS, **known})


def faults(*shards: ShardSeen, of_run: Evidence | None = None, **changes: Any) -> list[str]:
    """changes: of the manifest."""
    run = seen() if of_run is None else of_run
    return list(partial_faults(run, PUBLISH, replace(MANIFEST, **changes), dict(enumerate(shards))))


def test_all_of_one_moment() -> None:
    assert faults(shard(0), shard(1)) == []
    assert faults(shard(0), shard(1), of_run=seen(begun=None, seen=[])) == []
    assert faults() == []


# -- what the accumulation says of itself


@pytest.mark.parametrize(
    ("key", "value", "right"),
    [("step", 5, 4), ("microbatch", 2, 3), ("microbatches", 2, 4), ("samples", 24, 6), ("denominator", 8, 16)],
)
def test_each_count_of_the_accumulation(key: str, value: Any, right: int) -> None:
    words = [f"the accumulation of rank 1 has {key} {value}, the checkpoint {right}"]
    wrong = shard(1, **{key: value})
    assert faults(shard(0), wrong) == words
    assert faults(shard(0), wrong, of_run=seen(begun=None)) == []


def test_ranks_are_told_in_their_order() -> None:
    shards = {1: shard(1, step=7), 0: shard(0, step=8)}
    assert list(partial_faults(seen(), PUBLISH, MANIFEST, shards)) == [
        "the accumulation of rank 0 has step 8, the checkpoint 4",
        "the accumulation of rank 1 has step 7, the checkpoint 4",
    ]


def test_a_step_has_more_microbatches_than_lie_before_the_checkpoint() -> None:
    as_many = seen(begun=begun(ranks=2, microbatches=3, global_batch=12))
    texts: dict[str, Any] = {"microbatches": 3, "denominator": 12}
    assert faults(shard(0, **texts), of_run=as_many) == ["it has 3 microbatches of a step that is of 3"]
    fewer = seen(begun=begun(ranks=2, microbatches=2, global_batch=8))
    texts = {"microbatches": 2, "denominator": 8}
    assert faults(shard(0, **texts), of_run=fewer) == ["it has 3 microbatches of a step that is of 2"]


@pytest.mark.parametrize("changes", [{"dtype": "I32"}, {"shape": (5,)}, {"shape": (6, 1)}])
def test_samples_are_named_one_by_one(changes: dict[str, Any]) -> None:
    odd = sample_ids(IDS[0], **changes)
    words = f"the accumulation of rank 0 names {odd.dtype}{list(odd.shape)} samples, not 6"
    assert faults(shard(0, tensors={"accumulation/sample_ids": odd})) == [words]


@pytest.mark.parametrize("value", [None, 1.5, {"~": "f"}])
def test_losses_have_a_sum(value: object) -> None:
    assert faults(shard(0), shard(1, loss_sum=value)) == ["the accumulation of rank 1 has no sum of its losses"]


def test_gradients_carry_the_scale_of_the_scaler() -> None:
    assert faults(shard(0, scale=floating(8.0), scaler={"scale": floating(8.0)})) == []
    words = "the partial gradients of rank 0 carry the scale {}, its gradient scaler has {}"
    for carried, now in ((8.0, 4.0), (None, 4.0), (8.0, None)):
        scale, scaler = (
            None if carried is None else floating(carried),
            None if now is None else {"scale": floating(now)},
        )
        assert faults(shard(0, scale=scale, scaler=scaler)) == [words.format(carried, now)]


# -- which parameters there are gradients of


def test_every_rank_has_the_same_gradients() -> None:
    lacking: dict[str, TensorSeen | None] = {"gradient/p1": None}
    words = "the shard of rank {} lacks gradient/p1, which another rank has"
    assert faults(shard(0, tensors=lacking), shard(1)) == [words.format(0)]
    assert faults(shard(0), shard(1, tensors=lacking)) == [words.format(1)]
    assert faults(shard(0, tensors=lacking), shard(1, tensors=lacking)) == []
    more = {f"gradient/q{i}": tensor() for i in range(4)}
    assert faults(shard(0), shard(1, tensors={**more})) == [
        "the shard of rank 0 lacks gradient/q0, gradient/q1 and gradient/q2, which another rank has"
    ]


def test_there_are_gradients_at_all() -> None:
    none: dict[str, TensorSeen | None] = {"gradient/p0": None, "gradient/p1": None}
    assert faults(shard(0, tensors=none)) == ["the shard of rank 0 has no partial gradients"]
    assert faults(shard(0), shard(1, tensors=none)) == [
        "the shard of rank 1 lacks gradient/p0 and gradient/p1, which another rank has",
        "the shard of rank 1 has no partial gradients",
    ]


def test_a_gradient_is_like_its_parameter_whichever_rank_keeps_that() -> None:
    assert faults(shard(0, tensors={"gradient/p1": tensor(3)}), shard(1)) == [
        "gradient/p1 of rank 0 is F32[3], its parameter F32[2]"
    ]
    assert faults(shard(0), shard(1, tensors={"gradient/p0": tensor(dtype="F64")})) == [
        "gradient/p0 of rank 1 is F64[4], its parameter F32[4]"
    ]
    assert faults(shard(0, tensors={"gradient/p1": tensor(3)})) == []  # the parameter is in a shard that is not whole


# -- samples beside the ledger

OTHERS = "the partial gradients of rank {} are not of the samples that the ledger says it had consumed"


def other_samples(rank: int) -> ShardSeen:
    return shard(rank, tensors={"accumulation/sample_ids": sample_ids(IDS[rank][::-1])})


def test_the_samples_are_those_of_the_ledger() -> None:
    assert faults(other_samples(0), shard(1)) == [OTHERS.format(0)]
    assert faults(shard(0), other_samples(1)) == [OTHERS.format(1)]
    assert faults(shard(0, tensors={"accumulation/sample_ids": None})) == [OTHERS.format(0)]


def test_the_samples_come_in_the_order_of_consumption() -> None:
    """Where the position of a later microbatch comes first."""
    rows = [(4, 2, 14), (4, 0, 10), (4, 1, 12), (4, 0, 11), (4, 2, 15), (4, 1, 13)]
    assert faults(shard(0), of_run=seen(seen=[file(NAME, segment((4, 0), (4, 3), rows))])) == []


A, B = "s00000004-m0001-a0000", "s00000004-m0002-a0000"
IN_THREE = {
    A: segment((3, 0), (4, 1), [(3, 0, 9), (4, 0, 10), (4, 0, 11)]),
    B: segment((4, 1), (4, 2), [(4, 1, 12), (4, 1, 13)]),
    NAME: segment((4, 2), (4, 3), [(4, 2, 14), (4, 2, 15)]),
}


def in_three(**changes: Segment | None) -> Evidence:
    """A ledger in three segments, one of them another one: those of a, b, c. None: a file that is no segment."""
    held = {name: changes.get(key, IN_THREE[name]) for key, name in (("a", A), ("b", B), ("c", NAME))}
    line = [Publish(1 + n, 0, name, f"sha256:{n}", 4) for n, name in enumerate((A, B))]
    return seen(entries=[ENTRIES[0], *line, PUBLISH], seen=[file(name, each) for name, each in held.items()])


def test_an_update_may_lie_in_several_segments() -> None:
    assert faults(shard(0), of_run=in_three()) == []
    assert faults(other_samples(0), of_run=in_three()) == [OTHERS.format(0)]
    others = segment((4, 1), (4, 2), [(4, 1, 13), (4, 1, 12)])
    assert faults(shard(0), of_run=in_three(b=others)) == [OTHERS.format(0)]


def test_the_update_may_begin_with_a_segment() -> None:
    assert faults(shard(0), of_run=in_three(a=segment((4, 0), (4, 1), [(4, 0, 10), (4, 0, 11)]))) == []
    before = [published(0, 0, 4)]  # of which there is no file
    run = in_three(a=segment((4, 0), (4, 1), [(4, 0, 10), (4, 0, 11)]))
    longer = [run.store.log.entries[0], *before, *run.store.log.entries[1:]]
    log = replace(run.store.log, entries=tuple(longer))
    assert faults(other_samples(0), of_run=replace(run, store=replace(run.store, log=log))) == [OTHERS.format(0)]


@pytest.mark.parametrize(
    "changes",
    [
        {"a": None},
        {"b": None},
        {"c": None},
        {"b": segment((4, 0), (4, 3), [])},
        {"c": segment((4, 1), (4, 3), [])},
        {"c": segment((4, 2), (5, 3), [])},
        {"c": segment((4, 2), (4, 2), [])},
        {"a": segment((4, 1), (4, 1), [])},
        {"a": segment((3, 0), (4, 2), [])},
    ],
)
def test_a_ledger_with_a_hole_proves_nothing(changes: dict[str, Segment | None]) -> None:
    assert faults(other_samples(0), of_run=in_three(**changes)) == []


def test_a_ledger_of_which_a_file_is_missing_proves_nothing() -> None:
    assert faults(other_samples(0), of_run=seen(seen=[])) == []
    assert faults(other_samples(0), other_samples(1), of_run=seen(seen=LEDGERS[1:])) == [OTHERS.format(1)]


def test_a_ledger_that_is_damaged_proves_nothing() -> None:
    """Its file has not the digest that its manifest names."""
    parts = {"model": "", "optimizer": ""}
    every = ("buffers", "scheduler", "scaler", "progress", "rng.python", "rng.numpy", "rng.torch", *PARTS)
    ranks = (RankNamed(0, dict.fromkeys(every, ""), {}, Head("worker", 1, "c")),)
    paths = [("shard", f"shards/{NAME}-r0000.safetensors"), ("ledger", f"ledger/{NAME}-r0000.arrow")]

    def holding(digest: str) -> Evidence:
        named = tuple(FileNamed(path, kind, 0, 1, digest) for kind, path in paths)
        held = replace(MANIFEST, world=1, parts=parts, ranks=ranks, files=named)
        return seen(seen=LEDGERS[:1], manifests=[ManifestSeen(f"manifests/{NAME}.json", held, PUBLISH.digest)])

    assert faults(other_samples(0), of_run=holding("other")) == []
    assert faults(other_samples(0), of_run=holding("d")) == [OTHERS.format(0)]


def test_what_descends_from_another_attempt() -> None:
    """The segment before is that of what the attempt chose."""
    first = published(1, 0, 4, 2)
    last = replace(PUBLISH, attempt=1)
    entries: list[Entry] = [ENTRIES[0], first, fence(2, 1), chose(3, 1, first), last]
    files = [
        file(B, segment((3, 0), (4, 2), [(3, 0, 9), *((4, i // 2, 10 + i) for i in range(4))])),
        file(NAME, IN_THREE[NAME]),
    ]
    run = seen(entries=entries, seen=files)
    assert list(partial_faults(run, last, MANIFEST, {0: shard(0)})) == []
    assert list(partial_faults(run, last, MANIFEST, {0: other_samples(0)})) == [OTHERS.format(0)]


# -- what the rank digested when the save fell due


def due(rank: int, parts: dict[str, str] | None, *, attempt: int = 0, number: int = 4, microbatch: int = 3) -> Any:
    return said(SaveDue(rank, number, microbatch, parts), attempt)


def digested(*events: Event[SaveDue]) -> list[str]:
    return faults(shard(0), shard(1), of_run=seen(events=events))


RIGHT = {"gradients": "g", "accumulation": "a"}
MOMENT = "not what the rank digested when the save fell due"


def test_partial_parts_are_those_that_were_digested() -> None:
    assert digested(due(0, RIGHT), due(1, RIGHT)) == []
    assert digested(due(0, RIGHT), due(1, {**RIGHT, "gradients": "x"})) == [
        f"gradients of rank 1 is of another moment: {MOMENT}"
    ]
    assert digested(due(0, {})) == [f"accumulation and gradients of rank 0 are of another moment: {MOMENT}"]
    assert digested(due(0, {**RIGHT, "rng.torch": "x"})) == []
    assert digested(due(0, None)) == []


@pytest.mark.parametrize("where", [{"attempt": 1}, {"number": 5}, {"microbatch": 2}, {"rank": 2}])
def test_what_was_digested_at_another_moment_is_not_compared(where: dict[str, Any]) -> None:
    event = due(**{"rank": 0, "parts": {}, **where})
    assert digested(event) == []
    unknown = list(partial_unknown(seen(events=[event]), MANIFEST))
    assert unknown == [UNKNOWN.format(rank) for rank in (0, 1)]


UNKNOWN = "the history of rank {} does not say what its partial gradients were"


def test_a_history_that_does_not_say_what_was_digested() -> None:
    def unknown(*events: Event[SaveDue], microbatch: int = 3) -> list[str]:
        return list(partial_unknown(seen(events=events), replace(MANIFEST, microbatch=microbatch)))

    assert unknown() == [UNKNOWN.format(0), UNKNOWN.format(1)]
    assert unknown(microbatch=0) == []
    assert unknown(due(0, RIGHT), due(1, RIGHT)) == []
    assert unknown(due(0, {}), due(1, RIGHT)) == []
    assert unknown(due(0, None), due(1, RIGHT)) == [UNKNOWN.format(0)]
    assert unknown(due(1, None), due(0, RIGHT)) == [UNKNOWN.format(1)]


# -- texts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, {}),
        ("", {}),
        ("null", {}),
        ("[1]", {}),
        ("{", {}),
        ("[" * 100_000, {}),
        ('{"scale": 1}', {"scale": 1}),
    ],
)
def test_a_part_that_is_no_json_object_says_nothing(text: str | None, value: object) -> None:
    assert _json(ShardSeen({} if text is None else {"part.x": text}, {}), "x") == value


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (floating(0.1), 0.1),
        (floating(0.0), 0.0),
        ({"~": "i", "v": "0x1p0"}, None),
        ({"v": "0x1p0"}, None),
        ({"~": "f"}, None),
        ({"~": "f", "v": 1.0}, None),
        ({"~": "f", "v": "one"}, None),
        ({"~": "f", "v": "0x1p9999"}, None),
        ("f", None),
        (1.0, None),
        (None, None),
    ],
)
def test_a_number_of_a_state_text(value: object, number: float | None) -> None:
    assert _number(value) == number
