"""What a lab's checkpoint belongs to: dataset, code, configuration and library versions. All must be as they were."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chaos.errors import CheckpointRefused
from storage.sealed import canonical, sha256_digest
from trainers.spec import code_digest

FIELDS = ("dataset", "code", "configuration", "versions")


def dataset_digest(rows: list[list[float]]) -> str:
    """sha256 of the canonical JSON of the rows, each a list of its numbers."""
    return sha256_digest(canonical(rows))


def identity(dataset: Mapping[str, object], configuration: Mapping[str, object]) -> dict[str, Any]:
    """The four fields as a checkpoint holds them."""
    return {
        "dataset": dict(dataset),
        "code": code_digest([]),
        "configuration": dict(configuration),
        "versions": {"python": platform.python_version(), "torch": version("torch"), "numpy": version("numpy")},
    }


def check_identity(body: Mapping[str, Any], form: str, expected: Mapping[str, Any], path: Path) -> None:
    """Raises CheckpointRefused naming every field that is not as it was when the checkpoint was written.

    form: the format that it must have.
    """
    if body.get("format") != form:
        raise CheckpointRefused(f"{path}: is no checkpoint of this lab: its format is {body.get('format')!r:.40}")
    changes = [line for name in FIELDS for line in _changes(name, body.get(name), expected[name])]
    if changes:
        raise CheckpointRefused(f"{path}: was written for something else, so going on from it would prove nothing: "
                                f"{'; '.join(changes)}. Make a new checkpoint")


def _changes(name: str, saved: object, now: object) -> list[str]:
    if isinstance(saved, dict) and isinstance(now, dict):
        keys = sorted(saved.keys() | now.keys())
        return [line for key in keys for line in _changes(f"{name}.{key}", saved.get(key), now.get(key))]
    return [] if saved == now and type(saved) is type(now) else [f"{name} was {saved!r:.80}, is {now!r:.80}"]
