#!/usr/bin/env python3
"""The exports of a driver of CUDA 11.8, as a linker script: all but the functions that driver.versions has from later versions."""
import sys

LAST = 11080
first = {}
for line in open(sys.argv[1]):
    if line.startswith("#") or not line.split():
        continue
    _, _, version, symbol = line.split()
    first[symbol] = min(int(version), first.get(symbol, 1 << 30))
later = sorted(symbol for symbol, version in first.items() if version > LAST and symbol != "-")
assert "cuLibraryLoadData" in later and "cuMemAllocAsync" not in later
print("{\n  global:\n    cu*;\n    berth_sim_*;\n  local:\n" + "".join(f"    {symbol};\n" for symbol in later) + "    *;\n};")
