"""Ledger segments: which samples each update consumed, as read off the batch itself (invariant 3).

Format `killpoint.ledger/1`: an Arrow IPC file of five columns without nulls, sorted by position, with the
segment's place in the run in the schema's metadata. This module checks the form only. Whether the rows are
the right ones, once each, is the audit's question, so a segment with a wrong or repeated row must stay
readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage.errors import Damaged

FORMAT = "killpoint.ledger/1"
_SCHEMA = pa.schema(
    [
        pa.field("position", pa.int64(), nullable=False),
        pa.field("sample_id", pa.int64(), nullable=False),
        pa.field("content", pa.uint64(), nullable=False),
        pa.field("step", pa.int64(), nullable=False),
        pa.field("microbatch", pa.int32(), nullable=False),
    ]
)
_NUMBERS = ("attempt", "step", "rank", "first_step", "last_step")
_INSIDE = ("first_microbatch", "microbatch")  # of a segment that begins or ends inside a step


@dataclass(frozen=True, eq=False)
class LedgerRows:
    """Consumed samples, one per element; all arrays have the same length.

    position: int64, index into the plan. sample_id: int64, global row number. content: uint64 content digest.
    step: int64, the update that consumed it. microbatch: int32, within that update.
    """

    position: npt.NDArray[np.int64]
    sample_id: npt.NDArray[np.int64]
    content: npt.NDArray[np.uint64]
    step: npt.NDArray[np.int64]
    microbatch: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.position)

    @classmethod
    def concatenate(cls, pieces: Sequence[LedgerRows]) -> LedgerRows:
        """The pieces' rows one after another; no pieces, no rows. Raises TypeError for other types."""
        columns = []
        for field in _SCHEMA:
            dtype = np.dtype(field.type.to_pandas_dtype())
            arrays = [np.empty(0, dtype), *(getattr(piece, field.name) for piece in pieces)]
            columns.append(np.concatenate(arrays, dtype=dtype, casting="same_kind"))
        return cls(*columns)


@dataclass(frozen=True)
class SegmentMeta:
    """Place of a segment: what `rank` consumed in the updates first_step … last_step (both included).

    step, microbatch: those of the checkpoint which the segment belongs to. Of update first_step the rows begin with
    microbatch first_microbatch. At the boundary of a step (microbatch 0) step is last_step + 1; inside a step it is
    last_step, and of that update the rows end before microbatch `microbatch`.
    """

    run: str
    attempt: int
    step: int
    rank: int
    first_step: int
    last_step: int
    first_microbatch: int = 0
    microbatch: int = 0


def encode_segment(rows: LedgerRows, meta: SegmentMeta) -> bytes:
    """Bytes of the segment. Rows are sorted by position here; equal positions keep their order.

    Raises ValueError if the arrays differ in length or a value does not fit its column.
    """
    order = np.argsort(rows.position, kind="stable")
    columns = []
    for field in _SCHEMA:
        values = getattr(rows, field.name)
        if values.shape != (len(rows),):
            raise ValueError(
                f"ledger column {field.name} has shape {values.shape}, position has ({len(rows)},)"
            )
        columns.append(pa.array(values[order], type=field.type))
    place = {key: value for key, value in asdict(meta).items() if value or key not in _INSIDE}
    metadata = {"format": FORMAT, **{key: str(value) for key, value in place.items()}}
    schema = _SCHEMA.with_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_segment(data: bytes, where: str) -> tuple[LedgerRows, SegmentMeta]:
    """Rows and place of a segment. Raises Damaged unless it has exactly the format's columns and metadata.

    Verify the file's digest first: Arrow does not notice a changed value.
    """
    try:
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Damaged(where, f"is not an Arrow file: {error}") from error
    if not table.schema.equals(_SCHEMA, check_metadata=False):
        raise Damaged(where, f"has the wrong columns: {table.schema.remove_metadata()}")
    if any(column.null_count for column in table.columns):
        raise Damaged(where, "has empty values")
    rows = LedgerRows(*(column.to_numpy() for column in table.columns))
    if np.any(rows.position[1:] < rows.position[:-1]):
        raise Damaged(where, "is not sorted by position")
    return rows, _meta(table.schema.metadata or {}, where)


def _meta(metadata: dict[bytes, bytes], where: str) -> SegmentMeta:
    try:
        text = {key.decode(): value.decode() for key, value in metadata.items()}
        inside = [key for key in _INSIDE if key in text]
        if text.keys() != {"format", "run", *_NUMBERS, *inside} or text["format"] != FORMAT:
            raise ValueError(f"has {sorted(text)}, format {text.get('format')!r}")
        numbers: dict[str, Any] = {key: decimal(text[key]) for key in (*_NUMBERS, *inside)}
        if not all(numbers[key] for key in inside):
            raise ValueError(f"has {inside} of which one is 0: that is said by leaving it out")
    except ValueError as error:
        raise Damaged(where, f"has the wrong metadata: {error}") from error
    return SegmentMeta(run=text["run"], **numbers)


def decimal(text: str) -> int:
    """The number of a string that `str` made of an integer from 0. Raises ValueError for any other."""
    number = int(text)
    if number < 0 or str(number) != text:
        raise ValueError(f"{text!r} is not a decimal number")
    return number
