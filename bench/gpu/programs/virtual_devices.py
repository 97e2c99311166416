"""One PyTorch process on several virtual devices: virtual_devices.py EXPECTED_COUNT MIB_OF_EACH. Says one JSON line a check."""
import json
import sys
import threading

import torch

count, mib = int(sys.argv[1]), int(sys.argv[2])
cuda = torch.cuda


def check(name):
    def run(body):
        try:
            said = body()
            fine, text = said if isinstance(said, tuple) else (bool(said), "")
        except Exception as error:  # a check that breaks is a check that fails, and the next ones still say something
            fine, text = False, f"{type(error).__name__}: {error}"[:300]
        print(json.dumps({"check": name, "fine": bool(fine), "text": str(text)}), flush=True)
    return run


@check("devices are counted")
def _():
    return cuda.device_count() == count, cuda.device_count()


@check("properties are each one's own")
def _():
    p = [cuda.get_device_properties(i) for i in range(count)]
    return (len({str(x.uuid) for x in p}) == count and {x.total_memory >> 20 for x in p} == {mib} and len({getattr(x, 'pci_bus_id', x.uuid) for x in p}) == count,
            [(str(x.uuid), getattr(x, 'pci_bus_id', None), x.total_memory >> 20) for x in p])


@check("a device out of range is refused")
def _():
    try:
        torch.empty(1, device=f"cuda:{count}")
    except Exception as error:
        return "invalid device ordinal" in str(error), str(error).splitlines()[0]
    return False, "it was not"


@check("mem_get_info is each one's own")
def _():
    held = torch.empty(256 << 20, dtype=torch.uint8, device="cuda:1")
    info = [cuda.mem_get_info(i) for i in range(count)]
    del held
    free = [f >> 20 for f, _ in info]
    return {t >> 20 for _, t in info} == {mib} and free[-1] - free[1] >= 256 * (count > 2) and free[1] <= mib - 256, free


@check("tensors know their device")
def _():
    t = [torch.full((1 << 20,), float(i), device=f"cuda:{i}") for i in range(count)]
    return [x.device.index for x in t] == list(range(count)) and [x.mean().item() for x in t] == [float(i) for i in range(count)]


@check("copies between all pairs")
def _():
    wrong = []
    for a in range(count):
        for b in range(count):
            x = torch.arange(1 << 20, device=f"cuda:{a}", dtype=torch.int32) * (a + 1) + b
            y = x.to(f"cuda:{b}", non_blocking=True)
            if y.device.index != b or not torch.equal(y.cpu(), x.cpu()):
                wrong.append((a, b))
    return not wrong, wrong


@check("peers answer consistently")
def _():
    can = [[a == b or cuda.can_device_access_peer(a, b) for b in range(count)] for a in range(count)]
    return all(map(all, can)), can


@check("streams and events, across devices")
def _():
    streams = [cuda.Stream(device=i) for i in range(count)]
    x, done = torch.ones(1 << 22, device="cuda:0"), None
    for i, stream in enumerate(streams):
        with cuda.stream(stream):
            if done:
                stream.wait_event(done)
            x = x.to(f"cuda:{i}", non_blocking=True) + 1
            done = stream.record_event()
    done.synchronize()
    a, b = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with cuda.device(count - 1):
        a.record()
        torch.mm(torch.ones(1024, 1024, device="cuda"), torch.ones(1024, 1024, device="cuda"))
        b.record()
        b.synchronize()
    return (x.min().item() == x.max().item() == 1 + count and a.elapsed_time(b) > 0 and [s.device.index for s in streams] == list(range(count)),
            a.elapsed_time(b))


@check("the current device is the thread's")
def _():
    seen = {}

    def work(i):
        cuda.set_device(i)
        total = 0.0
        for _ in range(50):
            total += torch.mm(torch.ones(64, 64, device="cuda"), torch.ones(64, 64, device="cuda"))[0, 0].item()
        seen[i] = (cuda.current_device(), torch.empty(1, device="cuda").device.index, total)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    return seen == {i: (i, i, 50 * 64.0) for i in range(count)} and cuda.current_device() == 0, seen


@check("training on each, with the same result")
def _():
    losses = []
    for i in range(count):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(f"cuda:{i}")
        optimizer = torch.optim.Adam(model.parameters())
        x = torch.linspace(-1, 1, 512 * 64).reshape(512, 64).to(f"cuda:{i}")
        for _ in range(20):
            optimizer.zero_grad()
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return len(set(losses)) == 1, losses


@check("a CUDA graph on the last")
def _():
    with cuda.device(count - 1):
        x, graph = torch.zeros(1 << 16, device="cuda"), cuda.CUDAGraph()
        with cuda.graph(graph):
            x += 1
        for _ in range(10):
            graph.replay()
        cuda.synchronize()
        return x.min().item() == x.max().item() == 10.0


@check("set_per_process_memory_fraction holds for one")
def _():
    cuda.set_per_process_memory_fraction(0.25, 1)
    try:
        torch.empty(int(0.5 * mib) << 20, dtype=torch.uint8, device="cuda:1")
        return False, "it did not"
    except torch.OutOfMemoryError:
        pass
    finally:
        cuda.set_per_process_memory_fraction(1.0, 1)
    kept = torch.empty(int(0.5 * mib) << 20, dtype=torch.uint8, device="cuda:1")
    return kept.device.index == 1


@check("each is held to its own quota")
def _():
    cuda.empty_cache()
    reached = []
    for i in range(count):
        held = []
        try:
            while len(held) * 128 < 2 * mib:
                held.append(torch.empty(128 << 20, dtype=torch.uint8, device=f"cuda:{i}"))
        except torch.OutOfMemoryError:
            pass
        reached.append(len(held) * 128)
        with cuda.device((i + 1) % count):  # the neighbour's room is untouched
            torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        del held
        cuda.empty_cache()
    # Less what the process holds already: a context (on the first), workspaces.
    return all(mib - 1600 <= r <= mib for r in reached), reached


@check("memory is given back to its device")
def _():
    import gc
    gc.collect()
    cuda.empty_cache()
    free = [cuda.mem_get_info(i)[0] >> 20 for i in range(count)]
    return all(f > mib - 1600 for f in free), free


@check("DataParallel without NCCL: scatter and gather")
def _():
    parts = torch.nn.parallel.scatter(torch.arange(8.0 * count, device="cuda:0"), list(range(count)))
    back = torch.nn.parallel.gather(parts, 0)
    return [p.device.index for p in parts] == list(range(count)) and torch.equal(back.cpu(), torch.arange(8.0 * count))
