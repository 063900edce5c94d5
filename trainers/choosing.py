"""What a restart proposes to the ranks: candidates from the log, checked as far as the supervisor can (invariant 2).

Definite damage rejects a candidate; what is merely unavailable is retried to a deadline, then recovery stops: a hiccup
must not cost work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from storage.errors import Damaged, Unavailable
from storage.ledger import decode_segment
from storage.log import Publish
from storage.manifest import decode, manifest_path
from storage.objects import Objects
from storage.shard import read_verified
from trainers.errors import GaveUp
from trainers.spec import Candidate

T = TypeVar("T")
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0


def retried(read: Callable[[], T], deadline_s: float) -> T:
    """`read()`, again and again while it raises Unavailable. Raises GaveUp at the deadline."""
    limit, wait_s = time.monotonic() + deadline_s, _FIRST_WAIT_S
    while True:
        try:
            return read()
        except Unavailable as error:
            if time.monotonic() + wait_s > limit:
                raise GaveUp(f"the store stayed unavailable for {deadline_s:g} s: {error}") from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def propose(objects: Objects, publish: Publish) -> Candidate:
    """The candidate with its manifest's bytes, if manifest and ledger segments verify. Raises Damaged, Unavailable."""
    path = manifest_path(publish.name)
    data = objects.read(path)
    manifest, digest = decode(data, path)
    if digest != publish.digest:
        raise Damaged(path, f"has digest {digest[:19]}…, the log published {publish.digest[:19]}…")
    for record in manifest.files:
        if record.kind == "ledger":
            decode_segment(read_verified(objects, record), record.path)
    return Candidate(publish.name, digest, publish.step, data, manifest.microbatch)
