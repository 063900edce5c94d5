"""The accumulation check on a real run: right as it is, and wrong as soon as the record says another update."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import oracle


def test_a_right_update(run, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    outcome = run(workload="linreg", steps=2)
    assert oracle.check(outcome.folder) == {"name": "accumulation", "verdict": "valid", "witness": ""}
    honest = oracle._lines

    def doubled(folder: Path, role: str, event: str):  # type: ignore[no-untyped-def]
        for body in honest(folder, role, event):
            norm = {"gradient_norm": (2 * float.fromhex(body["gradient_norm"])).hex()} if event == "step" else {}
            yield {**body, **norm}

    monkeypatch.setattr(oracle, "_lines", doubled)
    found = oracle.check(outcome.folder)
    assert found["verdict"] == "invalid"
    assert "the gradient norm of step 1 is" in found["witness"]
    assert "the loss" not in found["witness"]


def test_a_model_without_an_oracle(run) -> None:  # type: ignore[no-untyped-def]
    found = oracle.check(run(steps=2).folder)
    assert (found["verdict"], "BatchNorm1d" in found["witness"]) == ("not_judged", True)
