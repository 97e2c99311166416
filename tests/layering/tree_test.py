#!/usr/bin/env python3
"""What must not stand in the source tree: files that are too long, paths of somebody's machine, headers of NVIDIA."""
import re

from source_tree import files, finish, name

LONGEST = 600
CODE = {".h", ".cpp", ".inc", ".S", ".py", ".sh", ".cmake", ".md"}
PRIVATE_PATH = re.compile(r"(?<![\w.$}/-])/(?:work|home)/")
NVIDIA_HEADER = re.compile(r"LicenseRef-Nvidia|NVIDIA Corporation|NOTICE TO LICENSEE", re.I)
NVIDIA_NAMES = re.compile(r"(?:cuda|nvml|cuda_runtime(?:_api)?|cudaTypedefs|driver_types|nvToolsExt)\.h")
NOT_OURS = {"LICENSE"}


def complaints(path):
    text = path.read_text(errors="replace")
    ours = name(path) not in NOT_OURS
    lines = text.count("\n")
    if ours and path.suffix in CODE and "generated" not in path.parts and lines > LONGEST:
        yield f"{name(path)}: {lines} lines, at most {LONGEST}: split it"
    if path.name == "tree_test.py":
        return
    for number, line in enumerate(text.splitlines(), 1):
        if PRIVATE_PATH.search(line):
            yield f"{name(path)}:{number}: a path of one machine: {line.strip()[:100]}"
        if NVIDIA_HEADER.search(line):
            yield f"{name(path)}:{number}: looks like a header of NVIDIA, which must not be copied: {line.strip()[:100]}"
    if NVIDIA_NAMES.fullmatch(path.name) and "berth" not in text:
        yield f"{name(path)}: has the name of a header of NVIDIA"


tree = files()
assert len(tree) > 50, "the source tree was not found"
finish([complaint for path in tree for complaint in complaints(path)])
