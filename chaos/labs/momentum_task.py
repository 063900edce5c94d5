"""One parameter p from 1.0, loss p (so the gradient is 1), rate 0.1, momentum 0.9, two updates (reference C).

buffer = 0.9 · buffer + 1 and p −= 0.1 · buffer: 0.9, then 0.71; with the buffer lost in between, 0.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chaos.diff.trace import TRACE_FILE, Start, StepRecord, Trace
from chaos.errors import CheckpointRefused
from chaos.labs.files import (
    CHECKPOINT,
    COMMAND,
    REPORT,
    new_folder,
    read_checkpoint,
    write_checkpoint,
    write_json,
    write_new,
)
from chaos.labs.identity import check_identity, dataset_digest, identity
from chaos.labs.parts import backward, gradient_norm, load_optimizer, optimizer_json, prints, trace_values
from storage.sealed import canonical, sha256_digest

FORMAT = "killpoint.lab.momentum/1"
CONFIGURATION = {"start": 1.0, "lr": 0.1, "momentum": 0.9, "gradient": 1.0}
SAVED_AT, STEPS = 1, 2


class Training:
    """The live training; the one sample that there is, number 0, is read in every step."""

    def __init__(self) -> None:
        self.p = torch.nn.Parameter(torch.tensor(CONFIGURATION["start"], dtype=torch.float64))
        self.names: dict[str, torch.Tensor] = {"p": self.p}
        self.optimizer = torch.optim.SGD([self.p], lr=CONFIGURATION["lr"], momentum=CONFIGURATION["momentum"])
        self.step = 0
        self.records: list[StepRecord] = []
        self.rows: list[dict[str, Any]] = []
        self.start = self._start(None)

    def run_to(self, target: int) -> None:
        """Updates until `target` of them are done in all."""
        while self.step < target:
            self._update()

    def body(self) -> dict[str, Any]:
        """A checkpoint."""
        optimizer = optimizer_json(self.optimizer, self.names)
        return {"format": FORMAT, "parameters": {"p": self.p.item()}, "optimizer": optimizer, "step": self.step,
                **_identity()}

    @classmethod
    def restored(cls, path: Path, *, with_buffer: bool) -> Training:
        """From a checkpoint, with or without the optimizer's state. Raises CheckpointRefused."""
        training = cls()
        body, _, digest = read_checkpoint(path)
        check_identity(body, FORMAT, _identity(), path)
        try:
            training.p.data.fill_(body["parameters"]["p"])
            training.step = body["step"]
            if with_buffer:
                load_optimizer(training.optimizer, body["optimizer"])
        except (KeyError, ValueError, TypeError, RuntimeError) as error:
            raise CheckpointRefused(f"{path}: its state does not fit: {type(error).__name__}: {error}") from error
        training.start = training._start(digest)
        return training

    def _update(self) -> None:
        self.optimizer.zero_grad()
        loss: torch.Tensor = CONFIGURATION["gradient"] * self.p
        backward(loss)
        lr = float(self.optimizer.param_groups[0]["lr"])
        self.optimizer.step()
        self.step += 1
        values = self._values()
        self.records.append(
            StepRecord(
                step=self.step, rank=0, attempt=self.start.attempt, ids_digest=sha256_digest(canonical([0])),
                lr=(lr.hex(),), loss=float(loss.item()).hex(), state=self._prints(), ids=(0,),
                gradient_norm=gradient_norm(self.names).hex(), samples_seen=self.step, values=values,
            )
        )  # fmt: skip
        buffer = float.fromhex(values["optimizer/p/momentum_buffer"][0])
        self.rows.append({"step": self.step, "lr": lr, "gradient": 1.0, "buffer": buffer, "p": self.p.item()})

    def _values(self) -> dict[str, tuple[str, ...]]:
        return trace_values(self.names, {}, self.optimizer)

    def _prints(self) -> dict[str, str]:
        body = self.body()
        return prints({"model": body["parameters"], "optimizer": body["optimizer"], "progress": {"step": self.step}})

    def _start(self, checkpoint: str | None) -> Start:
        attempt = int(checkpoint is not None)
        return Start(attempt, 0, self.step, self.step, self._prints(), checkpoint, self._values())


def _identity() -> dict[str, Any]:
    return identity({"name": "one sample, gradient 1", "rows": 1, "digest": dataset_digest([[1.0]])}, CONFIGURATION)


def prove(output: Path | None) -> tuple[dict[str, Any], Path]:
    """The three trainings and what they say. Raises OutputExists, LabError."""
    folder = new_folder(output, "momentum")
    command = "killpoint lab momentum" + (f" --output {output}" if output else "")
    write_new(folder / COMMAND, f"{command}\n".encode())
    cut = Training()
    cut.run_to(SAVED_AT)
    checkpoint = folder / CHECKPOINT
    digest = write_checkpoint(checkpoint, cut.body())
    trainings = {"uninterrupted": Training(), "resumed": Training.restored(checkpoint, with_buffer=True),
                 "without_buffer": Training.restored(checkpoint, with_buffer=False)}
    for name, training in trainings.items():
        training.run_to(STEPS)
        (folder / name).mkdir()
        Trace(f"lab momentum, {name}", 1, 1, 1, STEPS, (training.start,), tuple(training.records)).write(
            folder / name / TRACE_FILE
        )
    ends = {name: training.p.item() for name, training in trainings.items()}
    equal = trainings["resumed"].body() == trainings["uninterrupted"].body()
    lost = ends["without_buffer"] - ends["uninterrupted"]
    report = {
        "lab": "momentum", "command": command, "checkpoint_digest": digest, "configuration": CONFIGURATION,
        "all_checks_passed": equal and lost != 0.0, "resumed_equals_uninterrupted": equal,
        "saved": {"step": cut.step, "p": cut.p.item()}, **ends, "lost": lost,
        "lost_part": "optimizer: momentum buffer " + repr(cut.rows[-1]["buffer"]),
        "records": {name: training.rows for name, training in trainings.items()},
    }  # fmt: skip
    write_json(folder / REPORT, report)
    return report, folder


def render(report: Mapping[str, Any], folder: Path) -> RenderableType:
    """One record a step, then a sentence."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("training", "step", "gradient", "buffer", "parameter"):
        table.add_column(column, justify="left" if column == "training" else "right")
    for name, rows in report["records"].items():
        for row in rows:
            table.add_row(name.replace("_", " "), str(row["step"]), f"{row['gradient']:.1f}", f"{row['buffer']:.4f}",
                          f"{row['p']:.4f}")
    passed = report["all_checks_passed"]
    text = (f"{'passed' if passed else 'failed'}: uninterrupted {report['uninterrupted']:.4f}, resumed "
            f"{report['resumed']:.4f}; without the momentum buffer {report['without_buffer']:.4f}, which is off by "
            f"{report['lost']:.4f}: the rate times what was left of the buffer")
    return Group(table, Text(text, style="green" if passed else "bold red"), Text(f"everything lies in {folder}"))
