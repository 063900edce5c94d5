"""The shape of an experiment file: field names, types and ranges of single fields.

Rules that join several fields are in `chaos.rules`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Scalar = bool | int | FiniteFloat | str | None
Count = Annotated[int, Field(ge=1)]
Index = Annotated[int, Field(ge=0)]
Seconds = Annotated[FiniteFloat, Field(gt=0)]
RoleName = Literal["rank", "committer", "supervisor", "standby", "data"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class RunSettings(_Model):
    """What is trained, and how. The defaults are those of the default experiment, without its workload's."""

    workload: str
    config: dict[str, Scalar] = Field(default_factory=dict)
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 7
    ranks: Count = 2
    global_batch: Count = 16
    microbatches: Count = 4
    steps: Count = 60
    save_every: Count = 7
    save_every_microbatches: Count | None = None
    keep: Annotated[int, Field(ge=2)] = 3
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    non_finite: Literal["stop", "skip"] = "stop"
    keep_best: bool = False
    standbys: Index = 1
    threads_per_rank: Count | Literal["auto"] = "auto"
    prefetch_batches: Count = 8
    read_tasks: Count = 1
    max_attempts: Count = 8
    hang_deadline_s: Seconds = 10.0
    survivor_deadline_s: Seconds = 5.0
    recovery_deadline_s: Seconds = 60.0
    unavailable_deadline_s: Seconds = 10.0
    kill_suspects: bool = True
    fork_workers: bool = True
    twin: bool = True
    tolerance: Annotated[FiniteFloat, Field(ge=0)] = 0.0


class AtSettings(_Model):
    """Where or when a fault strikes: `point` and `hit`, or `after_s`, or `random_s`."""

    attempt: Index = 0
    role: RoleName = "rank"
    rank: Index | None = None
    point: str | None = None
    hit: Count | None = None
    after_s: Seconds | None = None
    random_s: Annotated[list[Seconds], Field(min_length=2, max_length=2)] | None = None


class GateSettings(_Model):
    """The passage that is held until the fault has struck."""

    role: RoleName = "rank"
    rank: Index | None = None
    point: str
    hit: Count = 1


class DamageSettings(_Model):
    """What happens to which file of the newest published checkpoint; `rank`: whose. Manifests are evidence: without
    one nobody could say what the checkpoint held."""

    file: Literal["shard", "ledger"] = "shard"
    rank: Index = 0
    how: Literal["flip", "cut", "remove"] = "flip"


class SlowSettings(_Model):
    """How much longer each of how many passages takes, from the one that is named on."""

    delay_s: Seconds
    passages: Count


class OutageSettings(_Model):
    """How long a process's store answers with errors: so many operations, or so many seconds."""

    operations: Count | None = None
    for_s: Seconds | None = None


class FaultSettings(_Model):
    """One fault."""

    kind: Literal["sigkill", "exception", "hang", "sigterm", "slow", "damage", "stray", "outage"] = "sigkill"
    at: AtSettings
    gate: GateSettings | None = None
    damage: DamageSettings | None = None
    grace_s: Seconds | None = None
    slow: SlowSettings | None = None
    outage: OutageSettings | None = None


class ExperimentSettings(_Model):
    """The whole file."""

    run: RunSettings
    faults: list[FaultSettings] = Field(default_factory=list)
