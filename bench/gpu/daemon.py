#!/usr/bin/env python3
"""What the daemon costs with 100 clients of 100 jobs: resident memory, by what, and processor time while nothing changes."""
import collections
import os
import subprocess
import sys
import time

from common import BERTH, _daemon, ps

CLIENT = "import ctypes, sys; ctypes.CDLL('libcuda.so.1').cuInit(0); sys.stdin.read()"
before = open(f"/proc/{_daemon.pid}/status").read()
clients = [subprocess.Popen([BERTH, "run", "--", sys.executable, "-S", "-E", "-c", CLIENT], stdin=subprocess.PIPE) for _ in range(100)]
deadline = time.monotonic() + 120
while sum(len(job["clients"]) for job in ps()["jobs"]) < 100:
    if time.monotonic() > deadline:
        sys.exit("not all clients have attached")
    time.sleep(0.5)
time.sleep(5)


def ticks():
    return sum(map(int, open(f"/proc/{_daemon.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]))


start = ticks()
time.sleep(10)
spent = (ticks() - start) / os.sysconf("SC_CLK_TCK")
after = open(f"/proc/{_daemon.pid}/status").read()
size = lambda text, key: int(text.split(key + ":")[1].split()[0])
for key in ("VmRSS", "RssAnon", "RssFile", "RssShmem"):
    print(f"{key:<9} without clients {size(before, key):>7} kB, with 100 {size(after, key):>7} kB")
print(f"processor time in 10 s without a change: {1000 * spent:.0f} ms")
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
