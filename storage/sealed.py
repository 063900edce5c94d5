"""Sealed JSON: the form of log entries, manifests and receipts. Standard library only.

Serves invariant 1: a sealed file is either exactly what was written or `Damaged`. It is the canonical JSON
of {"body": …, "digest": …} and a newline, the digest being the sha256 of the body's canonical JSON. A reader
encodes again what it decoded and requires the same bytes, so a changed byte shows even where JSON itself
would not mind (blanks, escapes, order of keys). The digest guards against accidents, not against someone who
can reseal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from storage.errors import Damaged

_ENCODE = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False
).encode


def canonical(obj: object) -> bytes:
    """The one encoding of `obj`: sorted keys, no blanks, ASCII. Raises ValueError for NaN and infinities."""
    return _ENCODE(obj).encode("ascii")


def sha256_digest(data: bytes) -> str:
    """`sha256:<64 hex>` of the bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def seal(body: Mapping[str, object]) -> tuple[bytes, str]:
    """Bytes of the sealed file that holds `body`, and the body's digest."""
    digest = sha256_digest(canonical(body))
    return _file(body, digest), digest


def unseal(data: bytes, where: str) -> tuple[dict[str, Any], str]:
    """Body and digest of a sealed file. Raises Damaged unless every byte is as `seal` made it."""
    try:
        outer = json.loads(data.decode("ascii"))
        if not isinstance(outer, dict) or outer.keys() != {"body", "digest"}:
            raise Damaged(where, "is not a sealed file: it must hold exactly a body and its digest")
        body, digest = outer["body"], outer["digest"]
        if not isinstance(body, dict):
            raise Damaged(where, "is not a sealed file: its body is not an object")
        expected = sha256_digest(canonical(body))
        same = _file(body, expected) == data
    except (ValueError, RecursionError) as error:
        raise Damaged(where, f"is not a sealed file ({len(data)} bytes): {error}") from error
    if digest != expected:
        raise Damaged(where, f"does not match its digest: says {digest}, holds {expected}")
    if not same:
        raise Damaged(where, "is not in canonical form: its bytes were changed after it was written")
    return body, expected


def _file(body: Mapping[str, object], digest: str) -> bytes:
    return canonical({"body": body, "digest": digest}) + b"\n"
