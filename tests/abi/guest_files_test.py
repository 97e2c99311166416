#!/usr/bin/env python3
"""What the three guest libraries are, seen from outside (docs/guest-rules.md): SHIM_FOLDER ABI_FOLDER"""
import os
import re
import subprocess
import sys


def out(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def names(path):
    """Of the runtime's functions only those are exported to which it matters which device is meant."""
    return {l.split()[0] for l in open(path) if l.strip() and not l.startswith("#") and l.split()[1] != "pass"}


faults = []


def want(condition, text):
    if not condition:
        faults.append(text)


shim, abi = sys.argv[1:3]
OWN = {"cu": {"berth_shim_version", "berth_shim_devices"}, "nvml": {"berth_shim_version"}, "cuda": set()}
for file, symbols, prefix in (("libcuda.so.1", "driver.symbols", "cu"), ("libnvidia-ml.so.1", "nvml.symbols", "nvml"),
                              ("libberth_cudart.so", "runtime.symbols", "cuda")):
    path = os.path.join(shim, file)
    table = [l.split() for l in out("readelf", "--dyn-syms", "-W", path).splitlines() if re.match(r"\s+\d+:", l)]
    exported = {r[7].split("@")[0] for r in table if len(r) > 7 and r[6] != "UND"}
    ours = names(os.path.join(abi, symbols))
    want(exported - OWN[prefix] == ours,
         f"{file}: exports differ from {symbols}: more {sorted(exported - ours)[:5]}, less {sorted(ours - exported)[:5]}")
    data = [r[7] for r in table if len(r) > 7 and r[6] != "UND" and r[3] == "OBJECT" and r[7].startswith(prefix)]
    want(not data, f"{file}: exports data under the library's names: {data}")
    dynamic = out("readelf", "-dW", path)
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", dynamic))
    want(needed == {"libc.so.6", "libdl.so.2", "libpthread.so.0"}, f"{file}: NEEDED is {sorted(needed)}")
    want(f"[{file}]" in dynamic, f"{file}: SONAME is another")
    for word in ("SYMBOLIC", "NODELETE", "BIND_NOW"):
        want(word in dynamic, f"{file}: not {word}")
    for word in ("INIT_ARRAY", "FINI_ARRAY", "(INIT)", "(FINI)", "RELR", "TEXTREL", "RPATH", "RUNPATH"):
        want(word not in dynamic, f"{file}: has {word}")
    undefined = [r[7] for r in table if len(r) > 7 and r[6] == "UND"]
    for name in undefined:
        version = re.search(r"@(GLIBC_\S+)", name)
        want(version, f"{file}: {name} has no version")
        if version:
            number = version.group(1)[6:]
            want(number != "PRIVATE" and tuple(map(int, number.split("."))) <= (2, 17), f"{file}: {name} is newer than glibc 2.17")
    banned = {"dlsym", "dlvsym", "exit", "_exit", "abort", "__assert_fail", "signal", "sigaction", "malloc", "free", "atexit",
              "__cxa_atexit", "umask", "chdir", "setenv", "putenv", "unsetenv", "printf", "puts"}
    if prefix == "cuda":  # stands in for no file, so it must ask the loader for the runtime's functions; it exports none such
        banned.remove("dlsym")
        want(not any("@" in r[7] for r in table if len(r) > 7 and r[6] != "UND"), f"{file}: a name with a version satisfies one runtime's callers only")
    used = {n.split("@")[0] for n in undefined} & banned
    want(not used, f"{file}: uses {sorted(used)}")
    notes = out("readelf", "-nW", path)
    if "X86-64" in out("readelf", "-hW", path):
        want("IBT" in notes and "SHSTK" in notes, f"{file}: the property note does not carry IBT and SHSTK")
    tls = re.search(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(0x\w+)", out("readelf", "-lW", path), re.M)
    want(not tls or int(tls.group(1), 16) <= 32, f"{file}: more than 32 bytes of TLS")
    stack = re.search(r"GNU_STACK.*", out("readelf", "-lW", path))
    want(stack and "E" not in stack.group(0).split()[-2], f"{file}: executable stack")

print("\n".join(faults) or "guest files keep their rules")
sys.exit(bool(faults))
