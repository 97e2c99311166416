#!/usr/bin/env python3
"""Unmodified programs alone, under berth, and two side by side under berth: same output, same exit code, nothing of ours.

frameworks.py BUILD [NAME...]: all programs, or these."""
import os
import shutil
import subprocess
import sys

from common import PROGRAMS, WORK, finish, python, start

CASES = {
    "torch, default allocator": (python("train.py"), {}),
    "torch, expandable segments": (python("train.py"), {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "torch, cudaMallocAsync": (python("train.py"), {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "torch, CUDA graph": (python("train.py"), {"TRAIN_GRAPH": "1"}),
    "torch, graph + expandable": (python("train.py"), {"TRAIN_GRAPH": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "torch, graph + cudaMallocAsync": (python("train.py"), {"TRAIN_GRAPH": "1", "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "torch, 4 loader workers": (python("train.py"), {"TRAIN_WORKERS": "4"}),
    "torch, expandable + workers": (python("train.py"), {"TRAIN_WORKERS": "4", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "jax": (python("other_frameworks.py", "jax"), {}),
    "cupy": (python("other_frameworks.py", "cupy"), {}),
    "triton": (python("other_frameworks.py", "triton"), {}),
}
if shutil.which("nvcc"):
    for kind in ("static", "shared"):
        program = os.path.join(WORK, "runtime_" + kind)
        subprocess.run(["nvcc", "-arch=native", "-cudart", kind, "-o", program, os.path.join(PROGRAMS, "runtime.cu")], check=True)
        CASES[f"nvcc, {kind} runtime"] = ([program], {})


def result(process):
    code, out, err = finish(process)
    noise = [l for l in err.splitlines() if "berth" in l]
    return code, out, noise


bad = 0
print(f"{'program':<32}{'alone twice':<14}{'under berth':<14}{'side by side':<14}")
for name, (command, env) in CASES.items():
    if len(sys.argv) > 2 and name not in sys.argv[2:]:
        continue
    first, second = result(start(command, env=env)), result(start(command, env=env))
    if first[0] and "ModuleNotFoundError" in "".join(first[1:2]):
        continue
    under = result(start(command, ["-m", "20G"], env))
    pair = [start(command, ["-m", "20G"], env) for _ in range(2)]
    pair = [result(p) for p in pair]
    repeatable = first == second
    same = lambda r: "same" if r == first else "as exit 0" if not repeatable and r[0] == first[0] and not r[2] else f"DIFFERS {r[0]} {r[1][-60:]!r} {r[2][:1]}"
    row = [same(under), same(pair[0]) if same(pair[0]) == same(pair[1]) else f"{same(pair[0])} / {same(pair[1])}"]
    bad += any("DIFFERS" in c for c in row) or first[0] != 0
    print(f"{name:<32}{'equal' if repeatable else 'not equal':<14}{row[0]:<14}{row[1]:<14}" + ("" if first[0] == 0 else f" alone exit {first[0]}"), flush=True)
smi = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
code, out, err = finish(start(smi, ["-m", "8G"]))
quota = out.split(",")[0].strip() == "8192"
bad += code != 0 or not quota
print(f"nvidia-smi in a job of 8 GiB: exit {code}, total and used MiB: {out.strip()}{'' if quota else '  WRONG'}")
code, out, err = finish(start(["nvidia-smi"], ["-m", "8G"]))
bad += code != 0 or "8192MiB" not in out
print("nvidia-smi table shows the quota:", "8192MiB" in out)
print("FAILED" if bad else "all as unshared")
raise SystemExit(bad != 0)
