#!/usr/bin/env python3
"""Two PyTorch programs with 40 % quotas go to their limit and beyond at once; views agree; kill -9 gives memory back."""
import glob
import json
import os
import signal
import subprocess
import time

from common import BERTH, WORK, finish, ps, python, start

bad = 0


def check(what, good, detail=""):
    global bad
    bad += not good
    print(f"{'ok  ' if good else 'BAD '} {what} {detail}", flush=True)


for config in ("", "expandable_segments:True", "backend:cudaMallocAsync"):
    go = os.path.join(WORK, "go" + config[:6])
    env = {"FILL_WAIT": go, "PYTORCH_CUDA_ALLOC_CONF": config}
    pair = [start(python("fill.py"), ["-m", "40%", "-n", name], env) for name in ("left", "right")]
    deadline = time.monotonic() + 120
    while len(glob.glob(go + ".*")) < 2 and time.monotonic() < deadline and all(p.poll() is None for p in pair):
        time.sleep(0.02)
    jobs = {j["name"]: j for j in ps()["jobs"]}
    open(go, "w").close()
    ends = [finish(p) for p in pair]
    label = config or "default allocator"
    for name, (code, out, err) in zip(("left", "right"), ends):
        check(f"{label}: {name} ends well", code == 0 and not any("berth" in l for l in err.splitlines()), err[-300:] if code else "")
        if code:
            continue
        r = json.loads(out.splitlines()[-1])
        quota = jobs[name]["devices"][0]["quota_bytes"]
        check(f"{label}: {name} got its own OutOfMemoryError", bool(r["error"]), r["error"] or "")
        check(f"{label}: {name} views agree", r["total_bytes"] == r["info_total_bytes"] == quota)
        overhead = jobs[name]["devices"][0]["overhead_bytes"]
        check(f"{label}: {name} used its quota and no more", quota - (1 << 30) - overhead <= r["got_bytes"] <= quota,
              f"{r['got_bytes'] / 2**30:.1f} of {quota / 2**30:.1f} GiB, overhead {overhead / 2**30:.2f}")
        check(f"{label}: {name} memory right, usable after the refusal, work {r['work']}", r["right"] and r["again"] and r["work"] > 0)

holder = start(["python3", "-c", "import torch,time; x=torch.ones(20<<30,dtype=torch.uint8,device='cuda'); torch.cuda.synchronize(); print('held',flush=True); time.sleep(60)"],
               ["-m", "30G", "-n", "holder"])
holder.stdout.readline()
job = [j for j in ps()["jobs"] if j["name"] == "holder"][0]
used = job["devices"][0]["used_bytes"]
check("a held job is shown", used >= 20 << 30, f"used {used / 2**30:.2f} GiB, overhead {job['devices'][0]['overhead_bytes'] / 2**30:.2f}")
os.kill(job["clients"][0]["pid"], signal.SIGKILL)
begin = time.monotonic()
while any(j["name"] == "holder" and j["devices"][0]["used_bytes"] for j in ps()["jobs"]) and time.monotonic() - begin < 20:
    time.sleep(0.01)
check("kill -9: its memory is free again", time.monotonic() - begin < 3, f"after {(time.monotonic() - begin) * 1e3:.0f} ms")
holder.wait(20)
code, out, err = finish(start(python("fill.py"), ["-m", "500G"]))
check("a quota larger than the device is refused", code in (75, 125) and "berth:" in err, err.strip())
tiny = finish(start(["python3", "-c", "import torch; print(torch.cuda.mem_get_info()[0])"], ["-m", "64M"]))
check("B5: a quota of 64 MiB: cudaMemGetInfo answers", tiny[0] == 0 and tiny[1].strip() == "0", f"free {tiny[1].strip()} {tiny[2][-200:]}")
print("FAILED" if bad else "all good")
raise SystemExit(bad != 0)
