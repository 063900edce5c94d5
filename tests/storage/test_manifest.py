from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from storage_kit import draft

from storage.errors import Damaged
from storage.history import Head
from storage.manifest import (
    FileRecord,
    Manifest,
    checkpoint_name,
    decode,
    encode,
    ledger_path,
    manifest_path,
    parse_checkpoint_name,
    shard_path,
)
from storage.objects import LocalObjects
from storage.sealed import seal, unseal


@pytest.fixture
def manifest(objects: LocalObjects) -> Manifest:
    return draft(objects, 7)


@pytest.fixture
def body(manifest: Manifest) -> dict[str, Any]:
    return unseal(encode(manifest)[0], "x")[0]


def test_roundtrip(manifest: Manifest) -> None:
    data, digest = encode(manifest)
    assert decode(data, "x") == (manifest, digest)
    assert unseal(data, "x")[1] == digest


def test_names() -> None:
    name = checkpoint_name(7, 0)
    assert name == "s00000007-a0000"
    assert manifest_path(name) == "manifests/s00000007-a0000.json"
    assert shard_path(name, 3) == "shards/s00000007-a0000-r0003.safetensors"
    assert ledger_path(name, 3) == "ledger/s00000007-a0000-r0003.arrow"
    for place in ((0, 0), (7, 3), (123456789, 12345)):
        assert parse_checkpoint_name(checkpoint_name(*place)) == (*place, 0)


def test_names_inside_a_step_sort_between_those_of_its_ends() -> None:
    assert checkpoint_name(7, 1, 3) == "s00000007-m0003-a0001"
    moments = [(7, 0), (7, 1), (7, 3), (7, 12), (8, 0), (8, 1), (10, 0)]
    names = [checkpoint_name(step, 0, microbatch) for step, microbatch in moments]
    assert sorted(names) == names
    assert [parse_checkpoint_name(name) for name in names] == [(step, 0, m) for step, m in moments]
    assert parse_checkpoint_name("s123456789-m12345-a12345") == (123456789, 12345, 12345)


@pytest.mark.parametrize(
    "name", ["s00000007-m0000-a0000", "s00000007-m3-a0000", "s00000007-a0000-m0003", "s00000007-m00003-a0000",
             "s00000007-m-a0000", "s00000007-m0003"]
)
def test_other_names_inside_a_step_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a checkpoint"):
        parse_checkpoint_name(name)


