"""What is measured, and what comes of it: the values that `intervals.json` holds. Schema: `chaos/cost/README.md`.

Durations are seconds, counts are steps (updates), microbatches (of one rank), samples (of all). None: it was not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FORMAT = "killpoint.intervals/1"
PARTS = ("detect", "fence", "reacquire", "join", "select", "load", "pipeline", "first_step")  # in order of time
Verdict = Literal["valid", "invalid", "unknown"]
Spread = Literal["even", "exponential"]
Standby = Literal["warm", "warming", "none"]


@dataclass(frozen=True)
class Parts:
    """One recovery, cut into what was waited for. Together with `unexplained_s` they make up strike to first new step.

    detect_s: strike to detection. fence_s: the failed attempt is let go, exits are confirmed, its successor's fence is
    in the log. reacquire_s: until every rank has a process that has taken up its work. join_s: the ranks form a group.
    select_s: candidates are examined; ranks' answers are gathered, one is chosen, the committer is told. load_s: it is
    read, verified, restored, and digested live. pipeline_s: the input is started at the cursor, and waited for in the
    first step. first_step_s: the rest of that step.
    """

    detect_s: float
    fence_s: float
    reacquire_s: float
    join_s: float
    select_s: float
    load_s: float
    pipeline_s: float
    first_step_s: float


@dataclass(frozen=True)
class Recovery:
    """What one recovery cost. attempt: the one that recovered.

    whole_s: strike to the first new step done. parts: None unless it came so far and every instant is there.
    unexplained_s: of whole_s, what no part accounts for. downtime_s: strike to the beginning of the first new step.
    caught_up_s: strike to the step that had been reached when it struck. lost_s: from the moment that the restored
    checkpoint holds to the strike: the time whose work is done again. redo_s: from the beginning of the first new step
    until caught up. redo_steps: updates finished before the strike that are done again; redo_samples: theirs;
    redo_microbatches: of one rank, those of the update under way included (partial_microbatches), if they are known.
    bytes_read: of shards, by all ranks. standby: whether the replacement was warm when it was needed.
    uncertainty_s: of every duration that spans two hosts; 0 on one host.
    """

    attempt: int
    restored_step: int | None
    parts: Parts | None
    whole_s: float | None
    unexplained_s: float | None
    downtime_s: float | None
    caught_up_s: float | None
    lost_s: float | None
    redo_s: float | None
    redo_steps: int | None
    redo_microbatches: int | None
    redo_samples: int | None
    partial_microbatches: int | None
    bytes_read: int
    standby: Standby
    uncertainty_s: float = 0.0


@dataclass(frozen=True)
class Save:
    """What one save cost. Of the slowest rank: stall_s, the copy that training waits for; wait_s, for the save before
    (back-pressure); write_s, until its files are durable. background_s: from the last rank's copy until it is
    published; None if it never was. bytes: of all ranks' files; None if not all were written.
    """

    attempt: int
    step: int
    microbatch: int
    stall_s: float
    wait_s: float
    write_s: float | None
    background_s: float | None
    bytes: int | None


@dataclass(frozen=True)
class Step:
    """One update of one rank: from the end of the one before, or of the save between them. in_flight: the share of that
    time during which a save was in flight on any rank. recovering: a new standby was being started beside it.
    """

    attempt: int
    rank: int
    step: int
    duration_s: float
    in_flight: float
    recovering: bool


@dataclass(frozen=True)
class Costs:
    """Everything measured in one run."""

    recoveries: tuple[Recovery, ...]
    saves: tuple[Save, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Expected:
    """What a kill must cost, written down before its run starts: [least, most] of each."""

    restored_step: tuple[int, int]
    redo_steps: tuple[int, int]
    redo_samples: tuple[int, int]
    redo_microbatches: tuple[int, int]

    @property
    def exact(self) -> bool:
        """Whether nothing is left to chance."""
        return self.restored_step[0] == self.restored_step[1] and self.redo_steps[0] == self.redo_steps[1]


@dataclass(frozen=True)
class Kill:
    """One kill: what was planned, expected and measured.

    where: the passage, or the time. save: what the save in question was held at by a gate; "" without one.
    phase_steps: steps done since the last save fell due, with a fraction for the microbatches; None at a random time.
    recovery: None if its run did not get so far. met: whether it was as expected; None without a recovery.
    """

    every: int
    run: str
    attempt: int
    rank: int
    where: str
    save: str
    phase_steps: float | None
    expected: Expected
    recovery: Recovery | None
    met: bool | None


@dataclass(frozen=True)
class Run:
    """One run of the experiment. folder: relative to the output folder. kills: 0 for the undisturbed one."""

    name: str
    every: int
    folder: str
    kills: int
    verdict: Verdict
    why: str
    wall_s: float


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % bootstrap interval and how many observations it is of."""

    value: float
    low: float
    high: float
    observations: int


