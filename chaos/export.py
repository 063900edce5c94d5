"""`killpoint export`: a copy of a verified checkpoint that training can go on from, and the proof that it can.

The copy holds state, configuration, metrics, dataset identity and instructions. Sizes and digests of the copies are
checked, then a fresh process loads them from where they lie (`trainers.reload`). A digest detects change; it does not
authenticate. An export of the weights alone is for inference. Only checkpoints at the end of a step are exported: what
lies inside one is half an update, which nothing but the run itself goes on from.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.errors import ExportFailed, NotARun, OutputExists
from chaos.experiment import load_experiment
from chaos.runfacts import platform_facts
from chaos.runfolder import EXPERIMENT, HISTORY, STORE
from storage.digests import bulk_digest
from storage.errors import Damaged
from storage.history import read_history
from storage.ledger import decode_segment
from storage.log import CommitLog, Publish, entry_name
from storage.manifest import Manifest, decode, manifest_path, parse_checkpoint_name
from storage.objects import LocalObjects
from storage.sealed import seal, unseal
from storage.selection import current_lineage, retired
from storage.shard import TensorSpec, parse_shard, read_verified, shard_header

EXPORT_FILE, EXPORT_FORMAT = "export.json", "killpoint.export/1"
STEP_IS = "one optimizer update over one global batch; the number counts the updates that are done"


@dataclass(frozen=True)
class Exported:
    """proof: what the fresh process found, None for weights. rejected: newer checkpoints that did not verify."""

    folder: Path
    checkpoint: str
    step: int
    files: int
    command: str
    proof: Mapping[str, Any] | None
    rejected: tuple[str, ...]


def proof_text(done: Exported) -> str:
    """A short proof: what was found, what was checked, and with which command to check again."""
    lines = [f"checkpoint {done.checkpoint}, step {done.step}, {done.files} files: {done.folder}"]
    lines += [f"passed over {reason}" for reason in done.rejected]
    if done.proof is None:
        return "\n".join([*lines, "weights only, for inference: training cannot go on from them"])
    lines += [f"checked with: {done.command}", f"  found step {done.proof['step']} of {done.proof['world']} ranks"]
    lines += [f"  passed: {check}" for check in done.proof["checks"]]
    if not done.proof["same_code"]:
        lines.append("  the sources have changed since the run: that training goes on bit for bit is not claimed")
    return "\n".join([*lines, "A digest detects change; it does not authenticate."])


@dataclass(frozen=True)
class _Source:
    run: Path
    objects: LocalObjects
    line: tuple[Publish, ...]  # newest first
    publish: Publish
    manifest: Manifest
    data: Mapping[str, bytes]  # path in the store → verified bytes
    rejected: tuple[str, ...]


def export(place: Path, target: Path, *, step: int | None = None, weights: bool = False) -> Exported:
    """Exports the newest checkpoint of the lineage that verifies, or that of `step`, into the new folder `target`.

    place: a run folder or its store. Raises NotARun, OutputExists, ExportFailed, StorageError.
    """
    run = place.parent if place.name == STORE and not (place / STORE).exists() else place
    if not (run / STORE / "log").is_dir() or not (run / HISTORY).is_dir():
        raise NotARun(f"{place}: is no run: it has no {STORE}/log or no {HISTORY}/")
    if target.exists():
        raise OutputExists(f"{target}: exists already and was left as it is; choose another folder")
    source = _find(run, step)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")
    draft.mkdir()
    try:
        files = _weights(source, draft) if weights else _whole(source, draft)
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    command = "" if weights else f"{sys.executable} -m trainers.reload {target}"
    proof = None if weights else _prove(target)
    return Exported(target, source.publish.name, source.publish.step, files, command, proof, source.rejected)


def _find(run: Path, step: int | None) -> _Source:
    objects = LocalObjects(run / STORE)
    name = unseal(objects.read(entry_name(0)), entry_name(0))[0]["run"]
    entries = CommitLog(objects, name).read()
    gone = retired(entries)
    line = tuple(publish for publish in current_lineage(entries) or ())
    kept = [p for p in line if p.name not in gone and parse_checkpoint_name(p.name)[2] == 0]
    wanted = [p for p in kept if step is None or p.step == step]
    rejected: list[str] = []
    for publish in wanted:
        try:
            manifest, data = _verified(objects, publish)
            return _Source(run, objects, line, publish, manifest, data, tuple(rejected))
        except Damaged as error:
            rejected.append(f"{publish.name}: {error}")
    steps = ", ".join(str(p.step) for p in reversed(kept)) or "none"
    what = "no checkpoint of the lineage verifies" if step is None else f"no checkpoint of step {step} verifies"
    raise ExportFailed(f"{run}: {what} ({'; '.join(rejected) or 'there is none'}); steps that are kept: {steps}")


def _verified(objects: LocalObjects, publish: Publish) -> tuple[Manifest, dict[str, bytes]]:
    path = manifest_path(publish.name)
    raw = objects.read(path)
    manifest, digest = decode(raw, path)
    if digest != publish.digest:
        raise Damaged(path, "is not the manifest that was published")
    data = {record.path: read_verified(objects, record) for record in manifest.files}
    for record in manifest.files:
        if record.kind == "ledger":
            decode_segment(data[record.path], record.path)
        else:
            parse_shard(data[record.path], record.path)
    return manifest, {path: raw, **data}


def _whole(source: _Source, draft: Path) -> int:
    experiment = load_experiment(source.run / EXPERIMENT)
    facts, data = _facts(source.run)
    for path, content in source.data.items():
        _write(draft / STORE / path, content)
    shutil.copyfile(source.run / EXPERIMENT, draft / EXPERIMENT)
    _write(draft / "metrics.jsonl", b"".join(_metrics(source)))
    _write(draft / "dataset.json", _json({**data, "fingerprint": source.manifest.fingerprints.dataset}))
    _write(draft / "LOADING.md", _instructions(source).encode())
    body = {
        "format": EXPORT_FORMAT, "run": facts["run"], "checkpoint": source.publish.name, "step": source.publish.step,
        "manifest": source.publish.digest, "workload": facts["workload"], "config": experiment.run.config,
        "seed": facts["seed"], "platform": platform_facts(), "files": list(_listed(draft)),
    }  # fmt: skip
    _write(draft / EXPORT_FILE, seal(body)[0])
    return len(body["files"])


def _weights(source: _Source, draft: Path) -> int:
    """model.safetensors: parameters, and rank 0's buffers."""
    specs, views = [], []
    for record in source.manifest.files:
        if record.kind != "shard":
            continue
        for name, view in parse_shard(source.data[record.path], record.path).tensors.items():
            if name.startswith("model/") or (name.startswith("buffer/") and record.rank == 0):
                specs.append(TensorSpec(name.partition("/")[2], view.dtype, view.shape, len(view.data)))
                views.append(view.data)
    order = sorted(range(len(specs)), key=lambda i: (-len(views[i]), specs[i].name))
    note = {"run": source.manifest.run, "step": str(source.publish.step),
            "use": "inference only: training cannot go on from weights without optimizer, schedule, cursor and "
                   "generators"}  # fmt: skip
    header = shard_header([specs[i] for i in order], note)
    _write(draft / "model.safetensors", header + b"".join(bytes(views[i]) for i in order))
    _write(draft / EXPORT_FILE, seal({"format": "killpoint.weights/1", **note, "files": list(_listed(draft))})[0])
    return 1


