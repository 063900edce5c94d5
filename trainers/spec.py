"""What is to be trained and how, as plain values: the supervisor's input, and what it tells each rank."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from storage.manifest import Fingerprints

if TYPE_CHECKING:
    from trainers.dataset import Dataset
    from trainers.plan import Plan

VERSION = "0.1.0"
BUILT_IN = {name: f"trainers.workloads.{name}:build" for name in ("bytelm", "linreg", "tiny")}
Precision = Literal["fp32", "bf16", "fp16"]
Policy = Literal["stop", "skip"]


@dataclass(frozen=True)
class TrainingSpec:
    """One run. Durations in seconds; `config_digest` covers only what determines the numbers.

    precision: in which the forward pass computes; parameters, gradients and updates stay as the workload has them.
    non_finite: what to do with an update whose loss or gradient is not finite. keep_best: whether the model of the
    best loss is kept beside the last one.
    """

    run: str
    folder: Path
    workload: str
    workload_config: Mapping[str, Any]
    seed: int
    ranks: int
    global_batch: int
    microbatches: int
    steps: int
    save_every: int
    keep: int
    standbys: int
    threads_per_rank: int
    prefetch_batches: int
    read_tasks: int
    max_attempts: int
    hang_deadline_s: float
    survivor_deadline_s: float
    recovery_deadline_s: float
    unavailable_deadline_s: float
    kill_suspects: bool
    config_digest: str
    precision: Precision = "fp32"
    non_finite: Policy = "stop"
    keep_best: bool = False
    save_every_microbatches: int | None = None


@dataclass(frozen=True)
class Survey:
    """What the first worker found: the data, the order, and the digests that every checkpoint carries.

    `code_files`: the workload's sources, which the code's digest covers beside Killpoint's own.
    """

    dataset: Dataset
    plan: Plan
    fingerprints: Fingerprints
    code_files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assignment:
    """A rank's place in one attempt; `host` and `port` are the rendezvous store's."""

    attempt: int
    rank: int
    host: str
    port: int
    survey: Survey
    clock: int


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that the supervisor proposes: the manifest's bytes, already checked against the log."""

    name: str
    digest: str
    step: int
    manifest: bytes
    microbatch: int = 0

    @property
    def moment(self) -> tuple[int, int]:
        """(updates done, microbatches of the next one): where training goes on."""
        return self.step, self.microbatch


def code_digest(workload_files: Sequence[Path]) -> str:
    """sha256 over the sources of the three packages and of the workload: names relative, contents whole.

    The workload's own module comes first; the names of the others are relative to its folder.
    """
    root = Path(__file__).resolve().parent.parent
    own = [p for package in ("chaos", "trainers", "storage") for p in sorted((root / package).rglob("*.py"))]
    hasher = hashlib.sha256()
    for path in own:
        hasher.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    for path in workload_files:
        name = os.path.relpath(path, workload_files[0].parent)
        hasher.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return "sha256:" + hasher.hexdigest()
