"""State that is not a tensor, as JSON text and back, exactly, without pickle (invariant 4).

Floats are written by `float.hex`, so that every bit and infinities return; of a NaN only that it is one. Tuples,
bytes and dictionaries with keys that are not strings are tagged. Anything else is a StateError that names where it
lies.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import torch

from trainers.errors import StateError

_TAG = "~"


def encode(value: Any, where: str) -> str:
    """JSON text of `value`; equal values give equal text."""
    return json.dumps(_plain(value, where), sort_keys=True, separators=(",", ":"))


def decode(text: str, where: str) -> Any:
    try:
        return _rich(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{where}: the stored state is not what was written: {error}") from error


def like(value: Any, live: Any) -> Any:
    """`value`, which `decode` gave, with dictionaries of the kind that `live` has in the same place.

    The text keeps no kind of dictionary; a freshly built object does (a Counter, say, with its methods), so an empty
    copy of its own dictionary takes the items. Nothing that was read decides what is made.
    """
    if isinstance(value, dict) and isinstance(live, dict):
        items = {key: like(item, live.get(key)) for key, item in value.items()}
        if type(live) is dict:
            return items
        made = copy.copy(live)
        made.clear()
        for key, item in items.items():
            made[key] = item
        return made
    if isinstance(value, list) and isinstance(live, list) and len(value) == len(live):
        return [like(item, own) for item, own in zip(value, live, strict=True)]
    return value


def _plain(value: Any, where: str) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {_TAG: "f", "v": value.hex()}
    if isinstance(value, list):
        return [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {_TAG: "t", "v": [_plain(item, f"{where}[{i}]") for i, item in enumerate(value)]}
    if isinstance(value, bytes):
        return {_TAG: "b", "v": value.hex()}
    if isinstance(value, dict):
        if all(isinstance(key, str) and key != _TAG for key in value):
            return {key: _plain(item, f"{where}.{key}") for key, item in value.items()}
        pairs = [[_plain(key, where), _plain(item, f"{where}.{key}")] for key, item in value.items()]
        return {_TAG: "d", "v": pairs}
    if isinstance(value, torch.Tensor) and value.numel() <= 64:
        kind = str(value.dtype).removeprefix("torch.")
        return {_TAG: "T", "v": [_plain(item, where) for item in value.reshape(-1).tolist()], "d": kind,
                "s": list(value.shape)}
    if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a NumPy scalar
        return _plain(value.item(), where)
    raise StateError(
        f"{where} is a {type(value).__name__}: only numbers, strings, bytes, lists, tuples, dictionaries and small "
        "tensors can be kept without pickle; keep anything else out of state_dict()"
    )


def _rich(value: Any) -> Any:
    if isinstance(value, list):
        return [_rich(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = value.get(_TAG)
    if tag is None:
        return {key: _rich(item) for key, item in value.items()}
    body = value["v"]
    if tag == "f":
        return float.fromhex(body)
    if tag == "t":
        return tuple(_rich(item) for item in body)
    if tag == "b":
        return bytes.fromhex(body)
    if tag == "d":
        return {_rich(key): _rich(item) for key, item in body}
    if tag == "T":
        return torch.tensor(_rich(body), dtype=getattr(torch, value["d"])).reshape(value["s"])
    raise ValueError(f"unknown tag {tag!r}")
