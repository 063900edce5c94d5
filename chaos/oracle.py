"""The accumulation check: a run's first update beside the same update as one batch in double precision.

`python -m chaos.oracle RUN` prints one JSON object. The twin of a run shares its arithmetic, so a mean that weighs
samples wrongly is the same in both and invariant 5 cannot see it. Here loss and gradient norm of the first update are
computed anew: the workload is built from the run's seed, in float64, and its samples are those of the plan, in a
single batch on a single rank. Exact equality is not asked for: the run computes in its own precision and sums in
another order.

It runs the workload's code, which the auditor never does, and so is no part of the audit. A model whose loss of a
sample depends on the other samples of its microbatch, or on chance, has no such oracle: then nothing is judged.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.experiment import load_experiment
from chaos.runfolder import EXPERIMENT, HISTORY
from storage.history import read_history

if TYPE_CHECKING:
    from torch import nn

NAME = "accumulation"
TOLERANCE = {"fp32": 1e-4, "bf16": 3e-2, "fp16": 3e-2}  # relative; rounding, not the loss, is what it must cover


@dataclass(frozen=True)
class Update:
    """loss: mean over the global batch; gradient_norm: L2 norm over all parameters."""

    loss: float
    gradient_norm: float


def check(run: Path) -> dict[str, str]:
    """An invariant's form: `name`, `verdict` (valid, invalid, unknown, not_judged) and `witness`."""
    experiment = load_experiment(run / EXPERIMENT)
    begun = next(_lines(run, "supervisor", "run"), None)
    done = next((body for body in _lines(run, "worker", "step") if body["step"] == 1), None)
    named = next(_lines(run, "supervisor", "dataset"), None)
    if begun is None or done is None or named is None:
        return _finding("unknown", "the history lacks the run, its dataset or its first update")
    recorded = Update(float.fromhex(done["loss"]), float.fromhex(done["gradient_norm"]))
    expected = _as_one_batch(begun["workload"], experiment.run.config, begun, named)
    if isinstance(expected, str):
        return _finding("not_judged", expected)
    tolerance, whole = TOLERANCE[experiment.run.precision], f"a single batch of {begun['global_batch']} samples"
    wrong = [
        f"the {what} of step 1 is {ours:.9g}, in float64 as {whole} {theirs:.9g}"
        for what, ours, theirs in (
            ("loss", recorded.loss, expected.loss),
            ("gradient norm", recorded.gradient_norm, expected.gradient_norm),
        )
        if not math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=tolerance**2)
    ]
    if not wrong:
        return _finding("valid", "")
    how = f"{begun['microbatches']} microbatches on each of {begun['ranks']} ranks"
    return _finding("invalid", "; ".join(wrong) + f" ({how}; relative tolerance {tolerance:g})")


def _as_one_batch(workload: str, config: Any, begun: dict[str, Any], named: dict[str, Any]) -> Update | str:
    """What the update should be, or why that cannot be said."""
    import numpy as np
    import torch

    from trainers.dataset import column_array, open_dataset, read_samples
    from trainers.plan import Plan
    from trainers.state import seed_everything
    from trainers.workload import build

    seed_everything(begun["seed"], None)
    built = build(workload, config)
    if coupled := _coupled(built.model):
        return f"the model has {coupled}: what a sample's loss is depends on its microbatch or on chance"
    dataset = open_dataset(Path(named["dataset"]["path"]))
    ids = Plan(**named["plan"]).sample_ids(np.arange(begun["global_batch"], dtype=np.int64))
    table = read_samples(dataset, ids)
    columns = {name: torch.from_numpy(np.array(column_array(table[name]))) for name in dataset.columns}
    batch = {name: values.double() if values.is_floating_point() else values for name, values in columns.items()}
    model = built.model.double().train()
    loss = built.loss(model, batch).double().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return Update(float(loss.detach()), math.sqrt(sum(float((gradient**2).sum()) for gradient in gradients)))


def _coupled(model: nn.Module) -> str:
    """The first kind of layer that joins the samples of a batch, or draws; empty if there is none."""
    from torch.nn.modules.batchnorm import _BatchNorm
    from torch.nn.modules.dropout import _DropoutNd

    for module in model.modules():
        if isinstance(module, _BatchNorm) or (isinstance(module, _DropoutNd) and module.p > 0):
            return type(module).__name__
    return ""


def _lines(run: Path, role: str, event: str) -> Iterator[dict[str, Any]]:
    for path in sorted((run / HISTORY).glob(f"{role}-*.jsonl")):
        yield from (dict(line.body) for line in read_history(path).lines if line.event == event)


def _finding(verdict: str, witness: str) -> dict[str, str]:
    return {"name": NAME, "verdict": verdict, "witness": witness}


def main() -> None:
    """Exit status: 0 valid, 1 invalid, 2 could not judge."""
    finding = check(Path(sys.argv[1]))
    print(json.dumps(finding, sort_keys=True))
    sys.exit({"valid": 0, "invalid": 1}.get(finding["verdict"], 2))


if __name__ == "__main__":
    main()
