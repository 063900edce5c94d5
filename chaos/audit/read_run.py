"""Reading shell: a run folder → all evidence. Reads each file once, writes nothing, raises nothing for damage.

The run may still be going on: whatever was recorded had happened, so the history comes first and the store after it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from chaos.audit.evidence import Evidence, TwinSeen
from chaos.audit.read_dataset import read_dataset
from chaos.audit.read_history import read_history, read_receipts
from chaos.audit.read_store import read_published, read_store


def read_evidence(run: Path, dataset: Path | None = None) -> Evidence:
    """dataset: where its Parquet shards are now; by default where the history says that they were."""
    history, begun, data = read_history(run / "history")
    store = read_store(run / "store")
    receipts, problems = read_receipts(run / "history" / "receipts")  # a receipt precedes the damage that it announces
    history = replace(history, receipts=receipts, problems=problems)
    if dataset is None and data is not None:
        dataset = Path(data.dataset.path)
    consumed = (seen.segment.sample_id for seen in store.files.values() if seen.segment is not None)
    seen = read_dataset(dataset, consumed)
    twins = tuple(_twin(run, place) for place in ("twin", "twin-2") if (run / place).is_dir())
    return Evidence(store, history, begun, None if data is None else data.plan, seen, twins, str(run.resolve()))


def _twin(run: Path, place: str) -> TwinSeen:
    history, begun, _data = read_history(run / place / "history")
    log, manifests = read_published(run / place / "store")
    return TwinSeen(place, log, manifests, history, begun)
