"""The data and the settings of `lab resume`: 24 rows of a synthetic relation (reference B). Without torch."""

from __future__ import annotations

from typing import Any

from chaos.errors import LabError
from chaos.labs.identity import dataset_digest, identity

ROWS, FEATURES, BATCH, SEED, THREADS = 24, 2, 4, 20, 1
HIDDEN, DROPOUT, MEAN_WEIGHT = 8, 0.25, 0.1
LR, STEP_SIZE, GAMMA = 0.03, 3, 0.5
GAIN, NOISE = 0.05, 0.02
FORMAT = "killpoint.lab.resume/1"
CONFIGURATION = {
    "batch": BATCH, "hidden": HIDDEN, "dropout": DROPOUT, "mean_weight": MEAN_WEIGHT, "optimizer": "Adam", "lr": LR,
    "scheduler": "StepLR", "step_size": STEP_SIZE, "gamma": GAMMA, "gain": GAIN, "noise": NOISE, "seed": SEED,
    "threads": THREADS, "device": "cpu", "dtype": "float64",
}  # fmt: skip
DATASET_DIGEST = "sha256:fd4db493617e91470221e2217c6498651e529ca9ddccc286619f70a550ac5988"


def rows() -> list[list[float]]:
    """Two features and the target a·b + a/2 − b/4: only sums, products and quotients, so equal on every machine."""
    pairs = [((i - 11.5) / 12, (5 * i % ROWS - 11.5) / 12) for i in range(ROWS)]
    return [[a, b, a * b + a / 2 - b / 4] for a, b in pairs]


def expected_identity() -> dict[str, Any]:
    """Dataset, code, configuration and library versions as they are now. Raises LabError for other rows."""
    digest = dataset_digest(rows())
    if digest != DATASET_DIGEST:
        raise LabError(f"the rows of lab resume have digest {digest}, not {DATASET_DIGEST}: they were changed")
    return identity({"name": "a·b + a/2 − b/4", "rows": ROWS, "digest": digest}, CONFIGURATION)