def _facts(run: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The `run` event, and the dataset as a supervisor recorded it."""
    files = [read_history(path) for path in sorted((run / HISTORY).glob("supervisor-*.jsonl"))]
    bodies = [line.body for file in files for line in file.lines]
    facts = next((body for body in bodies if body["event"] == "run"), None)
    data = next((body for body in bodies if "dataset" in body), None)
    if facts is None or data is None:
        raise NotARun(f"{run}: its history does not say what was run or on which dataset")
    return facts, {"dataset": data["dataset"], "plan": data["plan"]}


def _metrics(source: _Source) -> Iterator[bytes]:
    """One line a step of the lineage, from rank 0's record of the attempt whose work was kept."""
    line = list(reversed(source.line[source.line.index(source.publish):]))
    kept: dict[int, int] = {}
    start = 0
    for publish in line:
        kept.update(dict.fromkeys(range(start + 1, publish.step + 1), publish.attempt))
        start = publish.step
    found: dict[int, dict[str, Any]] = {}
    for path in sorted((source.run / HISTORY).glob("worker-*.jsonl")):
        for entry in read_history(path).lines:
            body = entry.body
            if entry.event == "step" and body["rank"] == 0 and kept.get(body["step"]) == body["attempt"]:
                found[body["step"]] = body
    for step in sorted(found):
        body = found[step]
        yield _json({
            "step": step, "step_is": STEP_IS, "samples_seen": body["samples_seen"], "attempt": body["attempt"],
            "loss": float.fromhex(body["loss"]), "learning_rates": [float.fromhex(rate) for rate in body["lr"]],
            "gradient_norm": float.fromhex(body["gradient_norm"]), "skipped": body["skipped"],
        })  # fmt: skip


def _instructions(source: _Source) -> str:
    return f"""# Checkpoint {source.publish.name} of run {source.manifest.run}

The state after {source.publish.step} updates: {STEP_IS}.

- `python -m trainers.reload .` checks every file against its size and digest, builds the workload named in
  `{EXPORT_FILE}` with its configuration, puts the state of every rank back and compares its live digests.
- `store/` holds the shards (safetensors), the ledger segments (Arrow) and the manifest of the checkpoint.
- `experiment.yaml` is the experiment, `dataset.json` the identity of the dataset, `metrics.jsonl` one line a step.

A digest detects change. It does not authenticate: whoever can change a file can change its digest.
"""


def _listed(folder: Path) -> Iterator[dict[str, Any]]:
    """Every file below `folder`, read back."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            yield {"path": path.relative_to(folder).as_posix(), "bytes": len(data), "digest": bulk_digest(data)}


def _prove(folder: Path) -> dict[str, Any]:
    """Loads the copy in a fresh process. Raises ExportFailed with what that process says."""
    done = subprocess.run(
        [sys.executable, "-m", "trainers.reload", str(folder)], capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode != 0:
        why = done.stderr.strip().splitlines() or ["no reason given"]
        raise ExportFailed(f"{folder}: was written and cannot be loaded: {why[-1]}")
    proof: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return proof


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"


def _write(path: Path, data: bytes) -> None:
    """Creates the file, synced; its folder too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ExportFailed(f"{path}: cannot be written ({error.strerror})") from error

