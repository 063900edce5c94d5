"""From written to published: the one way in which a checkpoint comes into being (invariants 1 and 6).

Every file is read back against the digest that its writer took from memory; then the manifest is created;
then the log entry publishes it. Whatever is cut short before the last creation leaves strays, which nobody
ever chooses. Reading back through the page cache proves the bytes that were handed over, and says nothing
about the medium.
"""

from __future__ import annotations

from collections.abc import Callable

from storage.errors import AlreadyExists
from storage.log import CommitLog, Publish
from storage.manifest import Manifest, encode, manifest_path
from storage.objects import Objects, Reached, no_point
from storage.shard import read_verified


def _ignore(digest: str) -> None:
    """The `on_manifest` that nobody listens to."""


def commit_checkpoint(
    objects: Objects,
    log: CommitLog,
    manifest_draft: Manifest,
    reached: Reached = no_point,
    on_manifest: Callable[[str], None] = _ignore,
) -> Publish:
    """Verify the draft's files, write the manifest, publish it. Returns the publish entry.

    Points: commit.read_back (all files), those of `Objects.create` as manifest.…, manifest.written, publish.before,
    publish.after. `on_manifest` gets the manifest's digest once it is durable, before manifest.written. After an
    Unavailable the same call may be made again: what is there already is taken as it is, if it is the same.

    Raises Fenced if a later attempt has begun (before any reading, and again in place of the publication),
    Damaged if a file is not as its record says, ValueError if the draft is incomplete or another manifest has
    the name, StoreFull, Unavailable.
    """
    if manifest_draft.run != log.run:
        raise ValueError(f"{manifest_draft.name} belongs to run {manifest_draft.run}, the log to {log.run}")
    data, digest = encode(manifest_draft)
    log.require_current(manifest_draft.attempt)
    for record in manifest_draft.files:
        read_verified(objects, record)
    reached("commit.read_back")
    _create_once(objects, manifest_path(manifest_draft.name), data, reached)
    on_manifest(digest)
    reached("manifest.written")
    reached("publish.before")
    entry = log.publish(manifest_draft.attempt, manifest_draft.name, digest, manifest_draft.step)
    reached("publish.after")
    return entry


def _create_once(objects: Objects, name: str, data: bytes, reached: Reached) -> None:
    """Create, unless an earlier call whose outcome was open has created exactly this."""
    try:
        objects.create(name, data, lambda point: reached(f"manifest.{point}"))
    except AlreadyExists:
        if objects.read(name) != data:
            raise ValueError(f"{name} exists with other content; it is a stray: quarantine it") from None
        # Its creation may have failed after it got its name: make sure that the name is durable.
        objects.list(name.split("/", maxsplit=1)[0])
