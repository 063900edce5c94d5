"""Gradients of all ranks, summed: flat buffers that the parameters' `.grad` are views of, one all-reduce each.

Because a step's loss is scaled by the global batch before backward, the sum over ranks is the gradient of the mean
over the global batch, whatever the microbatches are.
"""

from __future__ import annotations

import datetime
import math
import socket

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from trainers.errors import Interrupted


class Reducer:
    """Owns the gradients. Every parameter always has one; one that the loss does not use has zeros."""

    def __init__(self, model: torch.nn.Module, ranks: int) -> None:
        self._ranks = ranks
        by_kind: dict[tuple[torch.dtype, torch.device], list[torch.nn.Parameter]] = {}
        for parameter in model.parameters():
            if parameter.requires_grad:
                by_kind.setdefault((parameter.dtype, parameter.device), []).append(parameter)
        self._flats = [self._flatten(dtype, device, group) for (dtype, device), group in by_kind.items()]

    @staticmethod
    def _flatten(dtype: torch.dtype, device: torch.device, group: list[torch.nn.Parameter]) -> torch.Tensor:
        flat = torch.zeros(sum(p.numel() for p in group), dtype=dtype, device=device)
        offset = 0
        for parameter in group:
            parameter.grad = flat[offset : offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
        return flat

    def zero(self) -> None:
        for flat in self._flats:
            flat.zero_()

    def norm(self) -> float:
        """L2 norm of the reduced gradient, over all parameters, as it lies there: scaled if a scaler scales.

        Not finite if and only if an element is not (or is beyond 1e150, in double precision).
        """
        norms = [float(torch.linalg.vector_norm(flat)) for flat in self._flats]
        if not all(map(math.isfinite, norms)):  # squares beyond single precision are no reason
            norms = [float(torch.linalg.vector_norm(flat, dtype=torch.float64)) for flat in self._flats]
        return math.hypot(*norms)

    def reduce(self, loss_sum: float, notice: bool = False) -> tuple[float, bool]:
        """Sums gradients over ranks in place; returns the sum of `loss_sum`, and whether any rank gave notice.

        Raises Interrupted when a peer is gone.
        """
        if self._ranks == 1:
            return loss_sum, notice
        total = torch.tensor([loss_sum, float(notice)], dtype=torch.float64, device=self._flats[0].device)
        try:
            for flat in self._flats:
                dist.all_reduce(flat)
            dist.all_reduce(total)
        except RuntimeError as error:  # torch.distributed raises nothing more specific for a lost peer
            raise Interrupted(f"a peer was lost during the reduction: {str(error).splitlines()[0][:160]}") from error
        loss, notices = total.tolist()
        return float(loss), notices > 0


def open_store(timeout_s: float) -> tuple[TCPStore, str, int]:
    """A rendezvous store in this process, on a free port. Returns it with its host and port."""
    host = socket.gethostbyname(socket.gethostname())
    limit = datetime.timedelta(seconds=timeout_s)
    store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=limit)
    return store, host, store.port


def join_group(attempt: int, rank: int, ranks: int, host: str, port: int, timeout_s: float) -> None:
    """Joins the process group of `attempt`: NCCL where there is a GPU, gloo elsewhere."""
    leave_group()
    if ranks == 1:
        return
    limit = datetime.timedelta(seconds=timeout_s)
    try:
        socket.create_connection((host, port), timeout_s).close()  # torch would try again until the deadline
        store = PrefixStore(f"attempt-{attempt}", TCPStore(host, port, is_master=False, timeout=limit))
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=limit)
    except (RuntimeError, OSError) as error:
        _forget_names()
        raise Interrupted(f"rank {rank} could not join the group of attempt {attempt}: {error}") from error


def _forget_names() -> None:
    """Has the next group begin with torch's first name for one, as it does in a process that is new.

    torch numbers a process's groups, meets peers under the group's number, and begins anew only when a group is
    destroyed, so who failed to join one would wait for the next one's peers where they never come.
    """
    leave_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    leave_group()


def leave_group() -> None:
    """Destroys the process group at once: only then do ranks that are no neighbours of a dead one wake up."""
    if dist.is_initialized():
        dist.destroy_process_group()


def agree(digests: dict[str, str], ranks: int) -> bool:
    """Whether all ranks hold the same values: compares a text of at most 4096 characters."""
    if ranks == 1:
        return True
    text = torch.zeros(4096, dtype=torch.uint8)
    own = "|".join(digests[name] for name in sorted(digests)).encode()
    text[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
    gathered = [torch.zeros_like(text) for _ in range(ranks)]
    if torch.cuda.is_available():
        text, gathered = text.cuda(), [each.cuda() for each in gathered]
    try:
        dist.all_gather(gathered, text)
    except RuntimeError as error:
        raise Interrupted(f"a peer was lost while the ranks compared their state: {error}") from error
    return all(torch.equal(each, text) for each in gathered)
