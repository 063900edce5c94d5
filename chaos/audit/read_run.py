"""Reading shell: a run folder → all evidence. Reads each file once, writes nothing, raises nothing for damage.

The run may still be going on: whatever was recorded had happened, so the history comes first and the store after it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from chaos.audit.evidence import Evidence, History, Store, TwinSeen
from chaos.audit.facts import DataNamed
from chaos.audit.formats import FormatError, read_regular, sha256_text
from chaos.audit.plan import plan_fingerprint
from chaos.audit.read_dataset import read_dataset
from chaos.audit.read_history import read_history, read_receipts
from chaos.audit.read_store import read_published, read_store


def read_evidence(run: Path, dataset: Path | None = None) -> Evidence:
    """dataset: where its Parquet shards are now; by default where the history says that they were."""
    history, begun, _named = read_history(run / "history")
    store = read_store(run / "store")
    receipts, problems = read_receipts(run / "history" / "receipts")  # a receipt precedes the damage that it announces
    history = replace(history, receipts=receipts, problems=problems)
    data = _used(history, store)
    if dataset is None and data is not None:
        dataset = Path(data.dataset.path)
    segments = (seen.segment for seen in store.files.values() if seen.segment is not None)
    seen = read_dataset(dataset, (part.sample_id for segment in segments for part in segment.parts()))
    twins = tuple(_twin(run, place) for place in ("twin", "twin-2") if (run / place).is_dir())
    plan = None if data is None else data.plan
    experiment = _digest(run / "experiment.yaml")
    return Evidence(store, history, begun, plan, seen, twins, str(run.resolve()), experiment)


def _used(history: History, store: Store) -> DataNamed | None:
    """The data that the checkpoints name: a supervisor that found it changed has not trained on it."""
    named = [data for file in history.files.values() for data in file.data]
    prints = {seen.manifest.fingerprints.plan for seen in store.manifests.values() if seen.manifest is not None}
    used = (data for data in named if plan_fingerprint(data.plan) in prints)
    return next(used, named[0] if named else None)


def _digest(path: Path) -> str | None:
    try:
        return sha256_text(read_regular(path))
    except (OSError, FormatError):
        return None


def _twin(run: Path, place: str) -> TwinSeen:
    history, begun, _data = read_history(run / place / "history")
    log, manifests = read_published(run / place / "store")
    return TwinSeen(place, log, manifests, history, begun)
