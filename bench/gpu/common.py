"""What the scenarios share: a daemon of their own, running programs alone and under berth, and plain statistics."""
import atexit
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = os.path.join(HERE, "programs")
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else sys.exit("usage: SCRIPT BUILD_FOLDER")
BERTH = os.path.join(BUILD, "bin/berth")
WORK = tempfile.mkdtemp(prefix="berth-bench-")
os.environ["BERTH_SOCKET"] = os.path.join(WORK, "s")
os.environ.pop("BERTH_DRIVER", None)
_daemon = subprocess.Popen([os.path.join(BUILD, "bin/berthd"), "--idle-seconds", "0"], stderr=open(os.path.join(WORK, "daemon.log"), "w"))


@atexit.register
def _stop():
    _daemon.terminate()
    try:
        _daemon.wait(10)
    except subprocess.TimeoutExpired:
        _daemon.kill()
    log = open(os.path.join(WORK, "daemon.log")).read()
    if log:
        print("daemon said:", log[-2000:])
    shutil.rmtree(WORK, ignore_errors=True)


for _ in range(100):
    if os.path.exists(os.environ["BERTH_SOCKET"]):
        break
    time.sleep(0.05)


def start(command, berth=None, env=None):
    """berth: options of `berth run`, or None to run unshared."""
    full = ([BERTH, "run", *berth, "--"] if berth is not None else []) + command
    return subprocess.Popen(full, env={**os.environ, **(env or {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, timeout=300):
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


def ps():
    return json.loads(subprocess.run([BERTH, "ps", "--json"], capture_output=True, text=True).stdout)


def python(script, *arguments):
    return [sys.executable, os.path.join(PROGRAMS, script), *arguments]


def interval(values):
    """Mean and half of its 95 % confidence interval (Student's t, up to 30 values)."""
    t = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10, 2.09, 2.09]
    n, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1))
    return mean, t[min(n - 2, len(t) - 1)] * deviation / math.sqrt(n)
