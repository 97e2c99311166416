#!/usr/bin/env python3
"""Virtual devices on the real GPU: who sees what, collectives, training on several ranks, and what they cost.

virtual.py BUILD [SECTION...]: all sections, or these: views collectives training start steps beside static"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

from common import BUILD, PROGRAMS, WORK, finish, python, start

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
bad = 0


def row(what, fine, text):
    global bad
    bad += not fine
    print(f"{what:<44}{'' if fine else 'WRONG  '}{text}", flush=True)


def example(name, *options):
    return [sys.executable, os.path.join(EXAMPLES, name), *options]


def run(command, options=(), env=None):
    return finish(start(command, list(options), env or {}))


def views():
    code, out, _ = run(["nvidia-smi", "-L"], ["-g", "4", "-m", "16G"])
    row("nvidia-smi -L", code == 0 and len(set(re.findall(r"UUID: (\S+)\)", out))) == 4, f"{len(out.splitlines())} lines")
    code, out, _ = run(["nvidia-smi", "--query-gpu=index,pci.bus_id,memory.total", "--format=csv,noheader,nounits"], ["-g", "4", "-m", "16G"])
    lines = [l.split(", ") for l in out.strip().splitlines()]
    row("nvidia-smi: index, bus id, total", [l[0] for l in lines] == list("0123") and {l[2] for l in lines} == {"16384"}, str(lines))
    look = ("import torch, json; c = torch.cuda; print(json.dumps([c.device_count(), [str(c.get_device_properties(i).uuid) for i in range(c.device_count())], "
            "[c.mem_get_info(i)[1] >> 20 for i in range(c.device_count())], [c.can_device_access_peer(0, i) for i in range(1, c.device_count())]]))")
    for visible, count in ((None, 4), ("2", 1), ("3,1", 2), ("0,9,1", 1)):
        command = [sys.executable, "-c", look] if visible is None else ["env", f"CUDA_VISIBLE_DEVICES={visible}", sys.executable, "-c", look]
        code, out, err = run(command, ["-g", "4", "-m", "16G"])
        said = json.loads(out.splitlines()[-1]) if code == 0 and out else [0, [], []]
        row(f"PyTorch, CUDA_VISIBLE_DEVICES={visible}", said[0] == count and len(set(said[1])) == count and set(said[2]) == {16384}, f"{out.strip() or err[-200:]}")


def collectives():
    for backend in ("nccl", "gloo"):
        for ranks in (2, 4, 8):
            if backend == "gloo" and ranks == 8:
                continue
            code, out, err = run(python("collectives.py", str(ranks), backend), ["-g", str(ranks), "-m", "12G"])
            said = json.loads(out.splitlines()[-1]) if code == 0 and out else {}
            row(f"{backend}, {ranks} ranks", bool(said) and all(said["right"].values()),
                f"all-reduce of 64 MiB {said['GB/s']} GB/s, ready after {said['ready_s']} s" if said else err[-300:])


def training():
    for options in (["--ranks", "2"], ["--ranks", "4"], ["--ranks", "8"], ["--ranks", "4", "--fsdp"], ["--ranks", "2", "--backend", "gloo"]):
        code, out, err = run(example("ddp_transformer.py", "--check", *options), ["-g", options[1], "-m", "12G"])
        found = re.search(r"largest difference from one process: (\S+)", out)
        row("ddp_transformer " + " ".join(options), code == 0 and bool(found), found[1] if found else err[-300:])
    if shutil.which("torchrun"):
        command = ["torchrun", "--nproc-per-node", "4", os.path.join(EXAMPLES, "ddp_transformer.py")]
        code, out, err = run(command, ["-g", "4", "-m", "12G"])
        row("torchrun --nproc-per-node 4", code == 0 and len(re.findall(r"rank \d epoch 1", out)) == 4, "" if code == 0 else err[-300:])
    code, out, err = run(example("one_model_per_device.py"), ["-g", "3", "-m", "8G"])
    row("one_model_per_device, -g 3", code == 0 and "all 3 together" in out, out.strip().splitlines()[-1] if out else err[-300:])


def seconds(command, options):
    began = time.monotonic()
    code, _, err = run(command, options)
    if code:
        print(err[-300:])
    return time.monotonic() - began


def start_time():
    command = lambda ranks: example("ddp_transformer.py", "--ranks", ranks, "--steps", "1", "--epochs", "1")
    one = min(seconds(command("1"), ["-g", "1", "-m", "12G"]) for _ in range(2))
    four = min(seconds(command("4"), ["-g", "4", "-m", "12G"]) for _ in range(2))
    row("start of 4 ranks against 1", four <= 1.2 * one, f"{four:.2f} s / {one:.2f} s = {four / one:.2f} (target 1.2)")


def steps():
    command = lambda ranks: example("ddp_transformer.py", "--ranks", ranks, "--steps", "200", "--epochs", "1", "--batch", str(256 * int(ranks)))
    short = lambda ranks: example("ddp_transformer.py", "--ranks", ranks, "--steps", "10", "--epochs", "1", "--batch", str(256 * int(ranks)))
    step = {}
    for ranks in ("1", "4"):
        options = ["-g", ranks, "-m", "12G"]
        step[ranks] = (seconds(command(ranks), options) - seconds(short(ranks), options)) / 190
    row("step of 4 ranks against 4 of one", True, f"{1e3 * step['4']:.2f} ms / (4 x {1e3 * step['1']:.2f} ms) = {step['4'] / 4 / step['1']:.2f}")


def beside():
    """Ranks that wait for each other's kernels beside a job of high priority: they must come through."""
    high = start(python("train.py"), ["-p", "high", "-m", "20G"], {"TRAIN_STEPS": "400"})
    began = time.monotonic()
    code, out, err = run(python("collectives.py", "4", "nccl"), ["-p", "low", "-g", "4", "-m", "12G"])
    took = time.monotonic() - began
    said = json.loads(out.splitlines()[-1]) if code == 0 and out else {}
    row("4 low ranks beside a high job", bool(said) and all(said["right"].values()), f"{took:.1f} s, {said.get('GB/s')} GB/s" if said else err[-300:])
    code = finish(high)[0]
    row("the high job", code == 0, f"exit {code}")


def static_runtime():
    """Programs with a runtime of their own see one device; a launcher's rank tells which virtual one it is."""
    if not shutil.which("nvcc"):
        return
    program = os.path.join(WORK, "rank_static")
    subprocess.run(["nvcc", "-arch=native", "-cudart", "static", "-o", program, os.path.join(PROGRAMS, "runtime.cu")], check=True)
    ranks = 'for r in 0 1 2 3; do OMPI_COMM_WORLD_LOCAL_RANK=$r "$0" & done; wait'
    code, out, err = run(["sh", "-c", ranks, program], ["-g", "4", "-m", "4G"])
    row("4 ranks of a program with a static runtime", code == 0, "" if code == 0 else err[-300:])


SECTIONS = {"views": views, "collectives": collectives, "training": training, "start": start_time, "steps": steps, "beside": beside,
            "static": static_runtime}
for name in sys.argv[2:] or SECTIONS:
    SECTIONS[name]()
sys.exit(bad > 0)
