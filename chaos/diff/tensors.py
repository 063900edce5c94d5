"""Two checkpoints → which tensors and which texts differ, and by how much. NumPy only: nothing that is read executes.

Bytes decide what is equal. Of a checkpoint whose shards were retired only the digests are left: then it is known which
tensors differ, not by how much.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from chaos.diff.differences import Difference, relative
from chaos.diff.parts import part_of
from storage.errors import Unavailable
from storage.manifest import Manifest, decode, manifest_path
from storage.objects import LocalObjects
from storage.shard import TensorView, parse_shard, read_verified
from trainers.parts import LOCAL, REPLICATED

_TYPES = {
    "F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "<u1",
    "U16": "<u2", "U32": "<u4", "U64": "<u8", "C64": "<c8", "BOOL": "<u1",
}  # fmt: skip

_HEX_FLOAT = re.compile(r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+|-?inf|nan")

Key = tuple[int | None, str]
"""(rank, or None for what all ranks share; name)."""


@dataclass(frozen=True)
class Checkpoint:
    """digests: of every tensor; parts: of every part. tensors and texts are empty if the shards are gone (`whole`)."""

    label: str
    manifest: Manifest
    digests: Mapping[Key, str]
    parts: Mapping[Key, str]
    tensors: Mapping[Key, TensorView]
    texts: Mapping[Key, str]
    whole: bool


@dataclass(frozen=True)
class PartDifference:
    """One part that differs. rank: None if all ranks share it. items: its tensors or fields that differ; first
    those without a magnitude, then the largest.
    """

    part: str
    rank: int | None
    items: tuple[Difference, ...]


def load(store: Path, name: str) -> Checkpoint:
    """Raises Damaged, Unavailable. Shards are verified against the manifest; if one is missing none is used."""
    objects = LocalObjects(store)
    manifest, _digest = decode(objects.read(manifest_path(name)), f"{store / manifest_path(name)}")
    digests: dict[Key, str] = {(None, name): digest for name, digest in manifest.tensors.items()}
    parts: dict[Key, str] = {(None, name): digest for name, digest in manifest.parts.items()}
    for record in manifest.ranks:
        digests |= {(record.rank, name): digest for name, digest in record.tensors.items()}
        parts |= {(record.rank, name): digest for name, digest in record.parts.items()}
    shards = [file for file in manifest.files if file.kind == "shard"]
    whole = all((store / file.path).exists() for file in shards)
    tensors: dict[Key, TensorView] = {}
    texts: dict[Key, str] = {}
    for file in shards if whole else ():
        shard = parse_shard(read_verified(objects, file), file.path)
        for tensor, view in shard.tensors.items():
            tensors[(None if tensor in manifest.tensors else file.rank), tensor] = view
        for key, text in shard.metadata.items():
            part = key.removeprefix("part.")
            if part != key:
                texts[(None if part in manifest.parts else file.rank), part] = text
    return Checkpoint(f"{store.parent}:{name}", manifest, digests, parts, tensors, texts, whole)


def names(store: Path) -> tuple[str, ...]:
    """Of all manifests in the store. Raises Unavailable."""
    try:
        return tuple(sorted(path.stem for path in (store / "manifests").iterdir() if path.suffix == ".json"))
    except OSError as error:
        raise Unavailable(str(store / "manifests"), f"cannot be listed: {error.strerror}") from error


def _part_of(tensor: str) -> str:
    """`rng.torch` for `rng/torch`, `buffers` for `buffer/mean`."""
    return tensor.replace("/", ".") if tensor.startswith("rng/") else part_of(tensor)


def part_differences(a: Checkpoint, b: Checkpoint) -> tuple[PartDifference, ...]:
    """Parts in the order model, optimizer, then rank by rank; equal ones are left out."""
    of_tensors = {(rank, _part_of(name)) for rank, name in a.digests.keys() | b.digests.keys()}
    places = sorted(a.parts.keys() | b.parts.keys() | of_tensors, key=_place)
    found = []
    for rank, part in places:
        items = tuple(_items(a, b, rank, part))
        if items:
            found.append(PartDifference(part, rank, items))
    return tuple(found)


def _place(key: Key) -> tuple[int, int, str]:
    rank, part = key
    order = (*REPLICATED, *LOCAL)
    return -1 if rank is None else rank, order.index(part) if part in order else len(order), part


def _items(a: Checkpoint, b: Checkpoint, rank: int | None, part: str) -> Iterator[Difference]:
    ranks = () if rank is None else (rank,)
    if ((rank, part) in a.parts) != ((rank, part) in b.parts):
        yield Difference(part, ranks, f"only {'A' if (rank, part) in a.parts else 'B'} has it")
        return
    keys = {key for key in a.digests.keys() | b.digests.keys() if key[0] == rank and _part_of(key[1]) == part}
    found = [d for key in sorted(keys, key=str) if (d := _tensor(a, b, key)) is not None]
    found += _text(a, b, (rank, part))
    yield from sorted(found, key=lambda d: -math.inf if d.magnitude is None else -d.magnitude)
    if not found and a.parts.get((rank, part)) != b.parts.get((rank, part)):
        yield Difference(part, ranks, "another digest; its shard is gone, so nothing more is known")


def _tensor(a: Checkpoint, b: Checkpoint, key: Key) -> Difference | None:
    rank, name = key
    ranks = () if rank is None else (rank,)
    if key not in a.digests or key not in b.digests:
        return Difference(name, ranks, f"only {'A' if key in a.digests else 'B'} has it")
    if key in a.tensors and key in b.tensors:
        return tensor_difference(name, ranks, a.tensors[key], b.tensors[key])
    return Difference(name, ranks, "another digest") if a.digests[key] != b.digests[key] else None


def tensor_difference(name: str, ranks: tuple[int, ...], a: TensorView, b: TensorView) -> Difference | None:
    """None if equal in type, shape and every bit, and finite (in buffers infinities are ordinary: masks)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return Difference(name, ranks, f"A is {a.dtype}{list(a.shape)}, B {b.dtype}{list(b.shape)}")
    equal = bool(np.array_equal(np.frombuffer(a.data, np.uint8), np.frombuffer(b.data, np.uint8)))
    if name.startswith("rng/") or a.dtype not in (*_TYPES, "BF16"):
        return None if equal else Difference(name, ranks, _bytes_differ(a, b))
    x, y = numbers(a), numbers(b)
    wild = ~(np.isfinite(x) & np.isfinite(y))
    if equal and name.startswith("buffer/"):
        wild = np.isnan(x)
    if np.any(wild):
        where = int(np.flatnonzero(wild)[0])
        return Difference(name, ranks, f"{int(wild.sum())} of {x.size} elements are not finite, the first one at "
                          f"{where}: A {x[where]}, B {y[where]}", finite=False)
    if equal:
        return None
    apart = np.abs(x - y)
    at = int(np.argmax(apart))
    changed = int(np.count_nonzero(_patterns(a) != _patterns(b)))
    detail = f"{changed} of {x.size} elements differ, most at {at}: A {x[at]}, B {y[at]}"
    largest = float(max(np.max(np.abs(x)), np.max(np.abs(y))))
    return Difference(name, ranks, detail, float(apart[at]), float(apart[at]) / largest if largest else 0.0)


