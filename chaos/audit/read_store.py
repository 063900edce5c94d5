"""Reading shell: the store's bytes → log, manifests, observations of files. Damage is observed, never raised."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from chaos.audit.decode import decode
from chaos.audit.evidence import (
    Choose,
    Entry,
    Fence,
    FileNamed,
    FileSeen,
    Log,
    Manifest,
    ManifestSeen,
    Problem,
    Publish,
    Retire,
    Store,
)
from chaos.audit.formats import FormatError, unseal
from chaos.audit.read_files import see_file

_ENTRY = re.compile(r"[0-9]{8,}\.json")
_KINDS: Mapping[str, type[Any]] = {"fence": Fence, "choose": Choose, "publish": Publish, "retire": Retire}


def read_store(store: Path) -> Store:
    """Everything in the store. Each file is read once."""
    present = frozenset(_walk(store))
    log, manifests = read_published(store, present)
    named = _named_by(log, manifests)
    return Store(log, manifests, {f.path: f for f in _files(store, named, present)}, present)


def read_published(
    store: Path, present: frozenset[str] | None = None
) -> tuple[Log, dict[str, ManifestSeen]]:
    """The log and the manifests by name, without the files that they name."""
    paths = sorted(frozenset(_walk(store)) if present is None else present)
    manifests = {
        seen.path.removeprefix("manifests/").removesuffix(".json"): seen
        for seen in (_manifest(store, path) for path in paths if path.startswith("manifests/"))
    }
    return _log(store, [path for path in paths if path.startswith("log/")]), manifests


def _walk(root: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            yield (Path(folder) / name).relative_to(root).as_posix()


def _log(store: Path, paths: list[str]) -> Log:
    """Entries in the order of their numbers. What does not continue the chain is a problem; reading goes on."""
    numbered = {int(p[4:-5]): p for p in paths if _ENTRY.fullmatch(p[4:])}
    entries: list[Entry] = []
    problems: list[Problem] = []
    run: str | None = None
    previous: str | None = None
    expected, lost = 0, False
    for seq in sorted(numbered):
        where = f"store/{numbered[seq]}"
        for missing in range(expected, min(seq, expected + 3)):
            problems.append(
                Problem(f"store/log/{missing:08d}.json", f"is missing, though entry {seq} is there")
            )
        try:
            entry, digest, before, of_run = _entry(store / numbered[seq], seq)
            if seq == expected and before != previous and not lost:
                problems.append(Problem(where, "does not name the entry before it: the chain is broken"))
            if run is not None and of_run != run:
                problems.append(Problem(where, f"belongs to run {of_run}, not to {run}"))
            entries.append(entry)
            run, previous, lost = run or of_run, digest, False
        except FormatError as error:
            problems.append(Problem(where, str(error)))
            lost = True
        except OSError as error:
            problems.append(Problem(where, f"cannot be read: {error.strerror}", unreadable=True))
            lost = True
        expected = seq + 1
    return Log(tuple(entries), tuple(problems), run)


def _entry(path: Path, seq: int) -> tuple[Entry, str, str | None, str]:
    """Entry, its digest, the digest that it names as the one before, its run."""
    body, digest = unseal(path.read_bytes())
    kind = _KINDS.get(str(body.get("kind")))
    if kind is None or body.get("format") != "killpoint.log/1":
        raise FormatError(f"is no log entry: format {body.get('format')!r}, kind {body.get('kind')!r}")
    entry: Entry = decode(kind, body, "entry")
    if entry.seq != seq:
        raise FormatError(f"is entry {entry.seq} under another entry's name")
    before, run = body.get("previous"), body.get("run")
    if not isinstance(run, str) or not (before is None or isinstance(before, str)):
        raise FormatError("names no run or no predecessor")
    if seq and before is None:
        raise FormatError("names no predecessor")
    return entry, digest, before, run


def _manifest(store: Path, path: str) -> ManifestSeen:
    try:
        body, digest = unseal((store / path).read_bytes())
        if body.get("format") != "killpoint.manifest/1":
            raise FormatError(f"is no manifest: format {body.get('format')!r}")
        return ManifestSeen(path, decode(Manifest, body, "manifest"), digest)
    except FormatError as error:
        return ManifestSeen(path, problem=str(error))
    except OSError as error:
        return ManifestSeen(path, problem=f"cannot be read: {error.strerror or error}", unreadable=True)


def _named_by(log: Log, manifests: Mapping[str, ManifestSeen]) -> dict[str, FileNamed]:
    """The files of published checkpoints; strays are not read."""
    published = {entry.name for entry in log.entries if isinstance(entry, Publish)}
    return {
        file.path: file
        for name, seen in manifests.items()
        if seen.manifest is not None and name in published
        for file in seen.manifest.files
    }


def _files(store: Path, named: Mapping[str, FileNamed], present: Iterable[str]) -> Iterator[FileSeen]:
    for path in sorted(named.keys() & set(present)):
        yield see_file(store / path, path, named[path].kind)
