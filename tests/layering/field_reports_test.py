#!/usr/bin/env python3
"""docs/field-reports.md: every row is there once and says where it is tested, and every test that it names exists."""
import re

from source_tree import SOURCE, files, finish

TABLE = SOURCE / "docs/field-reports.md"
ROWS = [f"B{n}" for n in range(1, 58) if n not in {3, 12, 18, 23, 34, 36, 41, 43, 50}]  # numbers that the reports skip
STATES = {"tested", "real GPU", "later", "not offered"}


def names_of_tests():
    """`suite.case` for both kinds: TEST(Suite, Case), and methods of classes in Python; and what CMake calls a test."""
    found = set()
    for path in files():
        if path.suffix not in {".cpp", ".py", ".txt"}:
            continue
        text = path.read_text(errors="replace")
        found |= {f"{suite}.{case}" for suite, case in re.findall(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)", text)}
        if path.name.endswith("_test.py"):
            current = None
            for line in text.splitlines():
                if made := re.match(r"class (\w+)\(", line):
                    current = made.group(1)
                elif (made := re.match(r"    def (test_\w+)\(", line)) and current:
                    found.add(f"{current}.{made.group(1)}")
        if path.name == "CMakeLists.txt":
            found |= {f"{label}.{name}" for label, name in re.findall(r"berth_script_test\((\w+) (\w+) ", text)}
            found |= set(re.findall(r"add_test\(NAME ([\w.]+) ", text))
    return found


def complaints():
    known, seen = names_of_tests(), []
    rows = [line for line in TABLE.read_text().splitlines() if re.match(r"\| B\d+ \|", line)]
    for line in rows:
        row, link, state, what, where = [cell.strip() for cell in line.strip("|").split(" | ")]
        seen.append(row.strip())
        if not re.match(r"\[\S+\]\(https://", link):
            yield f"{row}: no link"
        if state not in STATES:
            yield f"{row}: '{state}' is none of {sorted(STATES)}"
        named = re.findall(r"`([^`]+)`", where)
        if state in {"tested", "real GPU"} and not named:
            yield f"{row}: is said to be tested, and no test is named"
    for line in TABLE.read_text().splitlines():
        cells = line.strip("|").split(" | ")
        for name in re.findall(r"`([^`]+)`", cells[-1]) if line.startswith("| ") else []:
            is_option = name.startswith(("-", "berth "))
            if not is_option and not ((SOURCE / name).exists() if "/" in name else name in known):
                yield f"{cells[0].strip()}: there is no test {name}"
    if seen != ROWS:
        yield f"rows missing {sorted(set(ROWS) - set(seen))}, unknown {sorted(set(seen) - set(ROWS))}, or out of order"
    tests = {f"B{number}" for name in known for number in re.findall(r"(?:\b|_)B(\d+)(?=\D|$)", name)}
    for row in sorted(tests - set(ROWS)):
        yield f"a test is named after {row}, which is no row"


finish(list(complaints()))
