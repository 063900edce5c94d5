"""The training of `lab resume` and its checkpoint. One in a process: torch's generator is the process's own.

Three generators all matter: Python's draws a gain on the inputs, NumPy's PCG64 noise and the order of samples, torch's
the dropout. The order is drawn at the moment the next batch is needed and the last one is used up.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from chaos.diff.trace import Start, StepRecord
from chaos.errors import CheckpointRefused
from chaos.labs.choices import Omission
from chaos.labs.identity import check_identity
from chaos.labs.parts import (
    backward,
    gradient_norm,
    load_optimizer,
    optimizer_json,
    plain,
    prints,
    tensor_json,
    tensor_of,
    trace_values,
)
from chaos.labs.resume_data import (
    BATCH,
    FEATURES,
    FORMAT,
    GAIN,
    GAMMA,
    LR,
    NOISE,
    ROWS,
    SEED,
    STEP_SIZE,
    expected_identity,
    rows,
)
from chaos.labs.resume_network import Network
from storage.sealed import canonical, sha256_digest


class Training:
    """The live training. `rows` and `records`: one entry for each step done here."""

    def __init__(self) -> None:
        torch.manual_seed(SEED)
        self.python = random.Random(SEED)
        self.numpy = np.random.Generator(np.random.PCG64(SEED))
        self.model = Network()
        self.parameters: dict[str, torch.Tensor] = dict(self.model.named_parameters())
        self.buffers = dict(self.model.named_buffers())
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=LR)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, STEP_SIZE, GAMMA)
        self.order, self.cursor = list(range(ROWS)), ROWS
        self.step, self.samples_seen = 0, 0
        self.loss_history: list[float] = []
        self.data = torch.tensor(rows(), dtype=torch.float64)
        self.rows: list[dict[str, Any]] = []
        self.records: list[StepRecord] = []
        self.start = self._start(None)

    @property
    def rate(self) -> float:
        """Of the next update."""
        return float(self.optimizer.param_groups[0]["lr"])

    def state(self) -> dict[str, Any]:
        """The whole state, as a checkpoint holds it."""
        return {
            "parameters": {name: tensor_json(parameter) for name, parameter in self.parameters.items()},
            "buffers": {name: tensor_json(buffer) for name, buffer in self.buffers.items()},
            "optimizer": optimizer_json(self.optimizer, self.parameters),
            "scheduler": plain(self.scheduler.state_dict()),
            "progress": {"step": self.step, "cursor": self.cursor, "order": list(self.order),
                         "samples_seen": self.samples_seen, "loss_history": list(self.loss_history)},
            "rng": {"python": plain(self.python.getstate()), "numpy": plain(self.numpy.bit_generator.state),
                    "torch": torch.get_rng_state().numpy().tobytes().hex()},
        }  # fmt: skip

    def body(self) -> dict[str, Any]:
        """A checkpoint."""
        return {"format": FORMAT, **self.state(), **expected_identity()}

    def run(self, updates: int) -> None:
        """So many more updates."""
        for _ in range(updates):
            self._update()

    def evaluation(self) -> float:
        """Mean squared error over all rows, without gain, noise and dropout. Changes nothing."""
        self.model.eval()
        with torch.no_grad():
            mse = ((self.model(self.data[:, :FEATURES]) - self.data[:, FEATURES]) ** 2).mean()
        self.model.train()
        return float(mse)

    def next_draws(self) -> dict[str, list[float]]:
        """What each generator would draw next; then all are as they were."""
        with self._generators_put_back():
            return {"python": [self.python.random() for _ in range(3)], "numpy": self.numpy.random(3).tolist(),
                    "torch": torch.rand(3, dtype=torch.float64).tolist()}

    @contextmanager
    def _generators_put_back(self) -> Iterator[None]:
        saved = self.python.getstate(), self.numpy.bit_generator.state, torch.get_rng_state()
        try:
            yield
        finally:
            self.python.setstate(saved[0])
            self.numpy.bit_generator.state = saved[1]
            torch.set_rng_state(saved[2])

    def _update(self) -> None:
        ids, gain, noise = self._draw()
        batch = self.data[ids]
        self.optimizer.zero_grad()
        predicted = self.model(batch[:, :FEATURES] * gain + noise)
        loss = ((predicted - batch[:, FEATURES]) ** 2).mean()
        backward(loss)
        rate = self.rate
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        self.samples_seen += BATCH
        self.loss_history.append(float(loss.item()))
        self._record(ids, rate)

    def _draw(self) -> tuple[list[int], float, torch.Tensor]:
        """Sample ids, the gain, and the noise, float64[4, 2], of the next update."""
        if self.cursor == ROWS:
            self.order, self.cursor = self.numpy.permutation(ROWS).tolist(), 0
        ids = self.order[self.cursor : self.cursor + BATCH]
        self.cursor += BATCH
        noise = torch.from_numpy(self.numpy.normal(0.0, NOISE, (BATCH, FEATURES)))
        return ids, 1 + self.python.uniform(-GAIN, GAIN), noise

    def _record(self, ids: list[int], rate: float) -> None:
        loss = self.loss_history[-1]
        self.records.append(
            StepRecord(
                step=self.step, rank=0, attempt=self.start.attempt, ids_digest=sha256_digest(canonical(ids)),
                lr=(rate.hex(),), loss=loss.hex(), state=self._prints(), ids=tuple(ids),
                gradient_norm=gradient_norm(self.parameters).hex(), samples_seen=self.samples_seen,
                values=trace_values(self.parameters, self.buffers, self.optimizer),
            )
        )  # fmt: skip
        tensors = {"parameters": self.parameters, "buffers": self.buffers}
        values = {part: {name: tensor_json(t) for name, t in named.items()} for part, named in tensors.items()}
        self.rows.append({"step": self.step, "ids": ids, "rate": rate, "loss": loss, **values})

    def _prints(self) -> dict[str, str]:
        state = self.state()
        generators = {f"rng.{name}": value for name, value in state["rng"].items()}
        return prints({**state, "model": state["parameters"], **generators})

    def _start(self, checkpoint: str | None) -> Start:
        cursor = (self.samples_seen - 1) // ROWS * ROWS + self.cursor
        values = trace_values(self.parameters, self.buffers, self.optimizer)
        return Start(int(checkpoint is not None), 0, self.step, cursor, self._prints(), checkpoint, values)

    @classmethod
    def restored(cls, body: Mapping[str, Any], path: Path, digest: str, omit: Collection[Omission]) -> Training:
        """The state of a checkpoint without the omitted parts. Raises CheckpointRefused for what is not whole."""
        check_identity(body, FORMAT, expected_identity(), path)
        training = cls()
        try:
            training._load(body, ())
        except (KeyError, ValueError, TypeError, RuntimeError, AttributeError, IndexError) as error:
            raise CheckpointRefused(f"{path}: its state does not fit: {type(error).__name__}: {error}") from error
        training._check(body, path)
        if omit:  # only now: what is omitted must be sound, too
            training = cls()
            training._load(body, omit)
        training.start = training._start(digest)
        return training

    def _load(self, body: Mapping[str, Any], omit: Collection[Omission]) -> None:
        with torch.no_grad():
            for part, named in (("parameters", self.parameters), ("buffers", self.buffers)):
                for name, tensor in named.items():
                    tensor.copy_(tensor_of(body[part][name]))
        if Omission.SCHEDULER not in omit:
            self.scheduler.load_state_dict(body["scheduler"])
        if Omission.OPTIMIZER not in omit:
            load_optimizer(self.optimizer, body["optimizer"])
        progress, generators = body["progress"], body["rng"]
        self.step, self.samples_seen = progress["step"], progress["samples_seen"]
        self.order, self.loss_history = list(progress["order"]), list(progress["loss_history"])
        self.cursor = 0 if Omission.CURSOR in omit else progress["cursor"]
        if Omission.PYTHON_RNG not in omit:
            version, words, gauss = generators["python"]
            self.python.setstate((version, tuple(words), gauss))
        if Omission.NUMPY_RNG not in omit:
            self.numpy.bit_generator.state = generators["numpy"]
        if Omission.TORCH_RNG not in omit:
            torch.set_rng_state(torch.tensor(list(bytes.fromhex(generators["torch"])), dtype=torch.uint8))

    def _check(self, body: Mapping[str, Any], path: Path) -> None:
        """What was loaded is all that was saved, and of one moment, as far as counts and generators tell."""
        state = self.state()
        for part, value in state.items():
            if canonical(value) != canonical(body[part]):
                raise CheckpointRefused(f"{path}: its {part}, once loaded, are not what the file says")
        step = self.step
        if type(step) is not int or step != len(self.loss_history):
            raise CheckpointRefused(f"{path}: step is {step!r:.40}, with a history of {len(self.loss_history)} losses: "
                                    "the parts of this state are not of one moment; restore it from a copy")
        drawn = Training._only_drawn(step)
        history = state["optimizer"]["history"]
        updates = {history[name]["step"]["values"][0] for name in history} | {float(step)} if step else {0.0}
        for what, found, expected in (
            ("samples_seen", self.samples_seen, step * BATCH),
            ("cursor", self.cursor, drawn["progress"]["cursor"]),
            ("order", self.order, drawn["progress"]["order"]),
            ("count of the scheduler", self.scheduler.last_epoch, step),
            ("rate", self.rate, LR * GAMMA ** (step // STEP_SIZE)),
            ("parameters with a history", set(history), set(self.parameters) if step else set()),
            ("count of the optimizer", updates, {float(step)}),
            ("Python's generator", state["rng"]["python"], drawn["rng"]["python"]),
            ("NumPy's generator", state["rng"]["numpy"], drawn["rng"]["numpy"]),
        ):
            if found != expected:
                raise CheckpointRefused(f"{path}: {what} is not that of step {step}: the parts of this state are not "
                                        "of one moment; restore it from a copy")

    @classmethod
    def _only_drawn(cls, step: int) -> dict[str, Any]:
        """The state after drawing for `step` updates, none of which is done. torch's generator stays as it is."""
        before = torch.get_rng_state()
        training = cls()
        for _ in range(step):
            training._draw()
        torch.set_rng_state(before)
        return training.state()