@dataclass(frozen=True)
class Spreading:
    """What observations of one kind were: the mean with its interval, the 95th percentile, the greatest."""

    mean: Estimate
    p95: float
    worst: float


@dataclass(frozen=True)
class PartCost:
    """How long recoveries were in one part."""

    name: str
    seconds: Estimate


@dataclass(frozen=True)
class Row:
    """One interval: `every` so many steps. None: there was no observation of it.

    step_s: a step without a save in flight. step_saving_s: one with a save in flight all along. stall_s, wait_s,
    background_s, save_bytes: of a save. contention_s: a save's extra step time. save_s: stall + wait + contention, what
    a save costs the training. overhead: save_s over the time of the interval's steps. parts: by the names in PARTS, and
    `unexplained`, which is no part. unexplained: share of whole_s. goodput: at the stated mean time between failures.
    """

    every: int
    runs: int
    kills: int
    exact: int
    met: int
    missed: int
    step_s: Estimate | None
    step_saving_s: Estimate | None
    stall_s: Estimate | None
    wait_s: Estimate | None
    background_s: Estimate | None
    contention_s: Estimate | None
    save_bytes: Estimate | None
    save_s: Estimate | None
    overhead: Estimate | None
    redo_steps: Spreading | None
    redo_samples: Spreading | None
    redo_s: Spreading | None
    lost_s: Spreading | None
    parts: tuple[PartCost, ...]
    whole_s: Spreading | None
    downtime_s: Spreading | None
    unexplained: Estimate | None
    goodput: Estimate | None


@dataclass(frozen=True)
class Point:
    """Of the model's curve: goodput to be expected if a save is due every `every` steps."""

    every: int
    goodput: float


@dataclass(frozen=True)
class Formula:
    """An interval that a formula gives: seconds of training between saves, and that in whole steps (at least 1)."""

    name: str
    interval_s: Estimate
    every: Estimate


@dataclass(frozen=True)
class Recommendation:
    """every: steps between saves with the greatest expected goodput, within the limits on lost work if there are any.

    bound_by: which of both decided. save_s, step_s, downtime_s, background_s: the costs that all of this is evaluated
    with, of all intervals together. unlimited: what it would be without limits. limit: the longest interval that meets
    them; None without limits, and 0 in `value` if none meets them. tried: shortest and longest interval that was run;
    outside of them it rests on the model alone.
    """

    every: Estimate
    bound_by: Literal["goodput", "limit"]
    unlimited: Estimate
    limit: Estimate | None
    goodput: Estimate
    formulas: tuple[Formula, ...]
    save_s: Estimate
    step_s: Estimate
    downtime_s: Estimate
    background_s: Estimate
    tried: tuple[int, int]
    curve: tuple[Point, ...]


@dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    every: tuple[int, ...]
    kills: int
    spread: Spread
    seed: int
    mtbf_s: float
    max_redo_s: float | None
    max_redo_steps: int | None
    resamples: int


@dataclass(frozen=True)
class Intervals:
    """The result. complete: False if some runs are still to be done. recommendation: None without the observations that
    it needs. notes: what the numbers do not say, in sentences.
    """

    format: str
    verdict: Verdict
    complete: bool
    asked: Asked
    workload: str
    ranks: int
    steps: int
    microbatches: int
    global_batch: int
    config_digest: str
    code_version: str
    reproduce: str
    rows: tuple[Row, ...]
    recommendation: Recommendation | None
    runs: tuple[Run, ...]
    kills: tuple[Kill, ...]
    notes: tuple[str, ...]
