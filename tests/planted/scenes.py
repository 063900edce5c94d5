"""What several planted bugs share: how their runs are killed, and what the verdict of a latent control lists."""

from __future__ import annotations

from typing import Any

NO_RESTART = "nothing was killed: no recovery was seen"
FROM_NOTHING = "every restart began from nothing"
NONE_IN_FLIGHT = "no save was in flight at any kill"
NONE_REJECTED = "no candidate was ever rejected"
NONE_RETIRED = "nothing was ever retired"
SCALES = {"scaler_scale": 2.0**124, "scaler_growth_interval": 1}  # doubled with each update until it overflows


def struck(step: int = 5, save: int = 1, rank: int = 1, microbatches: int = 2, attempt: int = 0) -> dict[str, Any]:
    """A rank dies in the forward pass that begins `step`, and that save of its own is published by then for sure."""
    hit = (step - 1) * microbatches + 1
    return kill("microbatch.forward", hit, rank=rank, attempt=attempt, gate=gate("save.done", save, rank=rank))


def gate(point: str, hit: int = 1, *, role: str = "rank", rank: int | None = None) -> dict[str, Any]:
    """A passage that is held until the kill has struck."""
    return {"role": role, "point": point, "hit": hit, **({} if rank is None else {"rank": rank})}


def kill(
    point: str, hit: int = 1, *, attempt: int = 0, role: str = "rank", rank: int | None = None, kind: str = "sigkill",
    gate: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A fault as the experiment file has it."""
    at = {"attempt": attempt, "role": role, "point": point, "hit": hit, **({} if rank is None else {"rank": rank})}
    return {"kind": kind, "at": at, **({} if gate is None else {"gate": gate})}
