"""The recovery auditor: (store, history, dataset) → verdict, at any later time, without Ray and without torch.

It shares the file formats with `storage`, not the decisions: log chain, digests, shards, plan, ledger and the
newest verified checkpoint are derived here a second time, from bytes, so that a bug in the selection cannot hide
behind the same bug in the audit. `README.md` says how to read it.
"""

from chaos.audit.api import audit_run
from chaos.audit.verdict import Verdict

__all__ = ["Verdict", "audit_run"]
