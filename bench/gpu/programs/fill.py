"""Allocates in 256 MiB steps until torch refuses, goes on using what it has, frees, and can allocate again. Prints one JSON line.
FILL_WAIT: a file to wait for after the first allocation, so that two programs fill at the same time."""
import json
import os
import time

import torch

total = torch.cuda.get_device_properties(0).total_memory
free, info_total = torch.cuda.mem_get_info()
held, error = [torch.full((1 << 28,), 7, dtype=torch.uint8, device="cuda")], None
wait = os.environ.get("FILL_WAIT")
if wait:
    open(f"{wait}.{os.getpid()}", "w").close()
    while not os.path.exists(wait):
        time.sleep(0.005)
try:
    while len(held) < 4096:
        held.append(torch.full((1 << 28,), 7, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as e:
    error = str(e).split(".")[0]
count = len(held)
del held[-2:]  # room for what follows; two, since a pool that must grow asks for its whole step, here as on a full device
torch.cuda.synchronize()
begin = time.monotonic()
work, sums = 0, set()
while time.monotonic() - begin < 3:                    # at the limit, beside a neighbour at its limit: the memory is right, work goes on
    for block in held[:4]:
        sums.add(int(block[:: 1 << 12].sum()))
    work += 1
right = all(bool((b == 7).all()) for b in held[::8])
del held
torch.cuda.empty_cache()
again = torch.ones(1 << 28, dtype=torch.uint8, device="cuda").sum().item() == 1 << 28
print(json.dumps({"total_bytes": total, "info_total_bytes": info_total, "free_at_start_bytes": free, "got_bytes": count << 28,
                  "error": error, "right": right and sums == {7 << 16}, "again": again, "work": work}))
