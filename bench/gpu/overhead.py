#!/usr/bin/env python3
"""Attach, cuMemAlloc, launch, training step: unshared and under berth, interleaved. --calls, --training: only these."""
import json
import os
import statistics
import subprocess
import sys

from common import BUILD, finish, interval, python, start

PAIRS = int(os.environ.get("PAIRS", 10))
calls = [os.path.join(BUILD, "tests/driver_calls")]
if "--training" not in sys.argv:
    alone, shared = [], []
    for _ in range(PAIRS):
        alone.append(json.loads(finish(start(calls))[1]))
        shared.append(json.loads(finish(start(calls, ["-m", "20G"]))[1]))
    print(f"{'median of ' + str(PAIRS) + ' runs':<34}{'alone':>12}{'berth':>12}{'more':>12}")
    for key in alone[0]:
        a, b = statistics.median(r[key] for r in alone), statistics.median(r[key] for r in shared)
        print(f"{key:<34}{a:>12.3f}{b:>12.3f}{b - a:>12.3f}")
if "--calls" in sys.argv:
    raise SystemExit
ratios, base = [], []
for i in range(PAIRS):
    order = [None, ["-m", "20G"]] if i % 2 else [["-m", "20G"], None]
    times = {}
    for options in order:
        code, out, err = finish(start(python("train.py", "--time"), options))
        times[options is not None] = float(out.split("ms")[1])
    ratios.append(times[True] / times[False] - 1)
    base.append(times[False])
mean, half = interval(ratios)
print(f"training step: {statistics.median(base):.3f} ms unshared, under berth {100 * mean:+.2f} % +- {100 * half:.2f} (95 %, {PAIRS} pairs)")
