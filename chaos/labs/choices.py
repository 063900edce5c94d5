"""What the labs can do wrongly on purpose, by the names that the command line has for it."""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """What `lab linreg` does wrongly when it restores a checkpoint."""

    DROP_OPTIMIZER = "drop-optimizer"  # a fresh optimizer
    RESET_CURSOR = "reset-cursor"  # the position in the order in use becomes 0
    RESET_RNG = "reset-rng"  # the generator starts anew; the order in use stays


class Omission(StrEnum):
    """A part that `lab resume` leaves out when it restores: it stays as a fresh process builds it."""

    OPTIMIZER = "optimizer"  # both moments, the count of updates, and the rate, which is kept in its groups
    SCHEDULER = "scheduler"
    CURSOR = "cursor"  # the position in the order in use becomes 0
    PYTHON_RNG = "python-rng"
    NUMPY_RNG = "numpy-rng"
    TORCH_RNG = "torch-rng"


GENERATORS = (Omission.PYTHON_RNG, Omission.NUMPY_RNG, Omission.TORCH_RNG)
