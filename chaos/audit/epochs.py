"""Part of invariant 3: each finished epoch holds every sample once, by the ids alone, whatever the plan says."""

from __future__ import annotations

import numpy as np

from chaos.audit.evidence import I64


class Epochs:
    """Whether each finished epoch has every sample once, by the ids alone, whatever the plan says."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._seen = np.zeros(rows, np.bool_)
        self._epoch = 0
        self._faults: dict[int, str] = {}

    def take(self, position: I64, sample_id: I64) -> None:
        """Rows in order of position, each position once in all."""
        if not self._rows:
            return
        epochs = position // self._rows
        for epoch in np.unique(epochs).tolist():
            if epoch != self._epoch:
                self._seen[:] = False
                self._epoch = epoch
            distinct, times = np.unique(sample_id[epochs == epoch], return_counts=True)
            real = (distinct >= 0) & (distinct < self._rows)
            for alien in distinct[~real][:1].tolist():
                self._faults.setdefault(epoch, f"epoch {epoch} holds sample {alien}, which the dataset lacks")
            distinct, times = distinct[real], times[real]
            for again in distinct[(times > 1) | self._seen[distinct]][:1].tolist():
                self._faults.setdefault(epoch, f"epoch {epoch} holds sample {again} more than once")
            self._seen[distinct] = True

    def faults(self, cursor: int) -> list[str]:
        """Of epochs that are finished: a sample that comes twice means, by counting, that another is missing."""
        return [text for epoch, text in sorted(self._faults.items()) if (epoch + 1) * self._rows <= cursor]
