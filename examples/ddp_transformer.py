#!/usr/bin/env python3
"""Trains a small transformer with DistributedDataParallel (or FSDP), one process and one GPU a rank.

  berth run -g 4 -m 16G python3 examples/ddp_transformer.py --ranks 4            spawned processes, NCCL
  berth run -g 4 -m 16G torchrun --nproc-per-node 4 examples/ddp_transformer.py  the same, started by torchrun
  python3 examples/ddp_transformer.py --ranks 2 --device cpu --backend gloo      without any GPU
  ... --check                                                                     compares with one process that does the same sums

Nothing in here knows of berth: it is what one would run on a machine with several GPUs. Each rank prints its validation loss after
each epoch; they must agree, since all ranks hold the same weights then.
"""
import argparse
import contextlib
import json
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn as nn
import torch.nn.functional as F

VOCABULARY, LENGTH, WIDTH = 64, 32, 64


class Transformer(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.register_buffer("mask", torch.triu(torch.full((LENGTH, LENGTH), float("-inf")), diagonal=1))

    def forward(self, text):
        return self.head(self.body(self.tokens(text) + self.places, mask=self.mask))


def sequences(count, seed):
    """Texts with a rule to learn: the next token follows from the two before it."""
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(VOCABULARY, (count, LENGTH + 1), generator=generator)
    for i in range(2, LENGTH + 1):
        text[:, i] = (3 * text[:, i - 1] + 5 * text[:, i - 2] + 7) % VOCABULARY
    return text


def loss_of(model, text):
    logits = model(text[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCABULARY), text[:, 1:].reshape(-1))


def batches(options, epoch):
    text = sequences(options.steps * options.batch, 1000 + epoch)
    return text.split(options.batch)


def validate(model, device):
    model.eval()
    with torch.no_grad():
        loss = loss_of(model, sequences(64, 7).to(device)).item()
    model.train()
    return loss


def train(options, model, optimizer, device, parts, say, reduces):
    """`parts`: the parts of each batch that are computed here, one after another; their gradients are averaged."""
    history = []
    for epoch in range(options.epochs):
        for batch in batches(options, epoch):
            optimizer.zero_grad(set_to_none=True)
            for part in parts:
                text = batch.chunk(options.ranks)[part].to(device)
                (loss_of(model, text) / (1 if reduces else len(parts))).backward()
            optimizer.step()
        history.append(validate(model, device))
        say(epoch, history[-1])
    return history


def device_of(options, rank):
    return torch.device("cpu") if options.device == "cpu" else torch.device("cuda", rank)


def wrap(options, model, device):
    if not options.fsdp:
        return nn.parallel.DistributedDataParallel(model, device_ids=None if device.type == "cpu" else [device.index])
    from torch.distributed.fsdp import FullyShardedDataParallel
    return FullyShardedDataParallel(model, device_id=None if device.type == "cpu" else device)


def run_rank(rank, options, rendezvous, results):
    device = device_of(options, int(os.environ.get("LOCAL_RANK", rank)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend, init_method=rendezvous, rank=rank, world_size=options.ranks)
    torch.manual_seed(1)
    model = wrap(options, Transformer().to(device), device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    say = lambda epoch, loss: print(f"rank {rank} epoch {epoch} validation loss {loss:.6f}", flush=True)
    history = train(options, model, optimizer, device, [rank], say, reduces=True)
    everybody = [None] * options.ranks
    dist.all_gather_object(everybody, history)
    if rank == 0 and results:
        with open(results, "w") as file:
            json.dump(everybody, file)
    dist.barrier()
    if options.backend == "nccl":
        return dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's own threads and the interpreter's end can wait for each other for ever (seen with PyTorch 1.13)


def run_alone(options):
    """The same sums by one process: each rank's part of a batch, and the mean of their gradients."""
    device = device_of(options, 0)
    torch.manual_seed(1)
    model = Transformer().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    say = lambda epoch, loss: print(f"alone epoch {epoch} validation loss {loss:.6f}", flush=True)
    return train(options, model, optimizer, device, range(options.ranks), say, reduces=False)


def main():
    parser = argparse.ArgumentParser(description="Trains a small transformer on several GPUs, one process each.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="batches an epoch")
    parser.add_argument("--batch", type=int, default=32, help="sequences of all ranks together; a multiple of their number")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backend", choices=("nccl", "gloo"), help="default: nccl on GPUs, gloo without")
    parser.add_argument("--fsdp", action="store_true", help="shard the parameters instead of copying them")
    parser.add_argument("--check", action="store_true", help="compare with one process that does the same sums")
    parser.add_argument("--results", help="file for the validation losses of all ranks, as JSON")
    options = parser.parse_args()
    options.backend = options.backend or ("gloo" if options.device == "cpu" else "nccl")
    if "LOCAL_RANK" in os.environ:  # started by torchrun
        options.ranks = int(os.environ["WORLD_SIZE"])
        return run_rank(int(os.environ["RANK"]), options, "env://", options.results)
    if options.batch % options.ranks:
        parser.error(f"--batch {options.batch} is no multiple of --ranks {options.ranks}")
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        results = options.results or f"{folder}/results.json"
        multiprocessing.spawn(run_rank, (options, f"file://{folder}/rendezvous", results), nprocs=options.ranks)
        with open(results) as file:
            everybody = json.load(file)
    if not options.check:
        return 0
    alone = run_alone(options)
    worst = max(abs(loss - expected) for history in everybody for loss, expected in zip(history, alone))
    print(f"largest difference from one process: {worst:.2e}")
    if worst > 1e-3:
        raise SystemExit(f"the ranks' losses {everybody} differ from {alone}")


if __name__ == "__main__":
    main()
