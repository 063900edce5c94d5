"""What state is in flight at a kill point: what a kill there may lose, or leave behind for a recovery to meet. Pure."""

from __future__ import annotations

from chaos.points import CATALOGUE

_BESIDE = "beside it the save of an earlier step, if one is in the background"
_SHARD_STRAY = "a shard that no manifest names; training goes on beside it"
_SEGMENT_STRAY = "a shard and a ledger segment that no manifest names; training goes on beside it"
_TEMPORARY = "one checkpoint, whole on disk; its manifest is a temporary file, a stray"
_UNPUBLISHED = "one checkpoint with its manifest, which is not in the log: a stray"
_NO_ENTRY = "one entry of the log, which has no place in it: what it says has not happened"
_ENTRY = "nothing of the entry: it is in the log. What its writer does next has not begun"
_LEFTOVERS = "shards that the log says are retired: what is left of them is never chosen, and only takes room"

_OF_GROUP = {
    "step": f"the update and its partial gradients; {_BESIDE}",
    "save": "this rank's part of one checkpoint; training goes on beside it",
    "commit": "one checkpoint that is whole on disk and not published",
    "log": "one entry of the commit log",
    "retire": "the shards of a checkpoint that is no longer kept",
    "recovery": "the candidate that is loaded, and the state that it becomes",
    "supervision": "the attempt that ends or begins; nothing that trains",
    "data": "one block of samples on its way to a rank; another task reads it again",
    "standby": "nothing of the run",
    "user": "what the code under test is doing",
}
_AT = {
    "step.begin": f"nothing of the step; {_BESIDE}",
    "microbatch.fetched": f"the microbatch, and the gradients of those before it; {_BESIDE}",
    "microbatch.forward": f"the microbatch's activations, and the gradients of those before it; {_BESIDE}",
    "microbatch.backward": f"the gradients of the microbatches so far; {_BESIDE}",
    "reduce.before": f"this rank's gradients of the whole step, which no other rank has; {_BESIDE}",
    "reduce.after": f"the summed gradients; other ranks may finish the update; {_BESIDE}",
    "optimizer.before": f"the summed gradients; other ranks may finish the update; {_BESIDE}",
    "optimizer.after": f"new parameters beside the old schedule, counter and cursor; {_BESIDE}",
    "scheduler.after": f"new parameters and schedule beside the old counter and cursor; {_BESIDE}",
    "step.end": f"an update that is finished and in no checkpoint yet; {_BESIDE}",
    "save.staged": "a copy of the state in memory; the save before is published",
    "save.queued": "a copy of the state in memory, or what the saver thread has made of it by now",
    **dict.fromkeys(("shard.opened", "shard.half", "shard.written", "shard.data_synced", "shard.synced"), _SHARD_STRAY),
    **dict.fromkeys(("ledger.opened", "ledger.written", "ledger.data_synced", "ledger.synced"), _SEGMENT_STRAY),
    "save.reported": "a durable part of a checkpoint, of which the committer does not know",
    "save.done": "nothing of the save: the checkpoint is published; training goes on beside it",
    "commit.collected": "one checkpoint, durable in parts, of which nothing was verified",
    "commit.read_back": "one checkpoint, verified, without a manifest",
    **dict.fromkeys(("manifest.before_write", "manifest.before_sync", "manifest.before_link"), _TEMPORARY),
    **dict.fromkeys(("manifest.after_link", "manifest.after_unlink", "manifest.written"), _UNPUBLISHED),
    "publish.before": _UNPUBLISHED,
    "publish.after": "nothing of the checkpoint: it is published; the ranks that wait for it have not heard so",
    **dict.fromkeys(("log.before_create", "log.before_write", "log.before_sync", "log.before_link"), _NO_ENTRY),
    **dict.fromkeys(("log.after_link", "log.after_unlink"), _ENTRY),
    "retire.before": "nothing: the checkpoint is published, and no older one is touched",
    **dict.fromkeys(("retire.logged", "retire.listed", "retire.after_unlink", "retire.between"), _LEFTOVERS),
    "retire.after": "nothing: the retired shards are gone",
    "recover.joining": "a process group that others of it may wait in; nothing is loaded",
    "recover.joined": "the new process group; nothing is loaded",
    "recover.load.half": "a candidate in memory, half verified; the store is only read",
    "recover.loaded": "a candidate in memory, verified; not yet chosen in the log, and no state has changed",
    "recover.restored": "the restored state, as the checkpoint has it",
    "recover.pipeline": "the restored state, and the first samples that were read ahead",
    "recover.first_step": "the first update after the restore, in no checkpoint yet",
    "recover.detected": "the attempt that failed: the log still holds it for the latest; its survivors run",
    "recover.fence.before": "the attempt that failed, if there was one: its processes are gone, and it is not fenced",
    "recover.fence.after": "an attempt without processes of its own that has chosen nothing",
    "recover.formed": "an attempt whose ranks hold a candidate, or none, and that has chosen nothing",
    "recover.choose.before": "a choice that is not in the log; the ranks hold what was chosen",
    "recover.choose.after": "nothing: the choice is in the log; the ranks were not told to train",
    "supervisor.training": "what the ranks and the committer do: they go on until somebody ends them",
}  # fmt: skip


def in_flight(point: str) -> str:
    """What a kill at this point may lose or leave behind; of a point of the code under test, what is known of any."""
    if point in _AT:
        return _AT[point]
    return _OF_GROUP[CATALOGUE[point].group if point in CATALOGUE else "user"]
