"""Which published checkpoints verify now, and which damage was announced (invariants 1, 2 and 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.audit.events import Quarantined
from chaos.audit.evidence import Evidence, FileNamed, Manifest, Publish
from chaos.audit.facts import Receipt
from chaos.audit.formats import (
    BEST,
    MAYBE_RANK_PARTS,
    PARTIAL_PARTS,
    RANK_PARTS,
    SHARED_PARTS,
    checkpoint_name,
    file_path,
)


@dataclass(frozen=True)
class Damage:
    """One thing that keeps a published checkpoint from verifying. path: relative to the store.

    kind: of the file: manifest, shard, ledger, log. unreadable: nothing is known of its bytes.
    """

    path: str
    what: str
    kind: str
    missing: bool = False
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def manifest_of(evidence: Evidence, publish: Publish) -> Manifest | None:
    """The published manifest, if it is there and the very one that was published."""
    seen = evidence.store.manifests.get(publish.name)
    return seen.manifest if seen is not None and seen.digest == publish.digest else None


def damages(evidence: Evidence, publish: Publish) -> tuple[Damage, ...]:
    """Everything that keeps the checkpoint from verifying now, missing shards of a retired one included."""
    path = f"manifests/{publish.name}.json"
    seen = evidence.store.manifests.get(publish.name)
    if seen is None:
        return (Damage(path, "is missing", "manifest", missing=True),)
    if seen.manifest is None:
        return (Damage(path, f"{seen.problem}", "manifest", unreadable=seen.unreadable),)
    if seen.digest != publish.digest:
        return (Damage(path, f"is not the manifest that entry {publish.seq} published", "manifest"),)
    wrong = manifest_faults(evidence, publish, seen.manifest)
    if wrong:
        return tuple(Damage(path, what, "manifest") for what in wrong)
    found = (_file_damage(evidence, named) for named in seen.manifest.files)
    return tuple(damage for damage in found if damage is not None)


def manifest_faults(evidence: Evidence, publish: Publish, manifest: Manifest) -> list[str]:
    """What a manifest says that cannot be, given its publication."""
    wrong: list[str] = []
    if manifest.run != (run := evidence.store.log.run):
        wrong.append(f"belongs to run {manifest.run}, not to {run}")
    if (manifest.name, manifest.step) != (publish.name, publish.step):
        wrong.append(
            f"is of {manifest.name} at step {manifest.step}, published as {publish.name}, {publish.step}"
        )
    if manifest.attempt != publish.attempt or manifest.name != checkpoint_name(
        manifest.step, manifest.attempt, manifest.microbatch
    ):
        wrong.append(
            f"is of step {manifest.step} of attempt {manifest.attempt}, published by {publish.attempt}"
        )
    if not 1 <= manifest.world <= len(manifest.ranks) or [r.rank for r in manifest.ranks] != list(
        range(manifest.world)
    ):
        wrong.append(f"does not list the ranks 0 to {manifest.world - 1} once each")
    expected = {
        (kind, record.rank): file_path(kind, manifest.name, record.rank)
        for kind in ("shard", "ledger")
        for record in manifest.ranks
    }
    named = {(file.kind, file.rank): file.path for file in manifest.files}
    if named != expected or len(named) != len(manifest.files):
        differing = sorted(path for _, path in expected.items() ^ named.items()) or ["one twice"]
        wrong.append(f"does not name one shard and one ledger segment of every rank: see {differing[0]}")
    parts = RANK_PARTS | PARTIAL_PARTS if manifest.microbatch else RANK_PARTS
    if manifest.parts.keys() - {BEST} != SHARED_PARTS or any(
        record.parts.keys() - MAYBE_RANK_PARTS != parts for record in manifest.ranks
    ):
        wrong.append("does not digest every part of the state")
    if {"best.buffers" in record.parts for record in manifest.ranks} != {BEST in manifest.parts}:
        wrong.append("digests only a part of the best model")
    return wrong


def _file_damage(evidence: Evidence, named: FileNamed) -> Damage | None:
    seen = evidence.store.files.get(named.path)
    if seen is None:
        return Damage(named.path, "is missing", named.kind, missing=True)
    if seen.unreadable:
        return Damage(named.path, f"{seen.problem}", named.kind, unreadable=True)
    if seen.bytes != named.bytes:
        return Damage(named.path, f"has {seen.bytes} bytes, its manifest says {named.bytes}", named.kind)
    if seen.digest != named.digest:
        return Damage(named.path, f"has digest {seen.digest}, its manifest says {named.digest}", named.kind)
    return None if seen.problem is None else Damage(named.path, seen.problem, named.kind)


def announced(evidence: Evidence, damage: Damage) -> Receipt | None:
    """The receipt of a damage that explains this one, if there is one."""
    for receipt in evidence.history.receipts:
        if receipt.kind == "damage" and receipt.path is not None and _same(receipt.path, damage.path):
            seen = evidence.store.files.get(damage.path)
            if damage.kind in ("manifest", "log") or _explains(
                evidence, receipt, None if seen is None else seen.digest
            ):
                return receipt
    return None


def _same(receipt_path: str, path: str) -> bool:
    return receipt_path.removeprefix("store/") == path


def _explains(evidence: Evidence, receipt: Receipt, digest: str | None) -> bool:
    if digest is not None:
        return receipt.after == digest
    return receipt.after is None or any(path == receipt.path for path in quarantined(evidence))


def quarantined(evidence: Evidence) -> Iterator[str]:
    """Paths that a committer recorded as moved away."""
    for file in evidence.history.files.values():
        for event in file.events:
            if isinstance(event.what, Quarantined):
                yield event.what.path
