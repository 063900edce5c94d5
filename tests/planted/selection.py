"""Defects of the choice of a checkpoint, and of how a chosen one is read (bugs 11, 15, 16, 18, 19, 22, 25, 31)."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from scenes import FROM_NOTHING, NONE_IN_FLIGHT, NONE_REJECTED, kill, struck

from chaos.gallery.bugs import COMMITTER, SUPERVISOR, Bug, Case, Here, Replacement
from storage.entries import choose_fields
from storage.log import Publish
from storage.manifest import decode
from storage.sealed import seal, unseal
from storage.shard import parse_shard

NO_DIGEST = "xxh3-128:" + "0" * 32


def candidates(change: Any) -> Replacement:
    """`change(found, entries, here)` is what a restart may choose from, found being what it should."""

    def make(original: Any, here: Here) -> Any:
        def planted(entries: Any, attempt: int) -> Any:
            here.attempt = attempt
            found = original(entries, attempt)
            return tuple(change(found, entries, here)) if attempt > 0 else found

        return planted

    return Replacement("trainers.supervisor.candidates", make, SUPERVISOR)


def meanwhile(happens: Any) -> Replacement:
    """`happens(here)` between the death and the choice; what it returns is called after the choice has begun."""

    def make(original: Any, here: Here) -> Any:
        def also(entries: Any, attempt: int) -> Any:
            here.attempt = attempt
            undo = happens(here) if attempt > 0 else None
            found = original(entries, attempt)
            if undo is not None:
                undo()
            return found

        return also

    return Replacement("trainers.supervisor.candidates", make, SUPERVISOR)


def shards(here: Here, name: str = "") -> list[Path]:
    """Oldest checkpoint first."""
    return sorted((here.folder / "store" / "shards").glob(f"{name}*.safetensors"))


def newest_directory(found: Any, entries: Any, here: Here) -> Any:
    """What lies there and has the greatest name, published or not."""
    path = max((here.folder / "store" / "manifests").glob("*.json"))
    manifest, digest = decode(path.read_bytes(), path.name)
    if found and (found[0].name, found[0].digest) == (manifest.name, digest):
        return found
    some = next(entry for entry in entries if isinstance(entry, Publish))
    return (replace(some, name=manifest.name, digest=digest, step=manifest.step), *found)


def choose_whatever(original: Any, here: Here) -> Any:
    """The log takes any parent."""

    def planted(log: Any, attempt: int, parent: Any, listed: Any) -> Any:
        return log._append("choose", lambda entries: (attempt, choose_fields(parent, tuple(listed))))

    return planted


def by_text(found: Any, entries: Any, here: Here) -> Any:
    return sorted(found, key=lambda publish: str(publish.step), reverse=True)


def by_file_time(found: Any, entries: Any, here: Here) -> Any:
    manifests = here.folder / "store" / "manifests"
    return sorted(found, key=lambda publish: (manifests / f"{publish.name}.json").stat().st_mtime_ns, reverse=True)


def copied_out_of_order(here: Here) -> None:
    """The oldest was copied last."""
    oldest = min((here.folder / "store" / "manifests").glob("*.json"))
    os.utime(oldest, (oldest.stat().st_mtime + 3600,) * 2)


def by_step(found: Any, entries: Any, here: Here) -> Any:
    """Whatever was published, on whatever branch."""
    return sorted((e for e in entries if isinstance(e, Publish)), key=lambda publish: publish.step, reverse=True)


def out_of_reach_once(here: Here) -> None:
    """A shard of the newest checkpoint is gone while attempt 1 chooses, and there again when attempt 2 does."""
    away = here.folder.with_name(f"{here.folder.name}.away")
    shard = here.folder / "store" / "shards" / "s00000006-a0000-r0000.safetensors"
    if here.attempt == 1:
        shutil.move(shard, away)
    elif away.exists():
        shutil.move(away, shard)


def fresh_if_missing(found: Any, entries: Any, here: Here) -> Any:
    return found if not found or shards(here, found[0].name) else ()


def shards_away(here: Here) -> Any:
    """As if the file system were not mounted at that moment."""
    folder = here.folder / "store" / "shards"
    away = folder.rename(folder.with_name("shards.away"))
    folder.mkdir()

    def back() -> None:
        folder.rmdir()
        away.rename(folder)

    return back


def flip_bit(here: Here) -> None:
    """Of a model's tensor in the newest checkpoint's first shard."""
    path = shards(here, shards(here)[-1].name[:15])[0]
    data = bytearray(path.read_bytes())
    name = next(n for n in parse_shard(data, "").tensors if n.startswith("model/"))
    parse_shard(data, "").tensors[name].data[0] ^= 1
    path.write_bytes(data)


def unchecked(original: Any, here: Here) -> Any:
    return lambda *arguments: None


def unverified(original: Any, here: Here) -> Any:
    return lambda objects, record: objects.read(record.path)


def newest_file(original: Any, here: Here) -> Any:
    """The rank's newest file, which the save before may still be at work on."""

    def planted(objects: Any, record: Any) -> Any:
        if record.kind != "shard":
            return original(objects, record)
        return objects.read(f"shards/{max(n for n in objects.list('shards') if n.endswith(record.path[-18:]))}")

    return planted


