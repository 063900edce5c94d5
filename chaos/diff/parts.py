"""What the parts of a record and of a state are, by name. Pure.

Runs name the parts of their state as `trainers.parts` does; labs use the same words or near ones (`python-rng`,
`parameters`, `samplePosition`), so a part's role is found from its name.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What a part does in training, which decides what its loss looks like."""

    SAMPLES = "sample ids"
    RATE = "learning rate"
    LOSS = "loss"
    NORM = "gradient norm"
    SKIPPED = "skipped"
    GRADIENTS = "gradients"
    OPTIMIZER = "optimizer"
    MODEL = "model"
    BUFFERS = "buffers"
    SCALER = "scaler"
    SCHEDULER = "scheduler"
    GENERATOR = "generator"
    ORDER = "order"
    CURSOR = "cursor"
    SEEN = "samples seen"
    OTHER = "other"


RECORDED = frozenset({Role.SAMPLES, Role.RATE, Role.LOSS, Role.NORM, Role.SKIPPED, Role.SEEN})
"""Fields of a step's record; all other roles are parts of a state."""

EFFECTS = frozenset({Role.SAMPLES, Role.RATE, Role.LOSS, Role.NORM, Role.SKIPPED, Role.MODEL})
"""What an update is made of and what it makes: if one of these differs, the update is another one."""

BY_UPDATES = frozenset({Role.MODEL, Role.OPTIMIZER, Role.SCALER, Role.SCHEDULER, Role.CURSOR})
"""Parts of a state that only an update changes: inside of a step they are still as after the last one."""

_ORDER = {role: place for place, role in enumerate(Role)}
_WORDS = (
    (Role.GENERATOR, ("rng", "generator")),
    (Role.GRADIENTS, ("grad", "accum")),
    (Role.SCHEDULER, ("schedul",)),
    (Role.SCALER, ("scaler",)),
    (Role.OPTIMIZER, ("optim", "momentum", "moment", "velocity")),
    (Role.BUFFERS, ("buffer",)),
    (Role.MODEL, ("model", "param", "weight")),
    (Role.ORDER, ("order", "permutation")),
    (Role.CURSOR, ("progress", "cursor", "position")),
)
_FIELDS = {role.value: role for role in RECORDED}


def role_of(part: str) -> Role:
    """The role of a record's field, of a part of a state, or of a value inside of a part (`optimizer/w/buffer`)."""
    if part in _FIELDS:
        return _FIELDS[part]
    for name in (part.partition("/")[0].lower(), part.lower()):
        for role, words in _WORDS:
            if any(word in name for word in words):
                return role
    return Role.OTHER


def part_of(value: str) -> str:
    """The part of the state that a value belongs to: `buffers` for `buffer/mean`, `model` for `model/w`."""
    prefix = value.partition("/")[0]
    return {"buffer": "buffers", "best_buffer": "best.buffers", "gradient": "gradients"}.get(prefix, prefix)


def place(part: str) -> tuple[int, str]:
    """Sorts parts in the order in which a step uses them: what comes first cannot be the consequence of the rest."""
    return _ORDER[role_of(part)], part


def generator_name(part: str) -> str:
    """`python` for `rng.python` and for `python-rng`."""
    words = [word for word in part.lower().replace("-", ".").replace("_", ".").replace("/", ".").split(".")
             if word not in ("rng", "generator", "state", "rngstate", "")]
    return " ".join(words) or part
