#!/usr/bin/env python3
"""Nothing is lost when something dies, forks, execs, closes its descriptors or stands still. Real programs under `berth run` on
the simulated GPU. Rows of the field reports are named in the tests' names."""
import json
import os
import signal
import subprocess
import sys
import time
import unittest

from cli_case import BUILD, GIB, PATIENCE, wait_for
from guest_case import GUEST, MIB, PROGRAMS, GuestCase


class Survival(GuestCase):
    # Death.
    def test_killed_programs_memory_serves_others(self):
        holder = self.guest("start(); say(r=alloc(9 * GIB)[0]); hold()", "-m", "10G", "-n", "holder")
        self.assertEqual(self.line(holder)["r"], 0)
        pid = self.jobs()["holder"]["clients"][0]["pid"]
        refused = self.berth("run", "-m", "10G", "true")
        self.assertEqual(refused[0], 75, "the device is promised to the holder")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.berth("run", "-m", "10G", "true")[0] == 0, "room after the death")
        self.assertEqual(self.result("start(); say(r=alloc(9 * GIB)[0])", "-m", "10G")["r"], 0)

    def test_B31_B32_B33_killed_in_the_middle_of_an_allocation(self):
        for fault in ("cuMemAlloc_v2:delay=100000", "cuDevicePrimaryCtxRetain:delay=100000"):
            self.environment["BERTH_SIM_FAULTS"] = fault
            stuck = self.guest("init(); say(pid=os.getpid()); start(); alloc(6 * GIB)", "-m", "8G", "-n", "stuck")
            pid = self.line(stuck)["pid"]
            wait_for(lambda: (self.device("stuck") or {}).get("used_bytes", 0) > 0, "the reservation")
            os.kill(pid, signal.SIGKILL)
            stuck.communicate(timeout=PATIENCE)
            del self.environment["BERTH_SIM_FAULTS"]
            wait_for(lambda: not (self.device("stuck") or {}).get("used_bytes"), "the reservation's end")
            self.assertEqual(self.result("say(s=start(), r=alloc(6 * GIB)[0])", "-m", "8G"), {"s": 0, "r": 0})

    def killed_at_steps(self, what, stride, most):
        """One job: whoever is next always gets 3 of its 4 GiB, wherever the one before was killed (tests/system/programs)."""
        code, output, errors = self.berth("run", "-m", "4G", "--", f"{PROGRAMS}/kill_at_step", what, str(stride), "3072")
        if "99" in output:
            self.skipTest("nobody may be traced here")
        self.assertEqual((code, errors), (0, ""), output)
        said = json.loads(output)
        self.assertEqual(said["last"], 0)
        self.assertGreater(said["deaths"], most)

    def test_B31_B32_killed_at_every_step_of_an_allocation(self):
        self.killed_at_steps("take", 1, 10)

    def test_B33_killed_at_steps_of_init(self):
        self.killed_at_steps("init", 11, 10)

    def test_killed_while_it_waits_for_the_daemons_answer(self):
        keeper = self.guest("start(); say(up=1); hold()", "-m", "8G", "-n", "job")
        self.line(keeper)
        process = self.guest("start(); say(me=os.getpid()); sys.stdin.readline(); alloc(6 * GIB)", "-m", "7G", "-n", "asker")
        pid, daemon = self.line(process)["me"], self.daemon_pid()
        before = open(f"/proc/{pid}/syscall").read().split()[0]
        os.kill(daemon, signal.SIGSTOP)
        try:
            process.stdin.write("go\n")
            process.stdin.flush()
            wait_for(lambda: open(f"/proc/{pid}/syscall").read().split()[0] not in (before, "running"), "the question")
            os.kill(pid, signal.SIGKILL)
        finally:
            os.kill(daemon, signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
        wait_for(lambda: not (self.device("asker") or {}).get("used_bytes"), "the end of what was asked for")
        self.assertEqual(self.result("say(s=start(), r=alloc(6 * GIB)[0])", "-m", "7G"), {"s": 0, "r": 0})
        self.over(keeper)

    def test_killed_daemon_programs_run_on_and_ps_is_complete_again(self):
        script = ("start(); p = alloc(1 * GIB)[1]; say(up=1); wait_file(sys.argv[2])\n"
                  "say(again=alloc(1 * GIB)[0], over=alloc(20 * GIB)[0], freed=free(p)); hold()")
        go = f"{self.folder}/go"
        guests = {name: self.start("run", "-m", "4G", "-n", name, "--", sys.executable, GUEST, script, go, stdin=subprocess.PIPE)
                  for name in ("one", "two")}
        for process in guests.values():
            self.line(process)
        before = {name: self.used(name) for name in guests}
        first = self.daemon_pid()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: self.daemon_pid() not in (0, first), "a new daemon")
        wait_for(lambda: all(self.used(name) == before[name] for name in guests), "the holdings")
        self.assertEqual({n: j["devices"][0]["quota_bytes"] for n, j in self.jobs().items()}, {"one": 4 * GIB, "two": 4 * GIB})
        open(go, "w").close()
        for process in guests.values():
            self.assertEqual(self.line(process), {"again": 0, "over": 2, "freed": 0})
        for name, process in guests.items():
            wait_for(lambda: self.used(name) == 1 * GIB, "the release")
            process.communicate("", timeout=PATIENCE)
            self.assertEqual(process.returncode, 0)

    def test_a_stopped_daemon_stops_nobody_for_ever(self):
        guest = self.guest("start(); say(up=1); sys.stdin.readline(); t = time.monotonic(); r = alloc(GIB)[0]\n"
                           "say(r=r, free=info()[0], waited=time.monotonic() - t); hold()", "-m", "4G")
        self.line(guest)
        pid = self.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            guest.stdin.write("go\n")
            guest.stdin.flush()
            answer = self.line(guest)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual((answer["r"], answer["free"]), (2, 0))
        self.assertGreater(answer["waited"], 1)
        guest.communicate("", timeout=PATIENCE)

    # Fork, exec, threads.
    def test_fork_after_init_the_child_is_no_client(self):
        answer = self.result(
            "start(); p = alloc(GIB)[1]\n"
            "pid = os.fork()\n"
            "if pid == 0: os._exit(10 + alloc(MIB)[0] if free(p) == NOT_INITIALIZED else 1)\n"
            "status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
            "say(child=status, r=alloc(GIB)[0], free=free(p))", "-m", "4G")
        self.assertEqual(answer, {"child": 13, "r": 0, "free": 0})

    def test_fork_before_init_parent_and_child_are_clients(self):
        process = self.guest(
            "pid = os.fork()\n"
            "say(me=os.getpid(), s=start(), r=alloc(GIB)[0])\n"
            "hold()\n"
            "if pid: os.waitpid(pid, 0)", "-m", "4G", "-n", "family")
        said = [self.line(process), self.line(process)]
        self.assertEqual([(s["s"], s["r"]) for s in said], [(0, 0)] * 2)
        self.assertEqual({c["pid"] for c in self.jobs()["family"]["clients"]}, {s["me"] for s in said})
        self.assertEqual(self.used("family"), 2 * GIB)
        process.communicate("", timeout=PATIENCE)

    def test_a_child_that_keeps_the_socket_does_not_keep_the_memory(self):
        process = self.guest("start(); alloc(GIB); pid = os.fork()\n"
                             "if pid == 0: time.sleep(1000)\n"
                             "say(me=os.getpid(), child=pid); hold()", "-m", "4G", "-n", "parent")
        said = self.line(process)
        os.kill(said["me"], signal.SIGKILL)
        wait_for(lambda: self.used("parent") == 0, "the parent's memory")
        os.kill(said["child"], signal.SIGKILL)
        process.communicate(timeout=PATIENCE)

    def test_vfork_and_spawn_the_child_is_a_client_the_parent_unharmed(self):
        for way in ("vfork", "spawn"):
            code, output, errors = self.berth("run", "-m", "4G", "--", f"{PROGRAMS}/descendants", way)
            self.assertEqual((code, errors), (0, ""), way)
            child, parent = map(json.loads, output.splitlines())
            self.assertEqual(parent, {"before": 0, "status": 0, "after": 0, "freed": 0}, way)
            self.assertEqual(child["child"], 0, way)
            self.assertLess(child["free"], 2 * GIB, "the parent's memory is the job's too")

    def test_a_raw_clone_is_no_client(self):
        code, output, errors = self.berth("run", "-m", "4G", "--", f"{PROGRAMS}/descendants", "clone")
        self.assertEqual((code, json.loads(output), errors), (0, {"before": 0, "status": 13, "after": 0, "freed": 0}, ""))

    def test_exec_makes_a_new_client(self):
        answer = self.result("start(); alloc(GIB); os.execv(sys.executable, [sys.executable, sys.argv[0], "
                             "'say(s=start(), free=info()[1] >> 20, r=alloc(3 * GIB)[0])'])", "-m", "4G")
        self.assertEqual((answer["s"], answer["r"]), (0, 0))

    def test_python_multiprocessing_both_ways(self):
        for method in ("fork", "spawn"):
            folder = os.path.join(self.folder, method)
            os.mkdir(folder)
            program = os.path.join(folder, "program.py")
            with open(program, "w") as file:
                file.write(f"import sys, multiprocessing\nsys.path.insert(0, {os.path.dirname(GUEST)!r})\nimport guest\n"
                           "def work(i):\n    return guest.start(), guest.alloc(256 << 20)[0], guest.alloc(8 << 30)[0]\n"
                           f"if __name__ == '__main__':\n    multiprocessing.set_start_method({method!r})\n"
                           "    with multiprocessing.Pool(2) as pool: print(pool.map(work, range(2), chunksize=1))\n")
            code, output, errors = self.berth("run", "-m", "4G", "--", sys.executable, program)
            self.assertEqual((code, output.strip(), errors), (0, "[(0, 0, 2), (0, 0, 2)]", ""), method)

    def test_threads_storm_and_the_account_is_even(self):
        answer = self.result(
            "import threading\nstart(); context = ctypes.c_void_p(); cuda().cuCtxGetCurrent(ctypes.byref(context)); bad = []\n"
            "def work(i):\n"
            "    cuda().cuCtxSetCurrent(context)\n"
            "    for n in range(100):\n"
            "        r, p = alloc((n % 7 + 1) * MIB + i)\n"
            "        if r or free(p): bad.append(r)\n"
            "threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]\n"
            "before = info()[1]\n"
            "for t in threads: t.start()\n"
            "for t in threads: t.join()\n"
            "say(bad=bad, even=info()[1] == before)", "-m", "4G")
        self.assertEqual(answer, {"bad": [], "even": True})

    # Hostile to descriptors, standing still.
    def test_closed_descriptors(self):
        process = self.guest("start(); alloc(GIB); os.closerange(3, 8192)\n"
                             "files = [open('/dev/null') for _ in range(200)]\n"
                             "say(r=alloc(GIB)[0], over=alloc(20 * GIB)[0], alive=all(f.read() == '' for f in files)); hold()",
                             "-m", "4G", "-n", "closer")
        self.assertEqual(self.line(process), {"r": 0, "over": 2, "alive": True})
        self.assertEqual(self.used("closer"), 2 * GIB)
        process.communicate("", timeout=PATIENCE)

    def test_descriptors_closed_in_every_way_and_the_daemon_restarted(self):
        ways = {"close_range": "libc.syscall(436, 3, 0xffffffff, 0)",
                "close_range of a table of its own": "libc.syscall(436, 3, 0xffffffff, 2)",
                "a loop over all numbers": "[libc.close(n) for n in range(3, 70000)]",
                "what the folder lists": "[libc.close(int(n)) for n in os.listdir('/proc/self/fd') if int(n) > 2]",
                "others in their place": "[os.dup2(1, n) for n in range(3, 256)]"}
        for way, close in ways.items():
            with self.subTest(way):
                process = self.guest(f"libc = ctypes.CDLL(None); start(); alloc(GIB); {close}; say(r=alloc(GIB)[0], over=alloc(3 * GIB)[0])\n"
                                     f"sys.stdin.readline(); {close}; say(r=alloc(256 * MIB)[0], over=alloc(3 * GIB)[0]); hold()",
                                     "-m", "4G", "-n", "closer")
                self.assertEqual(self.line(process), {"r": 0, "over": 2})
                self.assertEqual(self.used("closer"), 2 * GIB)
                first = self.daemon_pid()
                os.kill(first, signal.SIGKILL)
                wait_for(lambda: self.daemon_pid() not in (0, first), "a new daemon")
                self.assertEqual(self.ask(process), {"r": 0, "over": 2})
                self.assertEqual(self.used("closer"), 2 * GIB + 256 * MIB)
                self.assertEqual([c["state"] for c in self.jobs()["closer"]["clients"]], ["attached"])
                self.over(process)

    def test_a_stopped_program_stops_nobody(self):
        stopped = self.guest("start(); alloc(GIB); say(me=os.getpid()); hold()", "-m", "4G", "-n", "stopped")
        pid = self.line(stopped)["me"]
        os.kill(pid, signal.SIGSTOP)
        self.assertEqual(self.result("start(); say(r=alloc(GIB)[0])", "-m", "4G")["r"], 0)
        self.assertEqual(self.used("stopped"), GIB)
        os.kill(pid, signal.SIGCONT)
        stopped.communicate("", timeout=PATIENCE)
        self.assertEqual(stopped.returncode, 0)

    # Quotas are of the job.
    def test_B11_the_second_process_sees_what_the_first_has(self):
        process = self.guest("start(); alloc(GIB); say(up=1)\n"
                             "import subprocess\n"
                             "print(subprocess.run([sys.executable, sys.argv[0], 'start(); say(i=info())'], capture_output=True, text=True).stdout, end='')",
                             "-m", "4G")
        self.line(process)
        code, free, total = self.line(process)["i"]
        self.assertEqual((code, total), (0, 4 * GIB))
        self.assertLess(free, 3 * GIB)

    def test_two_processes_never_both_win_the_last_bytes(self):
        process = self.guest(
            "import subprocess\nchild = 'start(); n = 0\\nwhile not alloc(8 * MIB)[0]: n += 1\\nsay(n=n); hold()'\n"
            "kids = [subprocess.Popen([sys.executable, sys.argv[0], child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]\n"
            "say(got=[__import__('json').loads(k.stdout.readline())['n'] for k in kids]); hold()\n"
            "for k in kids: k.communicate('')", "-m", "4G", "-n", "racers")
        got = sum(self.line(process)["got"]) * 8 * MIB
        device = self.device("racers")
        self.assertEqual(device["used_bytes"], got + device["overhead_bytes"])
        self.assertLessEqual(device["used_bytes"], 4 * GIB)
        self.assertGreater(device["used_bytes"], 4 * GIB - 8 * MIB)
        process.communicate("", timeout=PATIENCE)

    def test_D1_only_the_offender_is_refused(self):
        neighbour = self.guest("start(); r = alloc(GIB)[0]; say(r=r); sys.stdin.readline(); say(r=alloc(GIB)[0]); hold()", "-m", "3G")
        self.assertEqual(self.line(neighbour)["r"], 0)
        self.assertEqual(self.result("start(); codes = [alloc(GIB)[0] for _ in range(5)]; say(c=codes, still=alloc(MIB)[0])", "-m", "3G"),
                         {"c": [0, 0, 2, 2, 2], "still": 0})
        neighbour.stdin.write("go\n")
        neighbour.stdin.flush()
        self.assertEqual(self.line(neighbour)["r"], 0)
        neighbour.communicate("", timeout=PATIENCE)

    def test_B5_a_quota_smaller_than_a_context(self):
        self.assertEqual(self.result("say(s=start(), i=info(), r=alloc(MIB)[0])", "-m", "64M"), {"s": 0, "i": [0, 0, 64 * MIB], "r": 2})

    # One story in every view.
    def test_every_view_tells_the_quota(self):
        process = self.guest("start(); alloc(GIB); say(nvml=nvml(), info=info(), total=device_total(), me=os.getpid()); hold()", "-m", "4G", "-n", "seen")
        other = self.guest("start(); say(me=os.getpid()); hold()", "-m", "4G")
        self.line(other)
        said = self.line(process)
        views, (code, free, total) = said["nvml"], said["info"]
        self.assertEqual((views["total"], views["total2"], total, said["total"]), (4 * GIB,) * 4)
        self.assertEqual((views["free"], views["free2"]), (free, free))
        self.assertEqual((views["used"], views["used2"] + views["reserved2"]), (4 * GIB - free,) * 2)
        self.assertEqual(views["pids"], [said["me"]])
        self.assertEqual(self.device("seen")["used_bytes"], 4 * GIB - free)
        for guest in (process, other):
            guest.communicate("", timeout=PATIENCE)

    def test_a_viewer_sees_the_quota_without_a_context(self):
        views = self.result("say(n=nvml())", "-m", "4G")["n"]
        self.assertEqual((views["total"], views["free"], views["used"], views["pids"]), (4 * GIB, 4 * GIB, 0, []))

    def test_B30_no_quota_shows_the_real_size(self):
        for options in ((), ("-m", "0"), ("-m", "0m")):
            self.assertEqual(self.result("start(); say(t=info()[2], d=device_total())", *options), {"t": 16 * GIB, "d": 16 * GIB})

    # B55: live changes.
    def test_B55_the_quota_changes_while_it_runs(self):
        process = self.guest("start(); alloc(2 * GIB); say(i=info())\n"
                             "while sys.stdin.readline(): say(i=info(), r=alloc(GIB)[0])", "-m", "4G", "-n", "live")
        self.line(process)

        def ask():
            process.stdin.write("go\n")
            process.stdin.flush()
            return self.line(process)
        self.assertEqual(self.berth("set", "live", "-m", "1G")[0], 0)
        answer = ask()
        self.assertEqual((answer["i"][1], answer["r"]), (0, 2))
        self.assertEqual(self.berth("set", "live", "-m", "8G")[0], 0)
        self.assertEqual(ask()["r"], 0)
        process.communicate("", timeout=PATIENCE)

    # B37, driver-less.
    def test_B37_preloaded_into_a_trivial_program(self):
        code, output, errors = self.finish(self.start(program="/bin/true", env={"LD_PRELOAD": f"{BUILD}/lib/berth/shim/libcuda.so.1"}))
        self.assertEqual((code, output, errors), (0, "", ""))

    def test_without_a_daemon_the_shim_only_forwards(self):
        env = {**self.environment, "LD_LIBRARY_PATH": f"{BUILD}/lib/berth/shim"}
        code, output, errors = self.finish(self.start(GUEST, "start(); say(r=alloc(15 * GIB)[0], t=info()[2])", program=sys.executable, env=env))
        self.assertEqual((code, json.loads(output), errors), (0, {"r": 0, "t": 16 * GIB}, ""))

    # B35: 256 programs at once.
    def test_B35_256_starts_at_once(self):
        self.environment["BERTH_SIM_MEMORY"] = "512G"
        go, count = f"{self.folder}/go", 256
        script = f"wait_file({go!r}); t = time.monotonic(); r = init(); say(r=r, ms=(time.monotonic() - t) * 1e3, t=device_total())\nhold()"
        many = (f"import subprocess\nkids = [subprocess.Popen([sys.executable, '-S', '-E', sys.argv[0], {script!r}], stdin=subprocess.PIPE, "
                f"stdout=subprocess.PIPE, text=True) for _ in range({count})]\nopen({go!r}, 'w').close()\n"
                "said = [__import__('json').loads(k.stdout.readline()) for k in kids]\n"
                "say(codes=sorted({s['r'] for s in said}), totals=sorted({s['t'] for s in said}), worst=max(s['ms'] for s in said))\nhold()\n"
                "for k in kids: k.communicate('')")
        process = self.guest(many, "-m", "300G", "-n", "crowd")
        said = self.line(process)
        self.assertEqual((said["codes"], said["totals"]), ([0], [300 * GIB]))
        self.assertLess(said["worst"], 60_000)  # ten times what the last of them takes on two busy cores; stalls were of minutes
        self.assertEqual(len([c for c in self.jobs()["crowd"]["clients"] if c["pid"]]), count)
        process.communicate("", timeout=PATIENCE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
