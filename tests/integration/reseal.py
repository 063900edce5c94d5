"""Tampering with a run so that every digest and the whole log agree again: only meaning can betray it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.digests import bulk_digest
from storage.sealed import seal, unseal


def rewrite_ledger(store: Path, path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Changes one ledger segment, then seals manifests and log anew around it."""
    with pa.ipc.open_file(path) as file:
        table = file.read_all()
    changed = change(table).combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(changed)
    reseal(store)


def reseal(store: Path) -> None:
    """Recomputes file records, manifest digests, parents, log entries and their chain, oldest first."""
    renamed: dict[str, str] = {}
    previous: str | None = None
    for entry in sorted((store / "log").glob("*.json")):
        body, _old = unseal(entry.read_bytes(), entry.name)
        if body["kind"] == "publish":
            old = body["digest"]
            body["digest"] = renamed[old] = _reseal_manifest(store, body["name"], renamed)
        if body["kind"] == "choose":
            for named in filter(None, [body["parent"], *body["candidates"]]):
                named["digest"] = renamed.get(named["digest"], named["digest"])
        data, previous = seal({**body, "previous": previous})
        entry.write_bytes(data)


def _reseal_manifest(store: Path, name: str, renamed: dict[str, str]) -> str:
    path = store / "manifests" / f"{name}.json"
    body: dict[str, Any]
    body, _old = unseal(path.read_bytes(), name)
    body["parent"] = renamed.get(body["parent"], body["parent"])
    for record in body["files"]:
        file = store / record["path"]
        if file.exists():  # shards of a retired checkpoint are gone, and stay recorded as they were
            data = file.read_bytes()
            record["bytes"], record["digest"] = len(data), bulk_digest(data)
    data, digest = seal(body)
    path.write_bytes(data)
    return digest
