"""What a training run did, step by step, as values: what runs, twins and labs are compared by (invariant 5).

A trace is read from a run folder, or from a file of format `killpoint.trace/1` that a lab wrote: sealed JSON whose
body has the fields of `Trace`. Floats are `float.hex()` texts, so that every bit survives and NaN is NaN. Pure: no
Ray, no torch, no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chaos.audit.decode import decode
from chaos.audit.formats import FormatError
from chaos.errors import ChaosError
from storage.errors import Damaged
from storage.sealed import seal, unseal

FORMAT = "killpoint.trace/1"
TRACE_FILE = "trace.json"


class TraceError(ChaosError):
    """There is no trace where one was looked for, or it is not what its format says."""


@dataclass(frozen=True)
class StepRecord:
    """One update of one rank in one attempt.

    step: number of updates done after it. ids: the sample ids that it consumed, in order; None where only their
    digest `ids_digest` is known. lr: of each parameter group, before the update. gradient_norm: None where it was not
    recorded. state: part → short digest after the update (`trainers.fingerprint`). values: small tensors in full,
    name → numbers.
    """

    step: int
    rank: int
    attempt: int
    ids_digest: str
    lr: tuple[str, ...]
    loss: str
    state: Mapping[str, str]
    ids: tuple[int, ...] | None = None
    gradient_norm: str | None = None
    skipped: bool = False
    samples_seen: int | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """What one rank held when an attempt began, before its first step. checkpoint: None for a start from nothing.

    microbatch: how many of the next update's microbatches it had already gathered; 0 at the boundary of a step.
    """

    attempt: int
    rank: int
    step: int
    cursor: int
    state: Mapping[str, str]
    checkpoint: str | None = None
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    microbatch: int = 0


@dataclass(frozen=True)
class Trace:
    """A whole run. records: in the order in which they happened, abandoned attempts included.

    target_step: the step at which it was to end, None if not known. rows: of the dataset, which is an epoch.
    """

    label: str
    ranks: int
    global_batch: int
    rows: int | None
    target_step: int | None
    starts: tuple[Start, ...]
    records: tuple[StepRecord, ...]

    def write(self, path: Path) -> None:
        """Creates the file; it must not exist yet."""
        data, _digest = seal({"format": FORMAT, **asdict(self)})
        with path.open("xb") as file:
            file.write(data)

    @classmethod
    def read(cls, path: Path) -> Trace:
        """Raises TraceError unless the file is exactly as it was written."""
        try:
            body, _digest = unseal(path.read_bytes(), str(path))
            return cls.parse(body)
        except (Damaged, FormatError) as error:
            raise TraceError(f"{path}: {error}") from error
        except OSError as error:
            raise TraceError(f"{path}: cannot be read ({error.strerror})") from error

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Trace:
        """Raises FormatError naming the field."""
        if body.get("format") != FORMAT:
            raise FormatError(f"is no {FORMAT}, but {body.get('format')!r:.40}")
        return decode(cls, body, "trace")
