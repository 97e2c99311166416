#!/usr/bin/env python3
"""The generator refuses lists that would leave a hole, and --verify sees a changed file: ABI_FOLDER"""
import os
import shutil
import subprocess
import sys
import tempfile


def attempt(change=None, verify=False):
    """Runs a copy of the generator on a changed copy of the lists; returns (exit code, what it said)."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "abi")
        shutil.copytree(sys.argv[1], copy)
        if change:
            change(copy)
        run = subprocess.run([sys.executable, os.path.join(copy, "generate.py")] + ["--verify"] * verify, capture_output=True, text=True)
        return run.returncode, run.stderr


def replace(file, old, new):
    def change(copy):
        path = os.path.join(copy, file)
        text = open(path).read()
        assert old in text, old
        open(path, "w").write(text.replace(old, new, 1))
    return change


def row(name):
    for line in open(os.path.join(sys.argv[1], "driver.symbols")):
        if line.split()[:1] == [name]:
            return line
    raise KeyError(name)


launch, alloc = row("cuLaunchKernel"), row("cuMemAlloc_v2")
peer = "cudaMemcpyPeer                                        card\n"
cases = {
    "unchanged": (None, False, 0, ""),
    "verify, unchanged": (None, True, 0, ""),
    "verify, changed output": (replace("generated/driver_rows.h", "enum class Row", "enum class  Row"), True, 1, "driver_rows.h"),
    "verify, stray file": (lambda c: open(os.path.join(c, "generated", "x.h"), "w").write("x"), True, 1, "x.h"),
    "a submission that is only forwarded": (replace("driver.symbols", launch, launch.replace("gate   ", "forward")), False, 1, "must be a gate"),
    "an allocation that is only forwarded": (replace("driver.symbols", alloc, alloc.replace("intercept", "forward  ")), False, 1, "must be an intercept"),
    "an intercept without a declaration": (replace("driver_api.h", "CUresult cuMemAlloc_v2(", "// CUresult cuMemAlloc_v2("), False, 1, "must declare it"),
    "a class that there is not": (replace("driver.symbols", launch, launch.replace("submit", "submot")), False, 1, "want:"),
    "a runtime's function with a device that is only passed": (replace("runtime.symbols", peer, peer.replace("card", "pass")), False, 1, "exactly if it is not pass"),
    "a runtime's function that tells devices without a body": (replace("runtime.symbols", "cudaStreamGetDevice                                   body", "cudaStreamGetDevice card"), False, 1, "needs a body"),
    "a runtime's function that the list lacks": (replace("runtime.symbols", peer, ""), False, 1, "is not in runtime.symbols"),
    "a runtime's function of no sort": (replace("runtime.symbols", peer, peer.replace("card", "cart")), False, 1, "want: name becomes"),
    "unsorted": (replace("driver.symbols", alloc, alloc + launch), False, 1, "sorted"),
}
bad = 0
for what, (change, verify, code, text) in cases.items():
    got, said = attempt(change, verify)
    if got != code or text not in said:
        bad += 1
        print(f"{what}: exit {got}, wanted {code} with '{text}', got: {said.strip()}")
print(f"{len(cases) - bad} of {len(cases)} cases right")
sys.exit(bool(bad))
