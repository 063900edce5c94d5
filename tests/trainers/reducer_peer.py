"""Rank 1 of a group of two, in a process of its own: a process has one process group.

Obeys lines on standard input and answers each with one line: `join ATTEMPT HOST PORT`, `reduce NUMBER` (every
gradient filled with it, and the loss too), `agree TEXT`, `leave`. Dies of SIGKILL when it is killed.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from trainers.errors import Interrupted
from trainers.reducer import Reducer, agree, join_group, leave_group


def network() -> nn.Module:
    """Parameters of two kinds: two buffers, two reductions."""
    return nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 1).double()])


def main() -> None:
    torch.set_num_threads(1)
    model = network()
    reducer = Reducer(model, 2)
    print("ready", flush=True)
    for line in sys.stdin:
        name, *words = line.split()
        try:
            answer: object = ""
            if name == "join":
                join_group(int(words[0]), 1, 2, words[1], int(words[2]), 20.0)
            elif name == "reduce":
                for parameter in model.parameters():
                    assert parameter.grad is not None
                    parameter.grad.fill_(float(words[0]))
                loss, noticed = reducer.reduce(float(words[0]), words[1:] == ["notice"])
                answer = f"{loss} noticed" if noticed else loss
            elif name == "agree":
                answer = agree({"model": words[0]}, 2)
            else:
                leave_group()
            print(name, answer, flush=True)
        except Interrupted as error:
            print("interrupted", str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
