#!/usr/bin/env python3
"""The yardstick with little GPU time: all programs of a phase start together and wait; then one row after another works.

  quick.py BUILD --scenarios vision,gemm --modes berth,berth-strict --window 6 --seeds 1,2

Programs, rows and figures are those of colocate.py; only the starting differs. Programs that wait hold memory and no time.
Each row has a daemon of its own. --rates vision=420,...: of the arrivals, instead of load x measured peak; then all is one phase.
"""
import argparse, json, os, shutil, subprocess, sys, tempfile, time

import colocate
from colocate import MODES, SCENARIOS, ratio, verdict

HERE = os.path.dirname(os.path.abspath(__file__))


class Row:
    """Programs that start together. start(), then ready(), then go(); close() at the end."""

    def __init__(self, label, sides, mode, window):
        self.label, self.sides, self.mode, self.window = label, sides, mode, window
        self.folder, self.programs = tempfile.mkdtemp(prefix="yard-"), {}
        self.env = {**os.environ, "BERTH_DIR": self.folder, "BERTH_SOCKET": os.path.join(self.folder, "s")}

    def path(self, name):
        return os.path.join(self.folder, name)

    def shell(self, what):
        command = MODES[self.mode].get(what)
        return not command or subprocess.run(command, shell=True, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def start(self):
        if not self.shell("setup"):
            sys.exit(f"{self.mode} cannot be set up")
        services = ",".join(n for n, a in self.sides.items() if a.startswith("infer"))
        for name, args in self.sides.items():
            side = MODES[self.mode].get(name, MODES[self.mode].get("be", {}))
            command = colocate.command_of(side, name, args, self.window, self.folder, services)
            env = {**self.env, **{k: os.path.expandvars(v) for k, v in side.get("env", {}).items()}}
            self.programs[name] = subprocess.Popen(command, env=env, start_new_session=True, stdin=subprocess.DEVNULL,
                                                   stdout=open(self.path(name + ".out"), "w"), stderr=open(self.path(name + ".err"), "w"))

    def ready(self, deadline):
        while not all(os.path.exists(self.path(n + ".ready")) for n in self.sides):
            if time.monotonic() > deadline or any(p.poll() is not None for p in self.programs.values()):
                return False
            time.sleep(0.02)
        return True

    def go(self, during=None):
        """Lets the programs work; {side: result}, each with "error" if anything went wrong with any."""
        with open(self.path("go.tmp"), "w") as f:
            f.write(repr(time.monotonic() + 0.3))
        os.rename(self.path("go.tmp"), self.path("go"))
        deadline = time.monotonic() + 4 * self.window + 30
        middle = time.monotonic() + self.window * 0.7
        while any(p.poll() is None for p in self.programs.values()) and time.monotonic() < deadline:
            if any(p.poll() not in (None, 0) for p in self.programs.values()):
                break
            if during and time.monotonic() > middle:
                during(self)
                during = None
            time.sleep(0.02)
        results = {}
        for name, program in self.programs.items():
            colocate.stop(program)
            lines = [line for line in open(self.path(name + ".out")) if line.startswith("{")]
            errors = open(self.path(name + ".err")).read().strip().splitlines()
            good = lines and program.returncode == 0
            results[name] = json.loads(lines[-1]) if good else {"error": f"exit {program.returncode}: {errors[-1] if errors else 'no output'}"}
        if any("error" in r for r in results.values()):
            results = {n: {"error": r.get("error", "no peer"), **r} for n, r in results.items()}
        return results

    def close(self):
        for program in self.programs.values():
            colocate.stop(program)
        if not os.path.exists(self.folder):
            return
        self.shell("teardown")
        shutil.rmtree(self.folder, ignore_errors=True)


def run_phase(rows, log, at_once, during):
    """Runs all rows, `at_once` of them started together; {label: results}."""
    results = {}
    for first in range(0, len(rows), at_once):
        part = rows[first:first + at_once]
        try:
            for row in part:
                row.start()
            deadline = time.monotonic() + 120
            for row in part:
                results[row.label] = (row.go(during if row.mode != "alone" else None) if row.ready(deadline)
                                      else {n: {"error": "never ready"} for n in row.sides})
                log.append({"row": row.label, "window": row.window, "sides": results[row.label]})
                print(f"  {row.label}:", {n: {k: r[k] for k in ("rate", "served", "p50_ms", "p99_ms", "steps_per_s", "error") if k in r}
                                          for n, r in results[row.label].items()}, flush=True)
                row.close()
        finally:
            for row in part:
                row.close()
    return results


def jobs_of(row):
    """What `berth ps` says of GPU time in the middle of a row."""
    shown = subprocess.run([os.environ["BERTH"], "ps", "--json"], env=row.env, capture_output=True, text=True).stdout
    for job in json.loads(shown)["jobs"] if shown else []:
        device = job["devices"][0]
        keys = ("gpu_share_ratio", "gpu_share_60s_ratio", "waited_seconds", "throttled_seconds", "held_by", "window_seconds", "company_seconds")
        print(f"    {row.label}: {job['name']}", {k: device.get(k, job.get(k)) for k in keys if k in device or k in job})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--scenarios", default="vision,eager,gemm,longgraph,language")
    p.add_argument("--modes", default="")
    p.add_argument("--window", type=float, default=6)
    p.add_argument("--load", type=float, default=0.5)
    p.add_argument("--rates", default="")
    p.add_argument("--seeds", default="1")
    p.add_argument("--at-once", type=int, default=14, help="rows whose programs are started together")
    p.add_argument("--ps", action="store_true", help="also show what berth says in the middle of each row")
    p.add_argument("--during", help="a shell command for the middle of each row; $BERTH_DIR/pid is the daemon's")
    p.add_argument("--out", help="JSON of every row")
    p.add_argument("--alone", help="JSON of an earlier --out on this machine: rows alone are taken from there")
    a = p.parse_args()
    os.environ["BERTH"] = os.path.join(os.path.abspath(a.build), "bin/berth")
    MODES.update(colocate.read_modes(os.path.join(HERE, "berth.json")))
    log, seeds = [], a.seeds.split(",")
    usual = {"shares2": "berth-equal,berth-3-1", "shares3": "berth-5-3-2", "shares4": "berth-equal"}
    scenarios = {s: (a.modes or usual.get(s, "berth")).split(",") for s in a.scenarios.split(",")}
    services = {s: SCENARIOS[s]["hp"] for s in scenarios if "hp" in SCENARIOS[s]}
    background = {s: SCENARIOS[s].get("be", SCENARIOS[s].get("a")) for s in scenarios}
    known = {r["row"]: r["sides"] for r in json.load(open(a.alone)) if r["window"] == a.window and r["row"].startswith(("alone", "peak"))} if a.alone else {}

    def phase(rows):
        fresh = run_phase([r for r in rows if r.label not in known], log, a.at_once, during)
        if a.out:
            json.dump(log, open(a.out, "w"), indent=1)
        return {r.label: fresh.get(r.label) or known[r.label] for r in rows}

    def during(row):
        if a.ps:
            jobs_of(row)
        if a.during:
            subprocess.run(a.during, shell=True, env=row.env)

    rates = {s: float(r) for s, r in (x.split("=") for x in a.rates.split(",") if x)}
    alone = lambda name, args: Row("alone " + args, {name: args}, "alone", a.window)
    first = [alone("be", args) for args in dict.fromkeys(background.values())]
    peaks = [args for s, args in services.items() if s not in rates]
    found = {}
    if peaks:
        found = phase(first + [Row("peak " + args, {"hp": args + " --rate 0"}, "alone", a.window) for args in dict.fromkeys(peaks)])
        rates |= {s: a.load * found["peak " + args]["hp"]["rate"] for s, args in services.items() if s not in rates}
        first = []
    loaded = {(s, seed): f"{args} --rate {rates[s]:.2f} --seed {seed}" for s, args in services.items() for seed in seeds}
    first += [alone("hp", args) for args in dict.fromkeys(loaded.values())]
    found |= phase(first + [Row(f"{s} {m} {seed}", {**SCENARIOS[s], **({"hp": loaded[s, seed]} if s in services else {})}, m, a.window)
                            for seed in seeds for s in scenarios for m in scenarios[s]])
    middle = lambda values: sorted(values)[len(values) // 2]
    print(f"{'scenario':<11}{'mode':<15}{'served':>7}{'p50':>6}{'p99':>6}{'worst':>7}{'bg':>6}   of alone; medians of {len(seeds)} seeds, windows of {a.window:g} s, load {a.load}")
    for s in scenarios:
        alone = found["alone " + background[s]]["be"]
        for m in scenarios[s]:
            runs = [(seed, found[f"{s} {m} {seed}"]) for seed in seeds]
            remarks = [x["error"] for _, r in runs for x in r.values() if "error" in x]
            good = [(seed, r) for seed, r in runs if not any("error" in x for x in r.values())]
            refs = {seed: found["alone " + loaded[s, seed]]["hp"] for seed in seeds} if s in services else {}
            remarks += [v for seed, r in good for n, x in r.items() if (v := verdict(x, refs[seed] if n == "hp" else alone))]
            note = "; ".join(dict.fromkeys(remarks))[:120]
            if not good:
                print(f"{s:<11}{m:<15}{note}")
            elif s in services:
                p50, p99 = ([ratio(r["hp"][k], refs[seed][k]) for seed, r in good] for k in ("p50_ms", "p99_ms"))
                served, bg = min(r["hp"]["served"] for _, r in good), middle([ratio(r["be"]["steps_per_s"], alone["steps_per_s"]) for _, r in good])
                print(f"{s:<11}{m:<15}{served:>7.2f}{middle(p50):>6.2f}{middle(p99):>6.2f}{max(p99):>7.2f}{bg:>6.2f}   alone p50 {refs[seeds[0]]['p50_ms']} p99 {refs[seeds[0]]['p99_ms']} bg {alone['steps_per_s']} {note}")
            else:
                print(f"{s:<11}", end="")
                colocate.print_shares(m, [(r, note) for _, r in good], alone["steps_per_s"])


if __name__ == "__main__":
    main()
