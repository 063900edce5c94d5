"""The auditor as a process of its own, which cannot import what was planted.

It sees this program's packages alone, through a folder that holds links to them: not the checkout around them, not the
folder that the command was started in, and nothing that PYTHONPATH names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos.errors import GalleryError
from chaos.gallery.bugs import ORACLE

_PACKAGES = Path(__file__).resolve().parents[2]
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")


class Auditor:
    """Judges runs. folder: of its own, made by the first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str) -> subprocess.Popen[str]:
        """Python, with nothing to import but the three packages and what is installed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for package in ("chaos", "trainers", "storage"):
            link = self.folder / package
            if not link.exists() or not link.samefile(_PACKAGES / package):  # of another checkout, earlier
                link.unlink(missing_ok=True)
                link.symlink_to(_PACKAGES / package)
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return subprocess.Popen(
            [sys.executable, *arguments], cwd=self.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment, "PYTHONPATH": str(self.folder), "PYTHONSAFEPATH": "1"},
        )  # fmt: skip

    def begin(self, run: Path) -> subprocess.Popen[str]:
        """Starts judging a run."""
        return self.command("-m", "chaos.cli", "audit", str(run), "--json")

    def asked_oracle(self, run: Path, verdict: Mapping[str, Any]) -> Mapping[str, Any]:
        """The verdict with the accumulation check's finding beside the invariants. Raises GalleryError."""
        process = self.command("-m", "chaos.oracle", str(run))
        out, err = process.communicate()
        try:
            finding = {"id": ORACLE, **json.loads(out)}
        except ValueError:
            raise GalleryError(f"the accumulation check ended with {process.returncode}: {err[-500:]}") from None
        overall = "invalid" if finding["verdict"] == "invalid" else verdict["verdict"]
        return {**verdict, "verdict": overall, "invariants": [*verdict["invariants"], finding]}


def verdict_of(auditor: subprocess.Popen[str]) -> Mapping[str, Any]:
    """What it said, when it has ended. Raises GalleryError if that is no verdict."""
    out, err = auditor.communicate()
    try:
        verdict = json.loads(out)
    except ValueError:
        raise GalleryError(f"the auditor ended with {auditor.returncode} and no verdict: {err[-500:]}") from None
    if not isinstance(verdict, dict) or "invariants" not in verdict:
        raise GalleryError(f"the auditor printed no verdict: {out[:200]}")
    return verdict