@pytest.mark.parametrize(
    "name", ["", "s7-a0", "s00000007-a0000 ", "s000000007-a0000", "s00000007-a00000", "x"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a checkpoint"):
        parse_checkpoint_name(name)


def test_files_are_found_by_kind_and_rank(manifest: Manifest) -> None:
    assert manifest.file("shard", 1).path == shard_path(manifest.name, 1)
    assert manifest.file("ledger", 0).path == ledger_path(manifest.name, 0)
    with pytest.raises(ValueError, match="world is 2"):
        manifest.file("shard", 2)


def test_every_flipped_bit_is_damaged(manifest: Manifest) -> None:
    data, _ = encode(manifest)
    for at in range(0, len(data), 3):
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        with pytest.raises(Damaged):
            decode(bytes(changed), "x")


def paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the values lie in nested JSON."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        return [path, *(place for key, item in inner for place in paths(item, (*path, key)))]
    return [path]


def changed_at(body: dict[str, Any], path: tuple[Any, ...], change: Any) -> dict[str, Any]:
    outer = copy.deepcopy({"root": body})
    at: Any = outer
    for key in ("root", *path)[:-1]:
        at = at[key]
    change(at, ("root", *path)[-1])
    return outer["root"]


def test_no_field_can_be_missing_or_of_another_type(body: dict[str, Any]) -> None:
    def wrong_type(at: Any, key: Any) -> None:
        at[key] = -1 if not isinstance(at[key], int) or at[key] == 0 else True

    optional = {("tensors", "model/w"), ("tensors", "optimizer/w/exp_avg")} | {
        ("ranks", rank, "tensors", "rng/torch") for rank in range(2)
    }
    for path in paths(body)[1:]:
        for change in (wrong_type, lambda at, key: at.__delitem__(key)):
            if path in optional and change is not wrong_type:
                continue  # which tensors a state has is the workload's affair
            with pytest.raises(Damaged, match=r"^x"):
                decode(seal(changed_at(body, path, change))[0], f"x at {path}")


def test_no_unknown_field_is_accepted(body: dict[str, Any]) -> None:
    def add(at: Any, key: Any) -> None:
        at[key]["surprise"] = 1

    for path in paths(body)[1:]:
        value: Any = body
        for key in path:
            value = value[key]
        if isinstance(value, dict):
            with pytest.raises(Damaged):
                decode(seal(changed_at(body, path, add))[0], "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: replace(m, name=checkpoint_name(8, 0)), "does not belong to step 7"),
        (lambda m: replace(m, attempt=1), "does not belong"),
        (lambda m: replace(m, world=3), "exactly 0 to 2"),
        (lambda m: replace(m, world=0, ranks=(), files=()), "ranks must be"),
        (lambda m: replace(m, ranks=m.ranks[::-1]), "in order"),
        (lambda m: replace(m, files=m.files[1:]), "r0000.safetensors"),
        (lambda m: replace(m, files=(*m.files, m.files[0])), "one shard"),
        (lambda m: replace(m, files=(replace(m.files[0], path="shards/x"), *m.files[1:])), "one shard"),
        (lambda m: replace(m, files=(replace(m.files[0], rank=1), *m.files[1:])), "one shard"),
        (lambda m: replace(m, files=(replace(m.files[0], digest=""), *m.files[1:])), "digest must be"),
        (lambda m: replace(m, parent="xxh3-128:0"), "parent must be"),
        (lambda m: replace(m, parts={"model": m.parts["model"]}), "parts must be"),
        (lambda m: replace(m, tensors={"w": m.parts["model"]}), "unknown name 'w'"),
        (lambda m: replace(m, tensors={"model/w": "sha256:0"}), "model/w must have a digest"),
        (lambda m: replace(m, run=""), "run must be text"),
        (lambda m: replace(m, ranks=(replace(m.ranks[0], parts={}), m.ranks[1])), "parts must be"),
        (lambda m: replace(m, ranks=(replace(m.ranks[0], history=Head("h", 1, "x")), m.ranks[1])), "chain"),
    ],
)
def test_an_incomplete_manifest_is_not_written(manifest: Manifest, change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(change(manifest))


def test_the_state_of_an_accelerator_generator_is_optional(manifest: Manifest) -> None:
    first = manifest.ranks[0]
    more = replace(first, parts={**first.parts, "rng.cuda": first.parts["rng.torch"]})
    changed = replace(manifest, ranks=(more, manifest.ranks[1]))
    assert decode(encode(changed)[0], "x")[0] == changed


def test_a_best_model_is_optional_and_whole(manifest: Manifest) -> None:
    digest, first = manifest.parts["model"], manifest.ranks[0]
    ranks = tuple(
        replace(record, parts={**record.parts, "best.buffers": digest},
                tensors={**record.tensors, "best_buffer/b": digest}) for record in manifest.ranks
    )  # fmt: skip
    with_best = replace(manifest, parts={**manifest.parts, "best": digest},
                        tensors={**manifest.tensors, "best/w": digest}, ranks=ranks)  # fmt: skip
    assert decode(encode(with_best)[0], "x")[0] == with_best
    for half in (replace(with_best, ranks=manifest.ranks), replace(with_best, parts=manifest.parts),
                 replace(with_best, ranks=(first, ranks[1]))):  # fmt: skip
        with pytest.raises(ValueError, match="only a part of the best model"):
            encode(half)


def test_a_file_record_of_another_kind_is_damaged(body: dict[str, Any]) -> None:
    body["files"][0]["kind"] = "pickle"
    with pytest.raises(Damaged, match="kind"):
        decode(seal(body)[0], "x")
    assert FileRecord("a", "shard", 0, 1, "d").kind == "shard"


def inside(manifest: Manifest, microbatch: int = 3) -> Manifest:
    """The same, after some microbatches of the step that follows."""
    name, digest = checkpoint_name(manifest.step, manifest.attempt, microbatch), manifest.parts["model"]
    more = {"gradients": digest, "accumulation": digest}
    tensors = {"gradient/w": digest, "accumulation/sample_ids": digest}
    return replace(
        manifest, name=name, microbatch=microbatch,
        files=tuple(replace(f, path=f.path.replace(manifest.name, name)) for f in manifest.files),
        ranks=tuple(replace(r, parts={**r.parts, **more}, tensors={**r.tensors, **tensors}) for r in manifest.ranks),
    )  # fmt: skip


def test_a_checkpoint_inside_a_step(manifest: Manifest) -> None:
    data, digest = encode(inside(manifest))
    assert decode(data, "x") == (inside(manifest), digest)
    assert unseal(data, "x")[0]["microbatch"] == 3


def test_at_a_boundary_nothing_is_said_of_microbatches(body: dict[str, Any]) -> None:
    assert "microbatch" not in body
    assert not {"gradients", "accumulation"} & body["ranks"][0]["parts"].keys()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: replace(m, microbatch=0), "unknown name 'gradient|parts must be"),
        (lambda m: replace(m, microbatch=2), "does not belong to step 7, microbatch 2,"),
        (lambda m: replace(m, name=checkpoint_name(7, 0)), "does not belong to step 7, microbatch 3,"),
        (lambda m: _without(m, "gradients"), "parts must be"),
        (lambda m: _without(m, "accumulation"), "parts must be"),
    ],
)
def test_an_incomplete_one_inside_a_step_is_not_written(manifest: Manifest, change: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(change(inside(manifest)))


def _without(manifest: Manifest, part: str) -> Manifest:
    first = manifest.ranks[0]
    parts = {name: digest for name, digest in first.parts.items() if name != part}
    return replace(manifest, ranks=(replace(first, parts=parts), *manifest.ranks[1:]))


@pytest.mark.parametrize("microbatch", [0, -1, "3", None, True, 1.5])
def test_a_wrong_number_of_microbatches_is_damaged(manifest: Manifest, microbatch: object) -> None:
    body = unseal(encode(inside(manifest))[0], "x")[0]
    with pytest.raises(Damaged, match="microbatch"):
        decode(seal({**body, "microbatch": microbatch})[0], "x")


def test_partial_gradients_have_no_place_at_a_boundary(manifest: Manifest) -> None:
    first = manifest.ranks[0]
    more = replace(first, tensors={**first.tensors, "gradient/w": manifest.parts["model"]})
    with pytest.raises(ValueError, match="unknown name 'gradient/w'"):
        encode(replace(manifest, ranks=(more, manifest.ranks[1])))
