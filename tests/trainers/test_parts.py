"""Digests of parts, by the format's description and not by the code's own helpers."""

from __future__ import annotations

import xxhash

from trainers.parts import LOCAL, REPLICATED, is_replicated, part_digests


def _by_description(tensors: dict[str, str], text: str | None) -> str:
    hasher = xxhash.xxh3_128()
    for name in sorted(tensors):
        hasher.update(name.encode() + b"\0" + tensors[name].encode() + b"\n")
    if text is not None:
        hasher.update(b"json\0" + text.encode())
    return f"xxh3-128:{hasher.hexdigest()}"


def test_each_part_has_its_tensors_and_its_text() -> None:
    tensors = {"model/b": "d2", "model/a": "d1", "optimizer/a/m": "d3", "buffer/x": "d4", "rng/torch": "d5"}
    texts = {"optimizer": "{}", "scheduler": "null", "scaler": "null", "progress": "{1}"}
    texts |= {"rng.python": "p", "rng.numpy": "n"}
    digests = part_digests((*REPLICATED, *LOCAL), tensors, texts)
    assert digests == {
        "model": _by_description({"model/a": "d1", "model/b": "d2"}, None),
        "optimizer": _by_description({"optimizer/a/m": "d3"}, "{}"),
        "buffers": _by_description({"buffer/x": "d4"}, None),
        "scheduler": _by_description({}, "null"),
        "scaler": _by_description({}, "null"),
        "progress": _by_description({}, "{1}"),
        "rng.python": _by_description({}, "p"),
        "rng.numpy": _by_description({}, "n"),
        "rng.torch": _by_description({"rng/torch": "d5"}, None),
    }


def test_a_generator_on_a_gpu_is_a_part_only_where_there_is_one() -> None:
    assert part_digests(["rng.cuda"], {"rng/torch": "d"}, {}) == {}
    assert part_digests(["rng.cuda"], {"rng/cuda": "d"}, {}) == {"rng.cuda": _by_description({"rng/cuda": "d"}, None)}


def test_which_tensors_are_replicated() -> None:
    names = ("model/a", "optimizer/a/m", "buffer/a", "rng/torch", "modeling/a")
    assert [name for name in names if is_replicated(name)] == ["model/a", "optimizer/a/m"]
