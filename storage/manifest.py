"""The manifest of one checkpoint: which bytes it consists of, and what state they hold (invariants 1 and 4).

Format `killpoint.manifest/1`; the package's README describes it. A manifest that decodes is complete: one
shard and one ledger segment of every rank under the names that its step and attempt give, and every part
digested. What is missing is Damaged, never a match. Whether the files are as it says is for
`shard.read_verified` to find out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from storage.errors import Damaged
from storage.fields import BULK, CHAIN, SEALED, Fields
from storage.history import Head
from storage.sealed import seal, unseal

FORMAT = "killpoint.manifest/1"
FileKind = Literal["shard", "ledger"]
SHARED_PARTS = frozenset({"model", "optimizer"})  # best besides, where the run keeps one
RANK_PARTS = frozenset(
    {"buffers", "scheduler", "scaler", "progress", "rng.python", "rng.numpy", "rng.torch"}
)  # rng.cuda besides, where the run has it; best.buffers wherever there is best
PARTIAL_PARTS = frozenset({"gradients", "accumulation"})  # besides, of a checkpoint inside a step
_FIELDS = {
    "format", "run", "name", "attempt", "step", "world", "cursor", "parent", "fingerprints", "files",
    "tensors", "parts", "ranks",
}  # fmt: skip
_SHARED_TENSOR = re.compile(r"model/.+|optimizer/.+/[^/]+|best/.+", re.DOTALL)
_RANK_TENSOR = re.compile(r"buffer/.+|rng/.+|best_buffer/.+", re.DOTALL)
_PARTIAL_TENSOR = re.compile(rf"{_RANK_TENSOR.pattern}|gradient/.+|accumulation/.+", re.DOTALL)
_PART = re.compile(r"[a-z.]+")
NAME_PATTERN = r"s([0-9]{8,})(?:-m([0-9]{4,}))?-a([0-9]{4,})"
_NAME = re.compile(NAME_PATTERN)


def checkpoint_name(step: int, attempt: int, microbatch: int = 0) -> str:
    """Name of the checkpoint that `attempt` makes after `step` updates: s00000007-a0000.

    Inside the step that follows, after `microbatch` of its microbatches: s00000007-m0003-a0000. In the order of
    their names checkpoints are in the order of (step, microbatch), up to the digits that are padded to.
    """
    inside = f"-m{microbatch:04d}" if microbatch else ""
    return f"s{step:08d}{inside}-a{attempt:04d}"


def parse_checkpoint_name(name: str) -> tuple[int, int, int]:
    """(step, attempt, microbatch) of a checkpoint's name. Raises ValueError for anything that is not exactly one."""
    if match := _NAME.fullmatch(name):
        step, attempt, microbatch = int(match[1]), int(match[3]), int(match[2] or 0)
        if checkpoint_name(step, attempt, microbatch) == name:
            return step, attempt, microbatch
    raise ValueError(f"{name!r} is not a checkpoint's name: it must look like {checkpoint_name(7, 0)}")


def manifest_path(name: str) -> str:
    return f"manifests/{name}.json"


def shard_path(name: str, rank: int) -> str:
    return f"shards/{name}-r{rank:04d}.safetensors"


def ledger_path(name: str, rank: int) -> str:
    return f"ledger/{name}-r{rank:04d}.arrow"


@dataclass(frozen=True)
class Fingerprints:
    """What the checkpoint was made for; resuming with another one of these is an error."""

    dataset: str
    plan: str
    config: str
    code: str


@dataclass(frozen=True)
class FileRecord:
    """One file of a checkpoint. path: relative to the store; digest: xxh3-128 of all its bytes."""

    path: str
    kind: FileKind
    rank: int
    bytes: int
    digest: str


@dataclass(frozen=True)
class RankRecord:
    """What only this rank has. parts, tensors: name → digest; history: how far its history had come."""

    rank: int
    parts: Mapping[str, str]
    tensors: Mapping[str, str]
    history: Head


@dataclass(frozen=True)
class Manifest:
    """One checkpoint: the state after `step` updates and `cursor` samples, held by the attempt's `world`
    ranks. microbatch: how many of the next update's microbatches each rank has accumulated besides; 0 at the
    boundary of a step.

    parent: manifest digest of the checkpoint before it in the lineage, None for the first. tensors, parts:
    the replicated state, name → digest. files: of every rank its shard and its ledger segment.
    """

    run: str
    name: str
    attempt: int
    step: int
    world: int
    cursor: int
    parent: str | None
    fingerprints: Fingerprints
    files: tuple[FileRecord, ...]
    tensors: Mapping[str, str]
    parts: Mapping[str, str]
    ranks: tuple[RankRecord, ...]
    microbatch: int = 0

    def file(self, kind: FileKind, rank: int) -> FileRecord:
        """The rank's file of this kind. Raises ValueError for a rank outside the world."""
        for record in self.files:
            if record.kind == kind and record.rank == rank:
                return record
        raise ValueError(f"{self.name} has no {kind} of rank {rank}: its world is {self.world}")


