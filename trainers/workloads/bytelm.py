"""`bytelm`: a byte-level transformer on the text of CPython's own reference topics (`pydoc_data.topics`).

Real text that every CPython ships, cut into windows of `context` + 1 bytes. Dropout and a warm-up plus cosine
rate make generators and scheduler matter: losing either changes the trajectory.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from trainers.workload import Batch, Config, Workload
from trainers.workloads import recipe
from trainers.workloads.cache import cached_dataset

VOCABULARY = 256
_RECIPE = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.01, "schedule": "cosine", "warmup_steps": 6}


def _text() -> bytes:
    from pydoc_data.topics import topics  # type: ignore[import-untyped, unused-ignore]

    return "\n\n".join(f"{name}\n{topics[name]}" for name in sorted(topics)).encode()


def dataset_folder(context: int, samples: int | None) -> Path:
    """Windows of context + 1 bytes in column `tokens` (uint8[context + 1]), the first `samples` or all."""
    text = _text()
    count = len(text) // (context + 1)
    count = min(count, samples) if samples else count

    def columns() -> dict[str, npt.NDArray[np.generic]]:
        tokens = np.frombuffer(text[: count * (context + 1)], dtype=np.uint8).reshape(count, context + 1)
        return {"tokens": tokens}

    version = hashlib.sha256(text).hexdigest()[:12]  # topics differ between Python versions
    return cached_dataset(f"bytelm-{version}-{context}-{count}", columns, files=4, group_rows=64)


class Block(nn.Module):
    """Pre-norm attention and feed-forward; x: float[n, t, width] → the same shape."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        attended = self.project(attended.transpose(1, 2).reshape(n, t, width))
        x = x + F.dropout(attended, self.dropout, self.training)
        hidden = self.down(F.gelu(self.up(self.norm_mlp(x))))
        return x + F.dropout(hidden, self.dropout, self.training)


class ByteLM(nn.Module):
    """tokens: int64[n, context] → logits float[n, context, 256]."""

    tokens_seen: torch.Tensor

    def __init__(self, width: int, layers: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.register_buffer("tokens_seen", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.tokens_seen += tokens.numel()
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the next byte per sample; float[n]."""
    tokens = batch["tokens"].long()
    logits = model(tokens[:, :-1])
    flat = F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1), reduction="none")
    return flat.view(len(tokens), -1).mean(dim=1)


def build(config: Config) -> Workload:
    """Keys: width, layers, heads, context, dropout, samples, and those of `recipe`."""
    recipe.require_known(config, "width", "layers", "heads", "context", "dropout", "samples", *recipe.KEYS)
    context = int(config.get("context", 64))
    model = ByteLM(
        int(config.get("width", 144)), int(config.get("layers", 4)), int(config.get("heads", 4)), context,
        float(config.get("dropout", 0.1)),
    )
    optimizer = recipe.optimizer(config, model.parameters(), _RECIPE)
    scheduler = recipe.schedule(config, optimizer, _RECIPE)
    samples = config.get("samples")
    folder = dataset_folder(context, int(samples) if samples else None)
    return Workload(model, optimizer, loss, folder, scheduler, recipe.scaler(config))
