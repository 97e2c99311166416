"""The alias of the CUDA runtime (src/shim/runtime_alias.h): what generate.py writes from runtime.symbols and runtime_api.h.

  runtime_rows.h      the functions to which it matters which device is meant, as an enumeration, and their names
  runtime_bodies.h    what hand-written bodies must look like
  runtime_exports.cpp exported entries: the program's own call without virtual devices; else the body, or the call for the card
  runtime.map         export map: these names without a version, so that they satisfy every runtime's
"""
import re
import sys

BECOMES = ("pass", "current", "card", "body")
# How a device is handed in; what else has a device in it needs a body.
HANDED_IN = ("RuntimeDevice", "cudaMemLocation*", "const cudaMemPoolProps*")


class RuntimeRow:
    def __init__(self, name, becomes):
        self.name, self.becomes = name, becomes
        self.body = re.sub(r"_pt[sd][sz]$", "", name)


def read_rows(path, functions):
    rows, file = [], path.rsplit("/", 1)[-1]
    for number, line in enumerate(open(path), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[1] not in BECOMES:
            sys.exit(f"{file}:{number}: want: name becomes")
        row = RuntimeRow(*words)
        if (row.becomes != "pass") != (row.name in functions):
            sys.exit(f"{file}:{number}: {row.name} must be declared in runtime_api.h exactly if it is not pass")
        if row.becomes == "card" and not any(t in HANDED_IN for t in functions[row.name][1]):
            sys.exit(f"{file}:{number}: {row.name} is handed no device, so it needs a body")
        rows.append(row)
    names = [r.name for r in rows]
    if names != sorted(set(names)):
        sys.exit(f"{file}: names must be sorted and unique")
    for name in functions:
        if name not in names:
            sys.exit(f"runtime_api.h: {name} is not in {file}")
    return [r for r in rows if r.becomes != "pass"]


def parameters(types):
    return ", ".join(f"{t} a{i}" for i, t in enumerate(types))


def rows_header(banner, rows):
    lines = [banner, "#pragma once\n#include <cstdint>\n\nnamespace berth::abi::runtime {\n\nenum class Row : uint16_t {\n"]
    lines += [f"  {r.name},\n" for r in rows]
    lines += [f"}};\ninline constexpr int kRows = {len(rows)};\n\ninline constexpr const char* kNames[kRows] = {{\n"]
    lines += [f'    "{r.name}",\n' for r in rows]
    return "".join(lines + ["};\n\n}  // namespace berth::abi::runtime\n"])


def bodies_header(banner, rows, functions):
    lines = [banner, "// One body for a name and its per-thread flavours; `real` is the runtime's function of the flavour called.\n",
             '#pragma once\n#include "abi/runtime_api.h"\n\nnamespace berth::shim::alias {\n\n']
    done = set()
    for r in rows:
        if r.becomes == "body" and r.body not in done:
            done.add(r.body)
            result, types = functions[r.name]
            lines.append(f"{result} {r.body}({', '.join([f'decltype(&::{r.name}) real'] + types)});\n")
    return "".join(lines + ["\n}  // namespace berth::shim::alias\n"])


def exports(banner, rows, functions):
    lines = [banner, '#include "abi/generated/runtime_bodies.h"\n#include "shim/runtime_alias.h"\n\nusing namespace berth::shim;\n\n']
    for r in rows:
        result, types = functions[r.name]
        plain = ", ".join(f"a{i}" for i in range(len(types)))
        if r.becomes == "body":
            does = f"  return alias::{r.body}({', '.join(['real'] + [f'a{i}' for i in range(len(types))])});\n"
        elif r.becomes == "current":
            does = f"  alias::thread_device();\n  return real({plain});\n"
        else:
            first = next(i for i, t in enumerate(types) if t in HANDED_IN)
            cards = ", ".join(f"alias::on_card(a{i})" if t in HANDED_IN else f"a{i}" for i, t in enumerate(types))
            does = f"  alias::Meant meant(alias::device_in(a{first}));\n  return real({cards});\n"
        lines.append(f'extern "C" BERTH_EXPORT {result} {r.name}({parameters(types)}) {{\n'
                     f"  auto real = alias::find<decltype(&::{r.name})>(alias::Row::{r.name});\n"
                     f"  if (!real) return alias::no_function();\n"
                     f"  if (!alias::has_virtual_devices()) return real({plain});\n{does}}}\n")
    return "".join(lines)


def export_map(banner, rows):
    return banner + "{\n  global:\n" + "".join(f"    {r.name};\n" for r in rows) + "  local:\n    *;\n};\n"


def files(folder, functions, banner):
    rows = read_rows(f"{folder}/runtime.symbols", functions)
    return {"runtime_rows.h": rows_header(banner("//"), rows), "runtime_bodies.h": bodies_header(banner("//"), rows, functions),
            "runtime_exports.cpp": exports(banner("//"), rows, functions), "runtime.map": export_map(banner("#"), rows)}
