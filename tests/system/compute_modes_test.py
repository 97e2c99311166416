#!/usr/bin/env python3
"""Compute modes as a user meets them: by the daemon's configuration, and by the cards themselves."""
import json
import os
import signal
import sys
import unittest

from cli_case import PATIENCE, wait_for
from guest_case import GuestCase

UNAVAILABLE = 46


class Modes(GuestCase):
    def configure(self, text):
        self.environment["BERTH_CONFIG"] = f"{self.folder}/berth.toml"
        with open(self.environment["BERTH_CONFIG"], "w") as file:
            file.write(text)


class Exclusive(Modes):
    """One job, and in it one process with contexts."""
    def setUp(self):
        super().setUp()
        self.configure('[device]\ncompute_mode = "exclusive"\n')

    def test_one_process_of_a_job(self):
        script = r"""
start(); say(first=[create(), alloc(MIB)[0]])
import subprocess
other = "init(); say(second=[start(), create()])"
print(subprocess.run([sys.executable, sys.argv[0], other], capture_output=True, text=True).stdout, end="", flush=True)
hold()
"""
        process = self.guest(script, "-n", "train", "-m", "4G")
        self.assertEqual(self.line(process), {"first": [0, 0]})
        self.assertEqual(self.line(process), {"second": [UNAVAILABLE, UNAVAILABLE]})
        event = self.events("device_unavailable")[0]
        self.assertRegex(event["message"], r"was refused a context: GPU 0 is exclusive and python3\S* \(process \d+\) of train ")
        self.over(process)

    def test_the_next_one_may_when_its_contexts_are_gone(self):
        script = r"""
import subprocess
look = "say(other=start())"
ask = lambda: print(subprocess.run([sys.executable, sys.argv[0], look], capture_output=True, text=True).stdout, end="", flush=True)
start(); create(); ask()
cuda().cuCtxGetCurrent(ctypes.byref(current := ctypes.c_void_p())); cuda().cuCtxDestroy_v2(current); ask()
cuda().cuDevicePrimaryCtxRelease_v2(0); ask(); ask()
say(again=start())
"""
        output = self.guest(script, "-m", "4G").communicate("", timeout=PATIENCE)[0]
        self.assertEqual([json.loads(line) for line in output.splitlines()],
                         [{"other": UNAVAILABLE}, {"other": UNAVAILABLE}, {"other": 0}, {"other": 0}, {"again": 0}])

    def test_a_killed_process_lets_the_next_one_in(self):
        script = r"""
import subprocess, signal
child = subprocess.Popen([sys.executable, sys.argv[0], "say(child=start()); time.sleep(1000)"], stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), end="", flush=True)
init(); say(before=start()); child.send_signal(signal.SIGKILL); child.wait(); say(after=start()); hold()
"""
        process = self.guest(script, "-m", "4G")
        self.assertEqual([self.line(process) for _ in range(3)], [{"child": 0}, {"before": UNAVAILABLE}, {"after": 0}])
        self.over(process)

    def test_virtual_devices_of_an_exclusive_card_are_for_one_process(self):
        script = r"""
import subprocess
say(a=[init(), attribute(20, 0), attribute(20, 1), nvml(1)['mode']], c=[start(0), start(1), alloc(MIB)[0]])
print(subprocess.run([sys.executable, sys.argv[0], "say(second=[start(0), start(1)])"], capture_output=True, text=True).stdout, end="", flush=True)
for device in (0, 1): cuda().cuDevicePrimaryCtxRelease_v2(device)
print(subprocess.run([sys.executable, sys.argv[0], "say(then=[start(0), start(1)])"], capture_output=True, text=True).stdout, end="", flush=True)
"""
        output, errors = self.guest(script, "-g", "2", "-m", "4G").communicate("", timeout=PATIENCE)
        self.assertEqual([json.loads(line) for line in output.splitlines()],
                         [{"a": [0, 3, 3, 3], "c": [0, 0, 0]}, {"second": [UNAVAILABLE] * 2}, {"then": [0, 0]}], errors)

    def test_a_second_job_is_refused_with_who_has_it(self):
        holder = self.guest("start(); say(up=1); hold()", "-n", "train")
        self.line(holder)
        for options in ((), ("-m", "1G")):
            self.refused(75, r"GPU 0 takes one job at a time \(compute mode exclusive\), and train \(\S+\) has it; .*--wait",
                         "run", *options, "true")
        self.over(holder)
        self.assertEqual(self.berth("run", "true"), (0, "", ""))

    def test_or_waits(self):
        holder = self.guest("start(); say(up=1); hold()", "-n", "train")
        self.line(holder)
        waits = [self.start("run", "--wait", "-n", f"wait{i}", *options, "true") for i, options in enumerate(((), ("-m", "1G")))
                 if wait_for(lambda: i == 0 or "wait0" in self.jobs(), "the first one to wait")]
        wait_for(lambda: {"wait0", "wait1"} <= set(self.jobs()), "both to wait")
        self.assertRegex(self.jobs()["wait0"]["waiting_for"], "train .* has it")
        os.kill(self.jobs()["train"]["root_pid"], signal.SIGKILL)
        for process in waits:
            code, output, errors = self.finish(process)
            self.assertEqual((code, output), (0, ""), errors)

    def test_it_is_shown_everywhere(self):
        process = self.guest("start(); say(a=attribute(20), n=nvml()['mode']); hold()", "-n", "train", "-m", "4G")
        self.assertEqual(self.line(process), {"a": 3, "n": 3})
        viewer = self.start("run", "true")  # a second job, so nothing of it runs
        self.assertEqual(viewer.wait(PATIENCE), 75)
        gpu = self.json("gpus")["devices"][0]
        self.assertEqual((gpu["compute_mode"], gpu["card_compute_mode"]), ("exclusive", "default"))
        self.assertTrue(gpu["exclusive_to"].startswith("train ("), gpu)
        self.assertRegex(self.berth("gpus")[1], r"(?m)^ +compute mode exclusive: train \(\S+\) has it$")
        checks = {check["name"]: check for check in json.loads(self.berth("doctor", "--json")[1])["checks"]}
        self.assertEqual(checks["compute mode"]["result"], "warning")
        self.assertIn("exclusive", checks["compute mode"]["found"])
        self.assertIn("berth.toml", checks["compute mode"]["advice"])
        self.over(process)

    def test_a_viewer_is_no_process_on_the_device(self):
        script = r"""
import subprocess
print(subprocess.run([sys.executable, sys.argv[0], "say(viewer=nvml()['mode'])"], capture_output=True, text=True).stdout, end="", flush=True)
say(after=start())
"""
        output = self.guest("nvml(); " + script.strip()).communicate("", timeout=PATIENCE)[0]
        self.assertEqual([json.loads(line) for line in output.splitlines()], [{"viewer": 3}, {"after": 0}])

    def test_a_process_of_no_job_has_it_too(self):
        stranger = self.plain("start(); say(me=os.getpid()); hold()")
        pid = json.loads(stranger.stdout.readline())["me"]
        self.refused(75, rf"python3\S* \(process {pid}\) of no job has it", "run", "true")
        stranger.communicate("", timeout=PATIENCE)
        wait_for(lambda: self.berth("run", "true")[0] == 0, "the device to be free")


