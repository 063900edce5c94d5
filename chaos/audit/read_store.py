"""Reading shell: the store's bytes → log, manifests, observations of files. Damage is observed, never raised.

The run may still be going on, so what names comes before what is named: log, then manifests, then files. What is
retired in between is known from a second look at the log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from chaos.audit.formats import FormatError, read_regular, unseal
from chaos.audit.read_files import see_file

_READERS, _MUCH_BYTES = 2, 64 << 20  # fewer bytes take less than threads do
_FOLDERS = ("ledger", "shards", "tmp", "quarantine")
_ENTRY = re.compile(r"[0-9]{8,}\.json")
_KINDS: Mapping[str, type[Any]] = {"fence": Fence, "choose": Choose, "publish": Publish, "retire": Retire}


def read_store(store: Path) -> Store:
    """Everything in the store. Each file is read once."""
    entries = _paths(store, "log")
    log = _log(store, entries)
    paths = _paths(store, "manifests")
    manifests = _manifests(store, paths)
    named = _named_by(log, manifests)
    present = frozenset(entries + paths + _others(store))
    files = {f.path: f for f in _files(store, named, present)}
    retired = _retired(_log(store, _paths(store, "log"))) - _retired(log)
    for path, file in named.items():
        if path not in files and file.kind == "shard" and path.split("/")[1].rpartition("-r")[0] in retired:
            files[path] = FileSeen(path, 0, "", problem="was retired while this was read", unreadable=True)
    return Store(log, manifests, files, present)


def read_published(store: Path) -> tuple[Log, dict[str, ManifestSeen]]:
    """The log and the manifests by name, without the files that they name."""
    log = _log(store, _paths(store, "log"))
    return log, _manifests(store, _paths(store, "manifests"))


def _manifests(store: Path, paths: Iterable[str]) -> dict[str, ManifestSeen]:
    seen = (_manifest(store, path) for path in paths)
    return {each.path.removeprefix("manifests/").removesuffix(".json"): each for each in seen}


def _retired(log: Log) -> set[str]:
    return {name for entry in log.entries if isinstance(entry, Retire) for name in entry.names}


def _paths(store: Path, folder: str) -> list[str]:
    """Every file below the folder, which may be a link to elsewhere, relative to the store, in order."""
    return sorted(
        (Path(place) / name).relative_to(store).as_posix()
        for place, _, names in os.walk(store / folder)
        for name in names
    )


def _others(store: Path) -> list[str]:
    """Every path below the store, except in log and manifests. A link that is not the format's is one path."""
    try:
        top = sorted(os.scandir(store), key=lambda entry: entry.name)
    except OSError:
        return []
    found: list[str] = []
    for entry in top:
        if entry.name in _FOLDERS or (entry.is_dir(follow_symlinks=False) and entry.name not in ("log", "manifests")):
            found += _paths(store, entry.name)
        elif not entry.is_dir() or entry.name not in ("log", "manifests"):
            found.append(entry.name)
    return found


def _log(store: Path, paths: list[str]) -> Log:
    """Entries in the order of their numbers. What does not continue the chain is a problem; reading goes on."""
    numbered = {int(p[4:-5]): p for p in paths if _ENTRY.fullmatch(p[4:])}
    for seq in sorted(numbered):
        while seq and (seq := seq - 1) not in numbered and (store / f"log/{seq:08d}.json").exists():
            numbered[seq] = f"log/{seq:08d}.json"  # it came while the folder was listed
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
    body, digest = unseal(read_regular(path))
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
        body, digest = unseal(read_regular(store / path))
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
    paths = sorted(named.keys() & set(present))

    def see(path: str) -> FileSeen:
        return see_file(store / path, path, named[path].kind)

    if sum(named[path].bytes for path in paths) < _MUCH_BYTES:
        yield from map(see, paths)
        return
    with ThreadPoolExecutor(_READERS) as readers:  # reading and digests let others run
        yield from readers.map(see, paths)
