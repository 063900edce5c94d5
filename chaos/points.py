"""The catalogue of kill points: every named place at which execution can be stopped, as data.

Owns nothing at run time: the modules below call `reached(name)`; what a name means is written here once.
Names that begin with `user.` belong to the code that is tested and are not in the catalogue.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

USER_PREFIX = "user."


class Role(StrEnum):
    """What a process is in an attempt."""

    RANK = "rank"
    COMMITTER = "committer"
    SUPERVISOR = "supervisor"
    STANDBY = "standby"
    DATA = "data"

    @property
    def has_rank(self) -> bool:
        """Whether a process of this role serves one rank."""
        return self in (Role.RANK, Role.DATA)


class Pace(StrEnum):
    """How often a point is passed by one process in one attempt."""

    MICROBATCH = "microbatch"
    STEP = "step"
    SAVE = "save"
    ONCE = "once"
    VARIES = "varies"


@dataclass(frozen=True, slots=True)
class Point:
    """One kill point: who passes it, when, and how often in an attempt."""

    name: str
    roles: tuple[Role, ...]
    group: str
    pace: Pace
    description: str

    @property
    def counted(self) -> bool:
        """Whether passages can be recorded: a task of Ray Data has no history to write them to."""
        return self.roles != (Role.DATA,)


def _group(group: str, roles: str, *rows: tuple[str, Pace, str]) -> list[Point]:
    members = tuple(Role(role) for role in roles.split())
    return [Point(name, members, group, pace, description) for name, pace, description in rows]


_ALL: list[Point] = [
    *_group(
        "step",
        "rank",
        ("step.begin", Pace.STEP, "before the first microbatch of a step is fetched"),
        ("microbatch.fetched", Pace.MICROBATCH, "the microbatch is in memory, nothing is computed"),
        ("microbatch.forward", Pace.MICROBATCH, "after the forward pass, before the backward pass"),
        ("microbatch.backward", Pace.MICROBATCH, "gradients of this microbatch are accumulated"),
        ("reduce.before", Pace.STEP, "all microbatches are done, gradients are not yet summed over ranks"),
        ("reduce.after", Pace.STEP, "gradients are summed over ranks, no parameter has changed"),
        ("optimizer.before", Pace.STEP, "before the optimizer changes the parameters"),
        ("optimizer.after", Pace.STEP, "parameters have changed, the scheduler has not stepped"),
        ("scheduler.after", Pace.STEP, "the scheduler has stepped, counter and cursor have not"),
        ("step.end", Pace.STEP, "counter, cursor and ledger stand after the update"),
    ),
    *_group(
        "save",
        "rank",
        ("save.staged", Pace.SAVE, "the state is copied into the staging buffers"),
        ("save.queued", Pace.SAVE, "the saver thread has the staged state, training goes on"),
        ("shard.opened", Pace.SAVE, "the shard file exists and is empty"),
        ("shard.half", Pace.SAVE, "half of the shard's bytes are written"),
        ("shard.written", Pace.SAVE, "all of the shard's bytes are written, none are synced"),
        ("shard.data_synced", Pace.SAVE, "the shard's bytes are durable, its name is not"),
        ("shard.synced", Pace.SAVE, "the shard is durable"),
        ("ledger.opened", Pace.SAVE, "the ledger segment exists and is empty"),
        ("ledger.written", Pace.SAVE, "the ledger segment is written, not synced"),
        ("ledger.data_synced", Pace.SAVE, "the ledger segment's bytes are durable, its name is not"),
        ("ledger.synced", Pace.SAVE, "the ledger segment is durable"),
        ("save.reported", Pace.SAVE, "the report is about to be handed to the committer, which does not have it yet"),
        ("save.done", Pace.SAVE, "the checkpoint is published, and the saver thread is done with it"),
    ),
    *_group(
        "commit",
        "committer",
        ("commit.collected", Pace.SAVE, "every rank has reported, nothing is read back"),
        ("commit.read_back", Pace.SAVE, "every file was read back against its digest"),
        ("manifest.before_write", Pace.SAVE, "a temporary file for the manifest exists and is empty"),
        ("manifest.before_sync", Pace.SAVE, "the manifest is written under a temporary name, not synced"),
        ("manifest.before_link", Pace.SAVE, "the manifest is durable under a temporary name"),
        ("manifest.after_link", Pace.SAVE, "the manifest has its name and its temporary one"),
        ("manifest.after_unlink", Pace.SAVE, "the manifest has only its name, the folder is not synced"),
        ("manifest.written", Pace.SAVE, "the manifest is durable, but not in the log: a stray"),
        ("publish.before", Pace.SAVE, "before the publish entry is appended"),
        ("publish.after", Pace.SAVE, "the checkpoint is published"),
    ),
    *_group(
        "log",
        "committer supervisor",
        ("log.before_create", Pace.VARIES, "the log is read, nothing of the next entry exists"),
        ("log.before_write", Pace.VARIES, "a temporary file for the entry exists and is empty"),
        ("log.before_sync", Pace.VARIES, "the entry is written under a temporary name, not synced"),
        ("log.before_link", Pace.VARIES, "the entry is durable under a temporary name, outside the log"),
        ("log.after_link", Pace.VARIES, "the entry has its name, so it is in the log; the folder is not synced"),
        ("log.after_unlink", Pace.VARIES, "the temporary name is gone, the folder is not synced"),
    ),
    *_group(
        "retire",
        "committer",
        ("retire.before", Pace.VARIES, "before the retire entry is appended"),
        ("retire.logged", Pace.VARIES, "the retire entry is in the log, every shard is still there"),
        ("retire.listed", Pace.VARIES, "the shards to remove are known, every one is still there"),
        ("retire.after_unlink", Pace.VARIES, "one retired shard's name is gone, the folder is not synced"),
        ("retire.between", Pace.VARIES, "after one retired shard is removed durably"),
        ("retire.after", Pace.VARIES, "every retired shard is removed"),
    ),
    *_group(
        "recovery",
        "rank",
        ("recover.joining", Pace.ONCE, "the rank's input starts, and it is about to join the new process group"),
        ("recover.joined", Pace.ONCE, "the rank is in the new process group"),
        ("recover.load.half", Pace.VARIES, "half of a candidate's files are read and verified"),
        ("recover.loaded", Pace.VARIES, "the candidate is read and verified, no state has changed"),
        ("recover.restored", Pace.ONCE, "model, optimizer, scheduler and generators are restored"),
        ("recover.pipeline", Pace.ONCE, "the input pipeline starts at the cursor"),
        ("recover.first_step", Pace.ONCE, "the first update after the restore is done"),
    ),
    *_group(
        "supervision",
        "supervisor",
        ("recover.detected", Pace.VARIES, "a death or a hang is known, nothing is done about it"),
        ("recover.fence.before", Pace.ONCE, "every old process is gone, the old attempt is not fenced"),
        ("recover.fence.after", Pace.ONCE, "the fence is in the log"),
        ("recover.formed", Pace.ONCE, "the new group of processes stands"),
        ("recover.choose.before", Pace.ONCE, "a candidate is chosen, nothing is recorded"),
        ("recover.choose.after", Pace.ONCE, "the choice is in the log"),
        ("supervisor.training", Pace.ONCE, "every rank was told to train"),
    ),
    *_group("data", "data", ("data.read", Pace.VARIES, "a Ray Data task has read a block of samples")),
    *_group("standby", "standby", ("standby.warm", Pace.ONCE, "a standby is warm and waits")),
]

CATALOGUE: Mapping[str, Point] = MappingProxyType({point.name: point for point in _ALL})


def is_user_point(name: str) -> bool:
    """Whether the name belongs to the code under test: `user.` and at least one more character."""
    return name.startswith(USER_PREFIX) and len(name) > len(USER_PREFIX)


def nearest(name: str) -> str | None:
    """The catalogue's name nearest to `name`, None if nothing is near."""
    found = difflib.get_close_matches(name, list(CATALOGUE), n=1, cutoff=0.5)
    return found[0] if found else None
