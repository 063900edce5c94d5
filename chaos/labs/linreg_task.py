"""The training of `lab linreg`: y = 3x + 2 on 16 points, two parameters, SGD with momentum (reference A).

One list of sample ids is shuffled in place at the moment the next batch is needed and the list is used up, so the
position after the last batch of an epoch is 16, not 0; that also holds at step 0, before the first shuffle.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from chaos.diff.trace import Start, StepRecord
from chaos.errors import CheckpointRefused
from chaos.labs.choices import Fault
from chaos.labs.identity import check_identity, dataset_digest, identity
from chaos.labs.parts import backward, gradient_norm, load_optimizer, optimizer_json, plain, prints, trace_values
from storage.sealed import canonical, sha256_digest
from trainers.workloads.linreg import Line

FORMAT = "killpoint.lab.linreg/1"
ROWS, BATCH, SEED = 16, 4, 7
CONFIGURATION = {"batch": BATCH, "lr": 0.02, "momentum": 0.8, "seed": SEED}
X = [(i - 7.5) / 4 for i in range(ROWS)]
Y = [3 * x + 2 for x in X]
STATE = ("parameters", "optimizer", "step", "samplePosition", "sampleOrder", "rngState")


def expected_identity() -> dict[str, Any]:
    """Dataset, code, configuration and library versions as they are now."""
    digest = dataset_digest([[x, y] for x, y in zip(X, Y, strict=True)])
    return identity({"name": "y = 3x + 2", "rows": ROWS, "digest": digest}, CONFIGURATION)


class Training:
    """The live training. `records` has one entry for each step done here, `start` what it held before the first."""

    def __init__(self) -> None:
        self.model = Line()
        self.parameters: dict[str, torch.Tensor] = dict(self.model.named_parameters())
        self.optimizer = self._new_optimizer()
        self.generator = random.Random(SEED)
        self.order = list(range(ROWS))
        self.position = ROWS
        self.step = 0
        self.records: list[StepRecord] = []
        self.rows: list[dict[str, Any]] = []
        self.start = self._start(None)

    def _new_optimizer(self) -> torch.optim.SGD:
        lr, momentum = CONFIGURATION["lr"], CONFIGURATION["momentum"]
        return torch.optim.SGD(self.model.parameters(), lr=lr, momentum=momentum)

    def state(self) -> dict[str, Any]:
        """The whole state, as a checkpoint holds it."""
        return {
            "parameters": {name: parameter.item() for name, parameter in self.parameters.items()},
            "optimizer": optimizer_json(self.optimizer, self.parameters),
            "step": self.step,
            "samplePosition": self.position,
            "sampleOrder": list(self.order),
            "rngState": plain(self.generator.getstate()),
        }

    def body(self) -> dict[str, Any]:
        """A checkpoint."""
        return {"format": FORMAT, **self.state(), **expected_identity()}

    def mse(self) -> float:
        """Mean squared error over all points."""
        with torch.no_grad():
            x, y = _points(range(ROWS))
            return float(((self.model(x) - y) ** 2).mean())

    def run_to(self, target: int) -> None:
        """Updates until `target` of them are done in all."""
        while self.step < target:
            self._update()

    def _update(self) -> None:
        ids = self._next_batch()
        x, y = _points(ids)
        self.optimizer.zero_grad()
        loss = ((self.model(x) - y) ** 2).mean()
        backward(loss)
        lr = tuple(float(group["lr"]).hex() for group in self.optimizer.param_groups)
        self.optimizer.step()
        self.step += 1
        self.records.append(
            StepRecord(
                step=self.step, rank=0, attempt=self.start.attempt, ids_digest=sha256_digest(canonical(ids)), lr=lr,
                loss=float(loss.item()).hex(), state=self._prints(), ids=tuple(ids),
                gradient_norm=gradient_norm(self.parameters).hex(), samples_seen=self.step * BATCH,
                values=self._values(),
            )
        )  # fmt: skip
        self.rows.append({"step": self.step, "ids": ids, "lr": self.optimizer.param_groups[0]["lr"],
                          "loss": float(loss.item()), **self.state()["parameters"], "samplePosition": self.position})

    def _next_batch(self) -> list[int]:
        if self.position == ROWS:
            self.generator.shuffle(self.order)
            self.position = 0
        ids = self.order[self.position : self.position + BATCH]
        self.position += BATCH
        return ids

    def _prints(self) -> dict[str, str]:
        state = self.state()
        progress = {name: state[name] for name in ("step", "samplePosition", "sampleOrder")}
        return prints({"model": state["parameters"], "optimizer": state["optimizer"], "progress": progress,
                       "rng.python": state["rngState"]})

    def _values(self) -> dict[str, tuple[str, ...]]:
        return trace_values(self.parameters, {}, self.optimizer)

    def _start(self, checkpoint: str | None) -> Start:
        cursor = (self.step * BATCH - 1) // ROWS * ROWS + self.position
        attempt = int(checkpoint is not None)
        return Start(attempt, 0, self.step, cursor, self._prints(), checkpoint, self._values())

    @classmethod
    def restored(cls, body: Mapping[str, Any], path: Path, digest: str, fault: Fault | None) -> Training:
        """The state of a checkpoint, with one fault. Raises CheckpointRefused for what may not be continued."""
        check_identity(body, FORMAT, expected_identity(), path)
        training = cls()
        try:
            training._load(body)
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
            raise CheckpointRefused(f"{path}: its state does not fit: {type(error).__name__}: {error}") from error
        training._check(body, path)
        if fault is Fault.DROP_OPTIMIZER:
            training.optimizer = training._new_optimizer()
        elif fault is Fault.RESET_CURSOR:
            training.position = 0
        elif fault is Fault.RESET_RNG:
            training.generator = random.Random(SEED)
        training.start = training._start(digest)
        return training

    def _load(self, body: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.fill_(body["parameters"][name])
        load_optimizer(self.optimizer, body["optimizer"])
        self.step, self.position, self.order = body["step"], body["samplePosition"], list(body["sampleOrder"])
        version, words, gauss = body["rngState"]
        self.generator.setstate((version, tuple(words), gauss))

    def _check(self, body: Mapping[str, Any], path: Path) -> None:
        """What was loaded is all that was saved, and all of one moment: order and generator are those of the step."""
        if canonical(self.state()) != canonical({name: body[name] for name in STATE}):
            raise CheckpointRefused(f"{path}: its state, once loaded, is not what the file says")
        if type(self.step) is not int or self.step < 0:
            raise CheckpointRefused(f"{path}: step is {self.step!r:.40}, no number of updates")
        if self.step > 0 and body["optimizer"]["history"].keys() != self.parameters.keys():
            raise CheckpointRefused(f"{path}: step is {self.step}, but the optimizer has no history of each parameter")
        reference = Training.without_updates(self.step)
        for name, found, expected in (
            ("samplePosition", self.position, reference.position),
            ("sampleOrder", self.order, reference.order),
            ("rngState", self.generator.getstate(), reference.generator.getstate()),
        ):
            if found != expected:
                raise CheckpointRefused(f"{path}: {name} is not that of step {self.step}: the parts of this state "
                                        "are not of one moment; restore it from a copy")

    @classmethod
    def without_updates(cls, step: int) -> Training:
        """Only the reading of the samples of `step` updates."""
        training = cls()
        for _ in range(step):
            training._next_batch()
        return training


def _points(ids: list[int] | range) -> tuple[torch.Tensor, torch.Tensor]:
    """x and y, float64[len(ids)]."""
    return (torch.tensor([X[i] for i in ids], dtype=torch.float64),
            torch.tensor([Y[i] for i in ids], dtype=torch.float64))