def without_digest(encode: Any, here: Here) -> Any:
    """The first checkpoint is published before the digest of a shard is there."""

    def planted(manifest: Any) -> Any:
        data, digest = encode(manifest)
        if manifest.step != 3 or here.twin:
            return data, digest
        body, _ = unseal(data, "")
        del body["files"][0]["digest"]
        return seal(body)

    return planted


def lenient(decode: Any, here: Here) -> Any:
    """A missing digest is no error."""

    def planted(data: bytes, where: str) -> Any:
        body, digest = unseal(data, where)
        for file in body["files"]:
            file.setdefault("digest", NO_DIGEST)
        return decode(seal(body)[0], where)[0], digest

    return planted


def missing_matches(read_verified: Any, here: Here) -> Any:
    def planted(objects: Any, record: Any) -> Any:
        return objects.read(record.path) if record.digest == NO_DIGEST else read_verified(objects, record)

    return planted


NO_SELF_CHECK = Replacement("trainers.rank._check_restored", unchecked)
OLDER = "took s00000009-a0000, older than s00000015-a0000"

BUGS = (
    Bug(
        11, "the newest directory is taken though its save never finished",
        (candidates(newest_directory), Replacement("storage.log.CommitLog.choose", choose_whatever, SUPERVISOR)),
        Case((kill("manifest.written", 2, role="committer"),)), Case((struck(),)),
        {2: "attempt 1 chose s00000006-a0000, which is no candidate: it was taken unverified, "
            "the log never published it"},
        NONE_IN_FLIGHT, "transformers#35782, #35525", may=frozenset({3, 4, 8}),
    ),
    Bug(
        15, "newest by a sort of texts: 9 before 15", (candidates(by_text),),
        Case((struck(step=17, save=5),), {"steps": 18, "keep": 4}), Case((struck(step=8, save=2),)),
        {2: OLDER, 8: "attempt 1 redid 7 steps from step 9, which nothing explains"},
        "same number of digits", "transformers#26961, strands-labs/robots#3165",
    ),
    Bug(
        16, "newest by the files' time, after a copy or with a skewed clock", (candidates(by_file_time),),
        Case((struck(step=8, save=2),), also=(meanwhile(copied_out_of_order),)), Case((struck(),)),
        {2: "took s00000003-a0000, older than s00000006-a0000"}, "no restart had several candidates",
        "transformers#28862, #37260",
    ),
    Bug(
        18, "a flipped bit in a shard is accepted",
        (Replacement("trainers.loaded.read_verified", unverified), NO_SELF_CHECK),
        Case((struck(),), {"keep": 9}, (meanwhile(flip_bit),)), Case((struck(),)),
        {2: r"took s00000003-a0000, which does not verify: store/shards/s00000003-a0000-r0000\.safetensors has digest"},
        NONE_REJECTED, "reference figures F", may=frozenset({1, 4, 5}),
    ),
    Bug(
        19, "the integrity check is on, but a missing digest counts as a match",
        (
            Replacement("trainers.choosing.decode", lenient, SUPERVISOR),
            Replacement("trainers.rank.decode", lenient), Replacement("trainers.loaded.read_verified", missing_matches),
        ),
        Case((struck(),), also=(Replacement("storage.commit.encode", without_digest, COMMITTER),)), Case((struck(),)),
        {2: r"took s00000003-a0000, which does not verify: store/manifests/s00000003-a0000\.json .*digest"},
        NONE_REJECTED, "lm-resiliency#78", may=frozenset({1}),
    ),
    Bug(
        22, "checkpoint data is missing, so a fresh start over good data",
        (
            candidates(fresh_if_missing),
            Replacement("trainers.supervisor.ever_published", lambda original, here: lambda entries: False, SUPERVISOR),
        ),
        Case((struck(),), also=(meanwhile(shards_away),)), Case((kill("microbatch.forward", 1, rank=1),)),
        {2: "attempt 1 made a fresh start over s00000003-a0000, which were published"},
        FROM_NOTHING, "verl#7952, RLinf#1469", may=frozenset({8}),
    ),
    Bug(
        25, "a load runs while the asynchronous save before it is unfinished",
        (Replacement("trainers.loaded.read_verified", newest_file), NO_SELF_CHECK),
        Case((kill("commit.collected", 2, role="committer"),)), Case((struck(),)),
        {2: r"rank 0 of attempt 1 restored s00000003-a0000 \(step 6\), the log chose s00000003-a0000 \(step 3\)",
         4: "restored s00000003-a0000, but its live .*model"},
        NONE_IN_FLIGHT, "torchtitan#930", may=frozenset({3, 5, 8}),
    ),
    Bug(
        31, "the second recovery returns to a branch that the first one had rejected", (candidates(by_step),),
        Case(
            (struck(step=8, save=2), kill("recover.restored", attempt=1, rank=0)), also=(meanwhile(out_of_reach_once),)
        ),
        Case((struck(step=8, save=2),)),
        {2: "attempt 2 chose s00000006-a0000, which is no candidate: it lies on a branch of attempt 0",
         9: "after the sigkill at recover.restored in attempt 1 .*invariant 2 is invalid"},
        NONE_REJECTED, "SimpleTuner#2989", may=frozenset({3, 8}),
    ),
)  # fmt: skip
