"""One Ray for all tests of this folder, and runs of real experiments on it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from run_kit import TINY, kill

from chaos.cluster import set_up_workers, silence_worker_deaths
from chaos.experiment import parse_experiment
from chaos.forkclient import FORKSERVER_ENV
from chaos.forkserver import ForkServer
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.run import Outcome, run_experiment
from trainers.events import Event

Run = Callable[..., Outcome]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A local Ray with room for two jobs of a sweep, its workers forked; its address. Caches are the session's own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    silence_worker_deaths()
    set_up_workers()
    with ForkServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv(FORKSERVER_ENV, str(server.path))
        context = ray.init(
            address="local", num_cpus=24, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )
        yield context.address_info["gcs_address"]
        ray.shutdown()


@pytest.fixture(scope="session")
def place(cluster: str) -> Iterator[Place]:
    """Where runs follow one another and take up each other's processes, as the trials of a sweep do."""
    with Place(Interrupts(), reuse=True, spares=2) as place:
        yield place


@pytest.fixture(scope="session")
def original(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, killed twice, with its twin, judged valid. Shared: copy it before changing anything."""
    folder = tmp_path_factory.mktemp("original")
    faults = [kill("microbatch.backward", 15, rank=1), kill("shard.half", 2, attempt=1, rank=0)]
    text = yaml.safe_dump({"run": {**TINY, "keep": 2, "twin": True}, "faults": faults})
    outcome = run_experiment(parse_experiment(text, folder / "experiment.yaml"), folder / "run", place=place)
    assert outcome.verdict["verdict"] == "valid", outcome.verdict
    return outcome.folder


@pytest.fixture
def run(place: Place, tmp_path: Path) -> Run:
    """Runs an experiment on `tiny` with the faults and settings given, in a folder of its own."""

    def run_it(
        *faults: dict[str, Any], name: str = "run", notify: Callable[[Event], None] = lambda event: None,
        **settings: Any,
    ) -> Outcome:
        # A workload of the test's own would need other processes, and the next run these again.
        where = place if settings.get("workload", "tiny") == "tiny" else None
        text = yaml.safe_dump({"run": {**TINY, **settings}, "faults": list(faults)})
        experiment = parse_experiment(text, tmp_path / "experiment.yaml")
        return run_experiment(experiment, tmp_path / name, notify=notify, place=where)

    return run_it
