#!/usr/bin/env python3
"""Who may use whom (ARCHITECTURE.md): read from the #include lines, so that a forbidden use fails even where it would link.

Also: guest code, with everything it includes, uses no header of the C++ library that needs libstdc++ at run time.
"""
import re

from source_tree import SOURCE, files, finish, name

MODULES = {
    "src/base": {"base"},
    "src/abi": {"abi"},
    "src/wire": {"wire", "base"},
    "src/policy": {"policy", "base"},
    "src/shim": {"shim", "abi", "wire", "base"},
    "src/client": {"client", "wire", "base"},
    "src/daemon": {"daemon", "policy", "wire", "abi", "base"},  # abi: it reads NVML
    "src/cli": {"cli", "client", "abi", "base"},  # abi: doctor compares the driver with our list
    "src/sim": {"sim", "abi", "base"},
    "tools/load": {"abi", "base"},
}
# What the guest may take of the C++ library: templates and constants only.
GUEST_HEADERS = {
    "algorithm", "array", "atomic", "bit", "climits", "concepts", "cstdarg", "cstddef", "cstdint", "cstdlib", "cstring",
    "cerrno", "cstdio", "ctime", "initializer_list", "iterator", "limits", "new", "span", "string_view", "tuple",
    "type_traits", "utility",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def includes(path):
    return INCLUDE.findall(path.read_text(errors="replace"))


def resolve(path, included):
    for base in (path.parent, SOURCE / "src"):
        if (base / included).is_file():
            return (base / included).resolve()
    return None


def module_of(path):
    parts = path.relative_to(SOURCE).parts
    return "/".join(parts[:2]) if len(parts) > 2 else ""


def check_modules(sources):
    for path in sources:
        allowed = MODULES.get(module_of(path))
        if allowed is None:
            if module_of(path).startswith(("src/", "tools/")):
                yield f"{name(path)}: {module_of(path)} is not in the table of modules"
            continue
        for quote, included in includes(path):
            target = resolve(path, included)
            if target is None or SOURCE not in target.parents:
                continue
            module = module_of(target)
            if module != module_of(path) and module.removeprefix("src/") not in allowed:
                yield f"{name(path)} includes {included}: {module_of(path)} may use only {', '.join(sorted(allowed))}"


def check_guest(sources):
    seen, todo = set(), [path for path in sources if module_of(path) == "src/shim" and not path.stem.endswith("_test")]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for quote, included in includes(path):
            target = resolve(path, included)
            if target is not None:
                todo.append(target)
            elif "/" not in included and "." not in included and included not in GUEST_HEADERS:
                yield f"{name(path)} includes <{included}>, which guest code must not use"


# What is generated belongs to the module that includes it.
sources = [path for path in files() if path.suffix in {".h", ".cpp", ".inc"} and "generated" not in path.parts]
assert len([path for path in sources if module_of(path) in MODULES]) > 20, "the sources were not found"
finish([*check_modules(sources), *check_guest(sources)])
