"""What a run of nine steps passes, by hand, and results of trials."""

from __future__ import annotations

from chaos.check.order import Planned
from chaos.points import Role
from chaos.schema import RunSettings
from chaos.sweep.outline import Outline
from chaos.sweep.results import Ending, Result

RUN = RunSettings(workload="tiny", ranks=2, global_batch=8, microbatches=2, steps=9, save_every=3, keep=2)
TRAINING = {"step.begin": 9, "microbatch.forward": 18, "reduce.before": 9, "user.mine": 18}
SAVES = {"save.staged": 3, "shard.half": 3, "save.done": 3}
RECOVERY = {"recover.joined": 1, "recover.restored": 1, "step.begin": 6}
OUTLINE = Outline(
    RUN,
    {
        (Role.RANK, 0): {**TRAINING, **SAVES, "recover.joined": 1},
        (Role.RANK, 1): {**TRAINING, **SAVES, "recover.joined": 1},
        (Role.COMMITTER, None): {"publish.before": 3, "log.after_link": 4, "retire.before": 1},
        (Role.SUPERVISOR, None): {"recover.fence.after": 1},
        (Role.STANDBY, None): {"standby.warm": 1},
        (Role.DATA, 0): {"data.read": 2},
    },
    {(Role.RANK, 0): RECOVERY, (Role.RANK, 1): RECOVERY, (Role.SUPERVISOR, None): {"log.after_link": 1}},
    {"recover.detected": 1},
    ("publish", "publish", "publish", "retire"),
)  # fmt: skip
SPOTS = {
    *((Role.RANK, point) for point in (*TRAINING, *SAVES, "recover.joined", "recover.restored")),
    (Role.COMMITTER, "publish.before"), (Role.COMMITTER, "log.after_link"), (Role.COMMITTER, "retire.before"),
    (Role.SUPERVISOR, "recover.fence.after"), (Role.SUPERVISOR, "recover.detected"),
    (Role.SUPERVISOR, "log.after_link"), (Role.STANDBY, "standby.warm"), (Role.DATA, "data.read"),
}  # fmt: skip


def done(planned: Planned, struck: int | None = None) -> Result:
    point, (role, rank) = planned.trial.where
    faults = len(planned.trial.faults)
    seen = faults if struck is None else struck
    return Result(planned.trial.name, point, role.value, rank, Ending.VALID, faults, seen, None, (), 1.0)
