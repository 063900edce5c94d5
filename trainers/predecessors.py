"""What a killed supervisor left running: found through Ray and through the history, and ended (invariant 6).

A process out of reach is left to the fence: it can publish nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import ray
from ray.util import list_named_actors
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from storage.errors import StorageError
from storage.history import History, HistoryLine, read_history
from storage.process import ProcessId, is_alive
from trainers.processes import kill_here
from trainers.spec import TrainingSpec

_KILL_S = 5.0


def end_predecessors(spec: TrainingSpec, history: History) -> None:
    """Kills this run's workers of earlier supervisors on this host for certain, and elsewhere through Ray.

    A pool may serve other runs too: it is ended only with the process that has it.
    """
    namespaces: set[str] = set()
    for lines in _recorded(spec, history):
        supervisor = _process(lines[0])
        for line in lines:
            if line.event == "pool" and not (_is_here(supervisor, history) and is_alive(supervisor)):
                namespaces.add(line.body["namespace"])
            elif line.event == "process" and line.body["role"] != "supervisor":
                _end_here(_process(line), history)
    for namespace in namespaces:
        end_in_ray(namespace)


def _process(line: HistoryLine) -> ProcessId:
    return ProcessId(line.body["host"], line.body["pid"], line.body["start_ticks"])


def _is_here(process: ProcessId, history: History) -> bool:
    return process.host == history.process.host


def _end_here(process: ProcessId, history: History) -> None:
    if _is_here(process, history) and is_alive(process):
        history.record("killing", pid=process.pid, start_ticks=process.start_ticks, signal=9,
                       why="left by an earlier supervisor")
        kill_here(process, _KILL_S)


def end_in_ray(namespace: str) -> None:
    """What Ray still has of a pool, on whatever node, and the room that it holds."""
    for actor in list_named_actors(all_namespaces=True):
        if actor["namespace"] == namespace:
            try:
                ray.kill(ray.get_actor(actor["name"], namespace=namespace), no_restart=True)
            except (ValueError, AssertionError):  # gone meanwhile; Ray asserts if it goes while it is looked up
                continue
    for key, group in placement_group_table().items():
        if str(group["name"]).startswith(f"{namespace}-") and group["state"] != "REMOVED":
            # By id: a name can only be looked up in the namespace of the driver that made it.
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(key))))


def _recorded(spec: TrainingSpec, history: History) -> Iterator[tuple[HistoryLine, ...]]:
    """What earlier supervisors of the run have said, each by itself, as far as it can be read."""
    for path in sorted((spec.folder / "history").glob("supervisor-*.jsonl")):
        if path.name == history.name:
            continue
        try:
            lines = read_history(path).lines
        except StorageError:
            continue
        if lines:
            yield lines
