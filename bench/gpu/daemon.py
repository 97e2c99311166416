#!/usr/bin/env python3
"""What the daemon costs with 100 clients of 100 jobs: resident memory, by what, and processor time while nothing changes: right
after they have come, and when the daemon has seen that nothing does (its readings become rare)."""
import collections
import os
import subprocess
import sys
import time

from common import BERTH, _daemon, ps

CLIENT = "import ctypes, sys; ctypes.CDLL('libcuda.so.1').cuInit(0); sys.stdin.read()"


def ticks():
    return sum(map(int, open(f"/proc/{_daemon.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))


def spent(seconds):
    start = ticks()
    time.sleep(seconds)
    return f"{1000 * (ticks() - start) / os.sysconf('SC_CLK_TCK'):.0f} ms in {seconds} s"


def sizes():
    text = open(f"/proc/{_daemon.pid}/status").read()
    return {key: int(text.split(key + ":")[1].split()[0]) for key in ("VmRSS", "RssAnon", "RssFile", "RssShmem")}


before = sizes()
clients = [subprocess.Popen([BERTH, "run", "--", sys.executable, "-S", "-E", "-c", CLIENT], stdin=subprocess.PIPE) for _ in range(100)]
deadline = time.monotonic() + 120
while sum(len(job["clients"]) for job in ps()["jobs"]) < 100:
    if time.monotonic() > deadline:
        sys.exit("not all clients have attached")
    time.sleep(0.5)
time.sleep(5)
at_once, there = spent(10), sizes()
time.sleep(30)
calm, after = spent(30), sizes()
print(f"{'kB':<10}{'no client':>10}{'100':>10}{'100, calm':>10}")
for key in after:
    print(f"{key:<10}{before[key]:>10}{there[key]:>10}{after[key]:>10}")
print(f"processor time without a change: {at_once}; calm: {calm}")
parts, name = collections.Counter(), ""
for line in open(f"/proc/{_daemon.pid}/smaps"):
    words = line.split()
    if "-" in words[0] and ":" not in words[0]:
        name = words[5] if len(words) > 5 else "anonymous"
    elif words[0] == "Rss:":
        parts[name] += int(words[1])
print("largest:", ", ".join(f"{part} {kb} kB" for part, kb in parts.most_common(6)))
for client in clients:
    client.stdin.close()
for client in clients:
    client.wait(30)
