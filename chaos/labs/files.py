"""What a lab leaves on disk: created once, never overwritten, read back only as it was written.

A checkpoint is sealed JSON (storage/README.md), with a second digest of the file's bytes beside it in the form that
`sha256sum --check` reads. Floats are JSON numbers in Python's shortest form, which gives back every bit.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from chaos.errors import CheckpointRefused, LabError, OutputExists
from storage.errors import Damaged
from storage.sealed import seal, unseal

CHECKPOINT, SUMMARY, COMMAND, REPORT = "checkpoint.json", "summary.json", "command.txt", "report.json"


def new_folder(output: Path | None, lab: str) -> Path:
    """Creates `output`, or a folder below runs/. Raises OutputExists: an earlier proof is never overwritten."""
    folder = output or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-lab-{lab}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir()
    except FileExistsError:
        raise OutputExists(f"{folder}: exists already and was left as it is; choose another --output") from None
    return folder


def write_new(path: Path, data: bytes) -> None:
    """Creates the file, synced. Raises OutputExists if it is there."""
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise OutputExists(f"{path}: exists already and was left as it is; choose another name") from None


def write_json(path: Path, value: object) -> None:
    """Creates a JSON file for readers. Raises LabError for a number that is not finite."""
    try:
        text = json.dumps(value, indent=1, allow_nan=False)
    except ValueError:
        raise LabError(f"{path}: a number in it is not finite, so nothing was written") from None
    write_new(path, text.encode() + b"\n")


def read_json(path: Path) -> dict[str, Any]:
    """An object that `write_json` wrote. Raises LabError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LabError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise LabError(f"{path}: is no JSON object")
    return value


def write_checkpoint(path: Path, body: Mapping[str, object]) -> str:
    """Creates `path` and its digest file. Returns `sha256:<hex>` of the file. Raises OutputExists, LabError."""
    try:
        data, _ = seal(body)
    except ValueError:
        raise LabError(f"{path}: a number of the state is not finite, so no checkpoint was written") from None
    return write_bytes_with_digest(path, data)


def write_bytes_with_digest(path: Path, data: bytes) -> str:
    """Creates `path` and `path`.sha256. Returns `sha256:<hex>`."""
    digest = hashlib.sha256(data).hexdigest()
    write_new(path, data)
    write_new(digest_file(path), f"{digest}  {path.name}\n".encode())
    return f"sha256:{digest}"


def digest_file(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def read_checkpoint(path: Path) -> tuple[dict[str, Any], bytes, str]:
    """Body, bytes and `sha256:<hex>` of a checkpoint. Raises CheckpointRefused unless both digests hold."""
    try:
        data = path.read_bytes()
        stated = digest_file(path).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        where = getattr(error, "filename", None) or digest_file(path)
        reason = getattr(error, "strerror", None) or "is not text"
        what = f"{where}: cannot be read ({reason}); a checkpoint is the file and its .sha256"
        raise CheckpointRefused(what) from None
    digest = hashlib.sha256(data).hexdigest()
    if stated[:1] != [digest]:
        raise CheckpointRefused(f"{path}: its digest is {digest}, {digest_file(path).name} says "
                                f"{' '.join(stated[:1]) or 'nothing'}: it was changed after it was written; "
                                "restore it from a copy")
    try:
        body, _ = unseal(data, str(path))
    except Damaged as error:
        raise CheckpointRefused(str(error)) from error
    return body, data, f"sha256:{digest}"