def encode(manifest: Manifest) -> tuple[bytes, str]:
    """Bytes of the sealed manifest, and its digest. Raises ValueError if `decode` would refuse it."""
    body = {
        "format": FORMAT,
        **{
            key: getattr(manifest, key)
            for key in ("run", "name", "attempt", "step", "world", "cursor", "parent")
        },
        **({"microbatch": manifest.microbatch} if manifest.microbatch else {}),
        "fingerprints": asdict(manifest.fingerprints),
        "files": [asdict(record) for record in manifest.files],
        "tensors": dict(manifest.tensors),
        "parts": dict(manifest.parts),
        "ranks": [_rank_body(record) for record in manifest.ranks],
    }
    data, digest = seal(body)
    try:
        decode(data, manifest.name)
    except Damaged as error:
        raise ValueError(f"incomplete or malformed manifest: {error}") from error
    return data, digest


def decode(data: bytes, where: str) -> tuple[Manifest, str]:
    """The manifest and its digest. Raises Damaged unless it is sealed, well-formed and complete."""
    body, digest = unseal(data, where)
    inside = "microbatch" in body
    fields = Fields(body, where, _FIELDS | ({"microbatch"} if inside else set()))
    fields.constant("format", FORMAT)
    prints = fields.nested("fingerprints", {"dataset", "plan", "config", "code"})
    parts = fields.digests("parts", _PART)
    if parts.keys() - {"best"} != SHARED_PARTS:
        raise fields.wrong("parts", f"digests of exactly {sorted(SHARED_PARTS)}, and of best if there is one")
    manifest = Manifest(
        run=fields.text("run"),
        name=fields.text("name"),
        attempt=fields.count("attempt"),
        step=fields.count("step"),
        world=fields.count("world"),
        cursor=fields.count("cursor"),
        parent=fields.optional("parent", lambda key: fields.text(key, SEALED)),
        fingerprints=Fingerprints(*(prints.text(key) for key in ("dataset", "plan", "config", "code"))),
        files=tuple(_file(item, f"{where}: files") for item in fields.items("files")),
        tensors=fields.digests("tensors", _SHARED_TENSOR),
        parts=parts,
        ranks=tuple(_rank(item, f"{where}: ranks", inside) for item in fields.items("ranks")),
        microbatch=fields.count("microbatch") if inside else 0,
    )
    if inside and not manifest.microbatch:
        raise fields.wrong("microbatch", "at least 1, or left out at the boundary of a step")
    _check_whole(manifest, where)
    return manifest, digest


def _check_whole(manifest: Manifest, where: str) -> None:
    """Name, ranks and files must be those that step, attempt and world say, each exactly once."""
    name, world = manifest.name, manifest.world
    if name != checkpoint_name(manifest.step, manifest.attempt, manifest.microbatch):
        inside = f", microbatch {manifest.microbatch}," if manifest.microbatch else ""
        raise Damaged(
            where, f"name {name} does not belong to step {manifest.step}{inside} of attempt {manifest.attempt}"
        )
    if world < 1 or [record.rank for record in manifest.ranks] != list(range(world)):
        raise Damaged(where, f"ranks must be exactly 0 to {world - 1} in order")
    if {"best.buffers" in record.parts for record in manifest.ranks} != {"best" in manifest.parts}:
        raise Damaged(where, "has only a part of the best model: best and every rank's best.buffers go together")
    expected = {(shard_path(name, rank), "shard", rank) for rank in range(world)}
    expected |= {(ledger_path(name, rank), "ledger", rank) for rank in range(world)}
    found = [(record.path, record.kind, record.rank) for record in manifest.files]
    if len(found) != len(expected) or set(found) != expected:
        different = sorted(path for path, _, _ in expected.symmetric_difference(found))
        raise Damaged(where, f"files must be one shard and one ledger segment of every rank; see {different}")


def _file(item: object, where: str) -> FileRecord:
    fields = Fields(item, where, {"path", "kind", "rank", "bytes", "digest"})
    kind: FileKind = "shard" if fields.text("kind") == "shard" else "ledger"
    fields.constant("kind", kind)
    return FileRecord(
        fields.text("path"), kind, fields.count("rank"), fields.count("bytes"), fields.text("digest", BULK)
    )


def _rank(item: object, where: str, inside: bool) -> RankRecord:
    """inside: of a checkpoint inside a step, which has partial gradients."""
    fields = Fields(item, where, {"rank", "parts", "tensors", "history"})
    parts = fields.digests("parts", _PART)
    expected = RANK_PARTS | PARTIAL_PARTS if inside else RANK_PARTS
    if parts.keys() - {"rng.cuda", "best.buffers"} != expected:
        raise fields.wrong(
            "parts", f"digests of exactly {sorted(expected)}, and of rng.cuda and best.buffers if there are any"
        )
    tensors = fields.digests("tensors", _PARTIAL_TENSOR if inside else _RANK_TENSOR)
    head = fields.nested("history", {"file", "n", "chain"})
    history = Head(head.text("file"), head.count("n"), head.text("chain", CHAIN))
    return RankRecord(fields.count("rank"), parts, tensors, history)


def _rank_body(record: RankRecord) -> dict[str, Any]:
    return {
        "rank": record.rank,
        "parts": dict(record.parts),
        "tensors": dict(record.tensors),
        "history": record.history.as_dict(),
    }
