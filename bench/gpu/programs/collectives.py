#!/usr/bin/env python3
"""Ranks of one job, one virtual device each: every collective with a known answer, then all-reduce timed.

collectives.py RANKS [BACKEND [MiB]]    prints one JSON line: what was right, GB/s of all-reduce, seconds to the first collective"""
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing


def right(tensor, expected):
    return bool((tensor == expected).all().item())


def check(rank, ranks, device):
    """{collective: right?}"""
    words = 1 << 16
    own = torch.full((words,), float(rank + 1), device=device)
    found = {}
    total = own.clone()
    dist.all_reduce(total)
    found["all_reduce"] = right(total, ranks * (ranks + 1) / 2)
    told = own.clone()
    dist.broadcast(told, src=ranks - 1)
    found["broadcast"] = right(told, ranks)
    if dist.get_backend() == "gloo":  # the rest is for tensors of the processor there
        own = own.cpu()
    parts = [torch.empty_like(own) for _ in range(ranks)]
    dist.all_gather(parts, own)
    found["all_gather"] = all(right(part, i + 1) for i, part in enumerate(parts))
    got = torch.empty_like(own)
    to, source = (rank + 1) % ranks, (rank - 1) % ranks
    for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, own, to), dist.P2POp(dist.irecv, got, source)]):
        request.wait()
    found["send_recv"] = right(got, source + 1)
    return found


def measure(device, mib, seconds=2.0):
    tensor = torch.ones(mib << 18, device=device)
    for _ in range(3):
        dist.all_reduce(tensor)
        tensor.fill_(1)
    times, began = [], time.monotonic()
    count = torch.tensor([1], device=device)
    while count.item():
        torch.cuda.synchronize(device)
        dist.barrier()
        start = time.monotonic()
        dist.all_reduce(tensor)
        torch.cuda.synchronize(device)
        times.append(time.monotonic() - start)
        count.fill_(int(time.monotonic() - began < seconds and len(times) < 50))
        dist.broadcast(count, src=0)  # all stop together
    return (mib << 20) / sorted(times)[len(times) // 2] / 1e9


def run(rank, ranks, backend, mib, rendezvous, began):
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=ranks)
    found = check(rank, ranks, device)
    ready = time.time() - began
    speed = measure(device, mib)
    everybody = [None] * ranks
    dist.all_gather_object(everybody, found)
    if rank == 0:
        print(json.dumps({"backend": backend, "ranks": ranks, "right": {name: all(one[name] for one in everybody) for name in found},
                          "GB/s": round(speed, 2), "ready_s": round(ready, 2), "free": torch.cuda.mem_get_info(device)}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    ranks, backend, mib = int(sys.argv[1]), (sys.argv[2:] or ["nccl"])[0], int((sys.argv[3:] or ["64"])[0])
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, (ranks, backend, mib, f"file://{folder}/rendezvous", time.time()), nprocs=ranks)
