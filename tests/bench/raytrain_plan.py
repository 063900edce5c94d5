"""What `bench_raytrain.py` trains, when it kills, and what of either trainer's end is compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raytrain_marks import Recovery

Parts = dict[str, str]  # of a last state: `model`, `0.rng.torch`, … → digest
_SHARED = ("model", "optimizer")


class Failed(Exception):
    """A run did not do what was to be measured. Says which, and what it did."""


@dataclass(frozen=True)
class Job:
    """What is trained. kills: (step, rank) of attempt 0, 1, …: the rank dies after so many updates, in the next one,
    after the backward pass of microbatch `kill_microbatch`, counted from 1.
    """

    workload: str
    config: Mapping[str, Any]
    seed: int
    ranks: int
    global_batch: int
    microbatches: int
    steps: int
    save_every: int
    keep: int
    kill_microbatch: int
    kills: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """Samples of one update on one rank."""
        return self.global_batch // self.ranks

    @property
    def microbatch_rows(self) -> int:
        return self.rows // self.microbatches


def kills_between(count: int, between: int, save_every: int, ranks: int) -> tuple[tuple[int, int], ...]:
    """`count` kills, `between` updates apart, halfway between two saves, of one rank after the other."""
    if between % save_every:
        raise ValueError(f"{between} updates between kills must be a multiple of {save_every} between saves")
    return tuple(((k + 1) * between - save_every // 2, k % ranks) for k in range(count))


def restored_step(job: Job, kill: int) -> int:
    """Where a trainer goes on after a kill that cost it no finished save."""
    return job.kills[kill][0] // job.save_every * job.save_every


def fault(job: Job, attempt: int) -> dict[str, Any]:
    """The kill of an attempt in this project's terms: its passages count from the step that the attempt starts from."""
    step, rank = job.kills[attempt]
    start = 0 if attempt == 0 else restored_step(job, attempt - 1)
    hit = (step - start) * job.microbatches + job.kill_microbatch
    at = {"attempt": attempt, "role": "rank", "rank": rank, "point": "microbatch.backward", "hit": hit}
    return {"kind": "sigkill", "at": at}


def recovery(verdict: Mapping[str, Any]) -> Recovery:
    """One of a verdict's recoveries. There the durations follow one another, here all of them count from the kill."""
    detected = verdict["detect_s"]
    up = detected + verdict["reacquire_s"]
    restored = up + verdict["load_s"]
    return Recovery(detected, up, restored, verdict["first_step_s"], restored + verdict["redo_s"],
                    verdict["restored_step"], verdict["redo_steps"])  # fmt: skip


def require_planned(job: Job, found: Sequence[Recovery]) -> None:
    """Raises Failed unless each kill came after just so many updates."""
    reached = [each.restored_step + each.redone_steps for each in found]
    if reached != [step for step, _ in job.kills]:
        raise Failed(f"kills came after {reached} updates, planned were (updates, rank) {list(job.kills)}")


def named_parts(rank: int, parts: Mapping[str, str]) -> Parts:
    """A rank's digests under names that tell ranks apart.

    Without `progress`, in which this project's trainer keeps the losses, and a user of Ray Train nothing but the step.
    """
    return {name if name in _SHARED else f"{rank}.{name}": digest for name, digest in parts.items()
            if name != "progress"}  # fmt: skip


def compared(parts: Parts, twin: Parts) -> str:
    """`equal`, or which parts of the last state are not the twin's."""
    differing = sorted(name for name in parts.keys() | twin.keys() if parts.get(name) != twin.get(name))
    return "equal" if not differing else f"differs in {', '.join(differing)}"
