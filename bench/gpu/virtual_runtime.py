#!/usr/bin/env python3
"""Programs of the shared CUDA runtime on virtual devices of the real GPU, several in one process: PyTorch and an nvcc program.

virtual_runtime.py BUILD [SECTION...]: all sections, or these: alone torch nvcc visible ranks cost"""
import json
import os
import shutil
import subprocess
import sys

from common import BUILD, PROGRAMS, WORK, finish, python, start

ALIAS = os.path.join(BUILD, "lib/berth/shim/libberth_cudart.so")
bad = 0


def row(what, fine, text=""):
    global bad
    bad += not fine
    print(f"{what:<64}{'' if fine else 'WRONG  '}{text}", flush=True)


def run(command, options, env=None):
    return finish(start(command, options, env))


def torch_checks(count, mib, options, env=None, label=""):
    code, out, err = run(python("virtual_devices.py", str(count), str(mib)), options, env)
    for line in out.splitlines():
        said = json.loads(line)
        row(f"torch{label}, {count}: {said['check']}", said["fine"], said["text"])
    row(f"torch{label}, {count}: ends well", code == 0 and len(out.splitlines()) >= 15 and "berth" not in err, err[-300:] if code else "")


def build(name, kind):
    program = os.path.join(WORK, f"{name}_{kind}")
    subprocess.run(["nvcc", "-arch=native", "-cudart", kind, "-o", program, os.path.join(PROGRAMS, f"{name}.cu")], check=True)
    return program


def nvcc_checks(count, mib, options, label=""):
    code, out, err = run([build("virtual_devices", "shared"), str(count), str(mib)], options)
    for line in out.splitlines():
        name, fine, text = line.split("\t")
        row(f"nvcc{label}, {count}: {name}", fine == "1", text)
    row(f"nvcc{label}, {count}: ends well", code == 0 and "berth" not in err, err[-300:] if code else "")


def alone():
    """The library by itself: preloaded where there is no job, it changes nothing."""
    look = "import torch; c = torch.cuda; p = c.get_device_properties(0); print(c.device_count(), p.uuid, p.total_memory, torch.ones(9, device='cuda').sum().item())"
    plain = finish(start([sys.executable, "-c", look]))
    preloaded = finish(start([sys.executable, "-c", look], env={"LD_PRELOAD": ALIAS}))
    row("preloaded without berth: as without it", plain[0] == 0 and plain[:2] == preloaded[:2], preloaded[1].strip() or preloaded[2][-300:])
    job = finish(start([sys.executable, "-c", look], ["-m", "16G"], {"LD_PRELOAD": ALIAS}))
    row("preloaded in a job without -g: the card, of the job's size", job[0] == 0 and job[1].split()[:3] == [plain[1].split()[0], plain[1].split()[1], str(16 << 30)], job[1].strip() or job[2][-300:])


def torch():
    for count, gib in ((1, 16), (2, 16), (4, 16), (8, 8)):
        if count > 1:
            torch_checks(count, gib << 10, ["-g", str(count), "-m", f"{gib}G"])
    torch_checks(3, 8 << 10, ["-g", "3", "-m", "8G"], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, " (expandable segments)")


def nvcc():
    if not shutil.which("nvcc"):
        return
    for count in (1, 2, 4):
        nvcc_checks(count, 8 << 10, ["-g", str(count), "-m", "8G"])


def visible():
    look = "import torch; c = torch.cuda; print(c.device_count(), [torch.ones(2, device=i).device.index for i in range(c.device_count())])"
    for list_, count in (("2", 1), ("3,1", 2), ("0,9,1", 1)):
        code, out, err = run(["env", f"CUDA_VISIBLE_DEVICES={list_}", sys.executable, "-c", look], ["-g", "4", "-m", "8G"])
        row(f"torch, CUDA_VISIBLE_DEVICES={list_}", code == 0 and out.split()[0] == str(count), out.strip() or err[-300:])


def ranks():
    """A process a device, each with cuda:RANK, as torchrun's programs choose it."""
    one = ("import os, torch; r = int(os.environ['RANK_HERE']); torch.cuda.set_device(r); x = torch.full((1 << 28,), r, dtype=torch.uint8, device='cuda'); "
           "print(r, x.device.index, torch.cuda.device_count(), x[-1].item(), flush=True)")
    shell = "for r in 0 1 2 3; do RANK_HERE=$r \"$0\" -c \"$1\" & done; wait"
    code, out, err = run(["sh", "-c", shell, sys.executable, one], ["-g", "4", "-m", "4G"])
    row("4 processes, cuda:RANK each", code == 0 and sorted(out.split("\n"))[1:] == [f"{r} {r} 4 {r}" for r in range(4)], out.replace("\n", "; ") or err[-300:])


def cost():
    """What the calls that PyTorch makes most cost more; no target, but it must not be felt beside a launch (3 us)."""
    look = ("import ctypes, time, torch; torch.ones(1, device='cuda'); rt = [l for l in open('/proc/self/maps').read().split() if 'libcudart' in l and '/' in l and 'berth' not in l][0]; "
            "d = ctypes.c_int(); import sys\n"
            "f = ctypes.CDLL(None).cudaGetDevice if hasattr(ctypes.CDLL(None), 'cudaGetDevice') else ctypes.CDLL(rt).cudaGetDevice\n"
            "p = ctypes.byref(d); [f(p) for _ in range(10000)]; t = time.perf_counter(); [f(p) for _ in range(1000000)]; print((time.perf_counter() - t) * 1e3)")
    plain, shared = run([sys.executable, "-c", look], None), run([sys.executable, "-c", look], ["-g", "2", "-m", "8G"])
    fine = plain[0] == 0 and shared[0] == 0
    row("cudaGetDevice, ns more than plain (both by ctypes)", fine, f"{float(shared[1]) - float(plain[1]):.0f}" if fine else (plain[2] + shared[2])[-300:])


SECTIONS = {"alone": alone, "torch": torch, "nvcc": nvcc, "visible": visible, "ranks": ranks, "cost": cost}
if not os.path.exists(ALIAS):
    sys.exit(f"{ALIAS} is not built")
for name in sys.argv[2:] or SECTIONS:
    SECTIONS[name]()
print(f"{bad} wrong")
sys.exit(bad > 0)
