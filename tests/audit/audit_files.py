"""A writer of every format that the auditor reads, of its own: it shares no code with what is tested.

Only what a test needs: small files, everything in memory, nothing synced.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

_DTYPES = {"float32": "F32", "float64": "F64", "uint8": "U8", "int64": "I64"}
LEDGER = {
    "position": pa.int64(),
    "sample_id": pa.int64(),
    "content": pa.uint64(),
    "step": pa.int64(),
    "microbatch": pa.int32(),
}


_ENCODE = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def canonical(value: object) -> bytes:
    return _ENCODE(value).encode()


def seal(body: Mapping[str, Any]) -> tuple[bytes, str]:
    text = canonical(body)
    digest = "sha256:" + hashlib.sha256(text).hexdigest()
    return b'{"body":%b,"digest":"%b"}\n' % (text, digest.encode()), digest


def bulk(data: bytes) -> str:
    return "xxh3-128:" + xxhash.xxh3_128_hexdigest(data)


def part(tensors: Mapping[str, str], prefix: str | None, text: str | None) -> str:
    data = b""
    for name in sorted(tensors):
        if prefix is not None and name.startswith(prefix):
            data += name.encode() + b"\0" + tensors[name].encode() + b"\n"
    return bulk(data + (b"" if text is None else b"json\0" + text.encode()))


def shard(metadata: Mapping[str, str], tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    body = b""
    for name, array in tensors.items():
        raw = array.tobytes()
        header[name] = {
            "dtype": _DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def segment(rows: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, object]) -> bytes:
    order = np.argsort(rows["position"], kind="stable")
    schema = pa.schema([pa.field(n, t, nullable=False) for n, t in LEDGER.items()])
    schema = schema.with_metadata({"format": "killpoint.ledger/1", **{k: str(v) for k, v in meta.items()}})
    batch = pa.record_batch([pa.array(rows[n][order], type=t) for n, t in LEDGER.items()], schema=schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def contents(columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint64]:
    """Content digests, one row after another."""
    rows = len(next(iter(columns.values())))
    return np.array(
        [
            xxhash.xxh3_64_intdigest(b"".join(columns[name][row].tobytes() for name in sorted(columns)))
            for row in range(rows)
        ],
        np.uint64,
    )


def dataset(columns: Mapping[str, npt.NDArray[Any]], per_file: int, group_rows: int) -> tuple[dict[str, bytes], str]:
    """The columns as Parquet files of `per_file` rows, by name, and their fingerprint."""
    arrays = {
        n: pa.array(a)
        if a.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(a.reshape(-1)), a.shape[1])
        for n, a in columns.items()
    }
    table = pa.table(arrays)
    files, identity = {}, []
    for number, start in enumerate(range(0, table.num_rows, per_file)):
        name, piece, sink = f"part-{number:03d}.parquet", table.slice(start, per_file), pa.BufferOutputStream()
        pq.write_table(piece, sink, row_group_size=group_rows)
        files[name] = data = sink.getvalue().to_pybytes()
        identity.append([name, len(data), piece.num_rows, bulk(data)])
    return files, "sha256:" + hashlib.sha256(canonical(identity)).hexdigest()


def _chained(chain: str, n: int, body: Mapping[str, Any]) -> tuple[str, bytes]:
    """The chain after line n, and the line."""
    text = canonical(body)
    chain = hashlib.sha256(chain.encode() + text).hexdigest()
    return chain, b'{"body":%b,"chain":"%b","n":%d}\n' % (text, chain.encode(), n)


class Recorder:
    """One history file."""

    def __init__(
        self, folder: Path, role: str, pid: int, ticks: int, run: str, t_ns: int, host: str = "h"
    ) -> None:
        self.name = f"{role}-{host}-{pid}-{ticks}.jsonl"
        self.path = folder / self.name
        self.pid, self.ticks, self.host, self.n, self.chain = pid, ticks, host, -1, self.name
        opened = {"run": run, "role": role, "pid": pid, "start_ticks": ticks, "host": host, "boot": "b"}
        self.record("opened", None, t_ns, **opened)

    def record(self, event: str, attempt: int | None, t_ns: int, **fields: Any) -> None:
        body = {"event": event, "attempt": attempt, "t_ns": t_ns, "clock": self.n + 2, **fields}
        self.n += 1
        self.chain, line = _chained(self.chain, self.n, body)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(file, line)
        os.close(file)

    @property
    def head(self) -> dict[str, Any]:
        return {"file": self.name, "n": self.n, "chain": self.chain}

    @property
    def who(self) -> dict[str, Any]:
        return {"pid": self.pid, "start_ticks": self.ticks}


def rechain(path: Path, bodies: list[dict[str, Any]]) -> None:
    """Writes a history anew with these bodies, its chain right."""
    chain, lines = path.name, []
    for n, body in enumerate(bodies):
        chain, line = _chained(chain, n, body)
        lines.append(line)
    path.write_bytes(b"".join(lines))


def bodies(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["body"] for line in path.read_bytes().splitlines()]