class Prohibited(Modes):
    def test_no_job_and_nobody_waits(self):
        self.configure('[device]\ncompute_mode = "prohibited"\n')
        for options in ((), ("--wait",), ("-m", "1G", "--wait")):
            self.refused(75, r"GPU 0 is closed to programs \(compute mode prohibited, by berth's configuration\)", "run", *options, "true")
        self.assertRegex(self.berth("gpus")[1], "(?m)^ +compute mode prohibited$")

    def test_one_of_two_cards(self):
        self.environment["BERTH_SIM_GPUS"] = "2"
        uuid = self.json("gpus")["devices"][0]["uuid"]
        self.end_daemon()
        self.configure(f'[device."{uuid}"]\ncompute_mode = "prohibited"\n')
        self.refused(75, "GPU 0 is closed", "run", "--device", "0", "true")
        script = "show_all_cards(); init(); say(m=[attribute(20, 0), attribute(20, 1)], n=[nvml(0)['mode'], nvml(1)['mode']], c=[start(1), start(0)])"
        self.assertEqual(self.result(script), {"m": [2, 0], "n": [2, 0], "c": [0, UNAVAILABLE]})
        event = self.events("device_unavailable")[0]
        self.assertIn("GPU 0 is closed to programs", event["message"])


class OfTheCard(Modes):
    """The card's own mode is respected and never changed."""
    def test_exclusive(self):
        self.environment["BERTH_SIM_COMPUTE_MODE"] = "exclusive"
        self.configure('[device]\ncompute_mode = "default"\n')
        process = self.guest("start(); say(a=attribute(20), n=nvml()['mode']); hold()", "-n", "train")
        self.assertEqual(self.line(process), {"a": 3, "n": 3})
        self.refused(75, r"train \(\S+\) has it", "run", "true")
        self.assertRegex(self.berth("gpus")[1], r"compute mode exclusive, set on the card: train ")
        self.over(process)
        self.assertEqual(self.card()["mode"], 3)

    def test_prohibited(self):
        self.environment["BERTH_SIM_COMPUTE_MODE"] = "prohibited"
        self.configure('[device]\ncompute_mode = "exclusive"\n')
        self.refused(75, r"GPU 0 is closed to programs \(compute mode prohibited, set on the card\)", "run", "--wait", "true")
        checks = {check["name"]: check for check in json.loads(self.berth("doctor", "--json")[1])["checks"]}
        self.assertEqual(checks["device 0"]["result"], "failed")
        self.assertEqual(self.plain("say(c=start())").communicate(timeout=PATIENCE)[0], '{"c": 46}\n')

    def test_exclusive_to_a_thread_stays_what_it_says(self):
        self.environment["BERTH_SIM_COMPUTE_MODE"] = "exclusive_thread"
        self.configure('[device]\ncompute_mode = "exclusive"\n')
        self.assertEqual(self.result("start(); say(a=attribute(20), n=nvml()['mode'])"), {"a": 1, "n": 1})
        self.assertEqual(self.json("gpus")["devices"][0]["card_compute_mode"], "exclusive")

    def test_changing_it_is_the_drivers_affair(self):
        script = ("library = ctypes.CDLL('libnvidia-ml.so.1'); library.nvmlInit_v2(); d = ctypes.c_void_p()\n"
                  "library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(d)); say(r=library.nvmlDeviceSetComputeMode(d, 3))")
        alone, _ = self.plain(script).communicate(timeout=PATIENCE)
        self.assertEqual(self.result(script), json.loads(alone))

    def test_a_card_that_is_open_is_shared_beside_one_that_is_not(self):
        self.environment["BERTH_SIM_COMPUTE_MODE"] = "exclusive,default"
        checks = {check["name"]: check for check in json.loads(self.berth("doctor", "--test", "--json")[1])["checks"]}
        self.assertEqual([checks[name]["result"] for name in ("device 0", "device 1", "quotas", "progress")],
                         ["warning", "ok", "ok", "ok"], checks)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