def _bytes_differ(a: TensorView, b: TensorView) -> str:
    x, y = np.frombuffer(a.data, np.uint8), np.frombuffer(b.data, np.uint8)
    return f"{int(np.count_nonzero(x != y))} of {x.size} bytes differ"


def _patterns(view: TensorView) -> npt.NDArray[Any]:
    """Bit patterns, one an element; [n]."""
    width = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}[len(view.data) // max(1, math.prod(view.shape))]
    return np.frombuffer(view.data, width)


def numbers(view: TensorView) -> npt.NDArray[Any]:
    """The elements as float64, or complex128 for C64; [n]. bfloat16 is the upper half of a float32."""
    if view.dtype == "BF16":
        return (np.frombuffer(view.data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
    flat = np.frombuffer(view.data, _TYPES[view.dtype])
    return flat.astype(np.complex128 if view.dtype == "C64" else np.float64)


def _text(a: Checkpoint, b: Checkpoint, key: Key) -> Iterator[Difference]:
    rank, part = key
    ranks = () if rank is None else (rank,)
    x, y = a.texts.get(key), b.texts.get(key)
    if not (a.whole and b.whole) or (x == y and '"nan"' not in (x or "")):
        return
    mine, theirs = (dict(_leaves(json.loads(text), part)) if text is not None else {} for text in (x, y))
    differing = [name for name in sorted(mine.keys() | theirs.keys())
                 if not _same(mine.get(name, _GONE), theirs.get(name, _GONE))]
    if part.startswith("rng.") and len(differing) > 3:
        yield Difference(part, ranks, f"{len(differing)} of {len(mine)} numbers differ")
        return
    for name in differing:
        yield _leaf(name, ranks, mine.get(name, _GONE), theirs.get(name, _GONE))


_GONE = "absent"


def _same(x: object, y: object) -> bool:
    """Equal in type and every bit; NaN is no number, so it is never the same."""
    if isinstance(x, float) and isinstance(y, float):
        return x.hex() == y.hex() and not math.isnan(x)
    return type(x) is type(y) and x == y


def _leaf(name: str, ranks: tuple[int, ...], x: object, y: object) -> Difference:
    finite = all(not isinstance(v, float) or math.isfinite(v) for v in (x, y))
    if isinstance(x, (int, float)) and isinstance(y, (int, float)) and finite:
        return Difference(name, ranks, f"A {x}, B {y}", float(abs(x - y)), relative(float(x), float(y)))
    return Difference(name, ranks, f"A {x}, B {y}", finite=finite)


def _leaves(value: Any, where: str) -> Iterator[tuple[str, object]]:
    """Field → value of the JSON of a part. Floats are written as hex, tagged or, in the progress, as plain text."""
    if isinstance(value, dict) and value.get("~") == "f":
        yield where, float.fromhex(value["v"])
    elif isinstance(value, dict) and "~" in value:
        yield from _leaves(value["v"], where)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{where}.{key}")
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from _leaves(item, f"{where}[{place}]")
    else:
        yield where, float.fromhex(value) if isinstance(value, str) and _HEX_FLOAT.fullmatch(value) else value
