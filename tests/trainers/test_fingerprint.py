"""Fingerprints of a step: the same for the same state, however it came about."""

from __future__ import annotations

import pytest
from state_kit import WORKLOADS, captured, step

from trainers.fingerprint import step_fingerprint
from trainers.state import Progress, restore


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_restored_state_has_the_fingerprint_of_the_one_that_was_saved(name: str) -> None:
    workload, progress = WORKLOADS[name](), Progress()
    for _ in range(3):
        step(workload, progress)
    expected = step_fingerprint(workload, progress)
    tensors, texts = captured(workload, progress)
    fresh = WORKLOADS[name]()
    by_name = {key: tensors[key] for key in sorted(tensors)}  # the order in which a shard has them
    assert step_fingerprint(fresh, restore(fresh, by_name, texts)) == expected
    step(workload, progress)
    assert step_fingerprint(workload, progress)["optimizer"] != expected["optimizer"] or name == "plain_sgd"
