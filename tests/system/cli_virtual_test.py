#!/usr/bin/env python3
"""berth run -g: admission of jobs with virtual devices, their environment, and what the views show of them."""
import os
import re
import shutil
import signal
import subprocess
import unittest

from cli_case import BERTH, BUILD, GIB, PATIENCE, Case, wait_for

SHIM = f"{BUILD}/lib/berth/shim"


class Virtual(Case):
    def job(self, name, *options):
        process = self.start("run", "-n", name, *options, "--", "sh", "-c", "echo up; read x", stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "up\n", process)
        return process

    def environment_of(self, *options, program=BERTH):
        code, output, errors = self.berth("run", *options, "env", program=program)
        self.assertEqual((code, errors), (0, ""))
        return dict(line.split("=", 1) for line in output.splitlines())

    def tree(self, alias):
        """An installation with or without the runtime alias library."""
        tree = f"{self.folder}/tree"
        if not os.path.exists(tree):
            os.makedirs(f"{tree}/bin")
            for name in ("berth", "berthd"):
                shutil.copy(f"{BUILD}/bin/{name}", f"{tree}/bin/{name}")
            shutil.copytree(f"{BUILD}/lib/berth", f"{tree}/lib/berth")
        path = f"{tree}/lib/berth/shim/libberth_cudart.so"
        if alias:
            shutil.copy(f"{SHIM}/libberth_cudart.so", path)
        elif os.path.exists(path):
            os.unlink(path)
        return f"{tree}/bin/berth", path

    # What a program gets.
    def test_environment(self):
        self.environment["CUDA_VISIBLE_DEVICES"] = "0"  # restricts the devices; the virtual ones replace it
        self.environment["BERTH_GPUS"] = "7"
        program, _ = self.tree(alias=False)
        added = dict(self.environment, LD_LIBRARY_PATH=f"{self.folder}/tree/lib/berth/shim", BERTH_GPUS="4", CUDA_VISIBLE_DEVICES="0,1,2,3")
        self.assertEqual(self.environment_of("-g", "4", program=program), added)
        self.assertEqual(self.environment_of("-g1", program=program), {**added, "BERTH_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0"})
        plain = {**added, "CUDA_VISIBLE_DEVICES": "0"}
        del plain["BERTH_GPUS"]  # it says what is so
        self.assertEqual(self.environment_of(program=program), plain)

    def test_the_runtime_alias_library_comes_first(self):
        program, alias = self.tree(alias=True)
        self.assertEqual(self.environment_of("-g", "2", program=program)["LD_PRELOAD"], alias)
        self.assertNotIn("LD_PRELOAD", self.environment_of(program=program))
        other = shutil.copy(f"{SHIM}/libnvidia-ml.so.1", f"{self.folder}/other.so")
        self.environment["LD_PRELOAD"] = other
        self.assertEqual(self.environment_of("--gpus=2", program=program)["LD_PRELOAD"], f"{alias}:{other}")
        self.assertEqual(self.environment_of(program=program)["LD_PRELOAD"], other)
        program, _ = self.tree(alias=False)
        self.assertEqual(self.environment_of("-g", "2", program=program)["LD_PRELOAD"], other)
        self.environment["LD_PRELOAD"] = ""
        self.assertEqual(self.environment_of("-g", "2", program=program)["LD_PRELOAD"], "")
        program, alias = self.tree(alias=True)
        self.assertEqual(self.environment_of("-g", "2", program=program)["LD_PRELOAD"], alias)

    def test_environment_in_isolation(self):
        self.environment["BERTH_DRIVER"] = f"{shutil.copytree(f'{BUILD}/lib/berth/sim', f'{self.folder}/driver')}/libcuda.so.1"
        program, alias = self.tree(alias=True)
        code, output, errors = self.berth("run", "--isolate", "-g", "2", "env", program=program)
        if code == 125 and "user namespace" in errors:
            self.skipTest(errors)
        self.assertEqual((code, errors), (0, ""))
        inside = dict(line.split("=", 1) for line in output.splitlines())
        self.assertEqual([inside[key] for key in ("LD_PRELOAD", "BERTH_GPUS", "CUDA_VISIBLE_DEVICES")], [alias, "2", "0,1"])

    def test_doctor_misses_the_runtime_alias_library(self):
        for there in (True, False):
            program, alias = self.tree(there)
            output = self.berth("doctor", program=program)[1]
            self.assertRegex(output, rf"(?m)^{'ok' if there else 'warning'} +virtual devices +.*{re.escape(alias)}")

    # Admission.
    def test_bad_numbers(self):
        for number in ("0", "-1", "33", "1000", "x", "", "2.5", "99999999999999999999"):
            self.refused(125, f"'{re.escape(number)}' is not a number of virtual devices: give 1 to 32", "run", "-g", number, "true")
        self.refused(125, "--gpus needs a value", "run", "-g")
        self.assertEqual(self.daemon_pid(), 0)

    def test_what_never_fits_so_many_times(self):
        for wait in ([], ["--wait"]):
            self.refused(125, r"asked for 4 virtual devices of 4 GiB \(16 GiB in all\), but GPU 0 has 16 GiB, of which 1 GiB stay free "
                         "for the driver: ask for less, at most 3840 MiB each", "run", *wait, "-g", "4", "-m", "4G", "true")
        self.refused(125, "3 virtual devices of 6.4 GiB", "run", "-g", "3", "-m", "40%", "true")
        self.assertEqual(self.berth("run", "-g", "4", "-m", "3840M", "true"), (0, "", ""))
        self.assertEqual(self.berth("run", "-g", "32", "true"), (0, "", ""))

    def test_several_cards_share_them(self):
        self.environment["BERTH_SIM_GPUS"] = "2"
        self.assertEqual(self.berth("run", "-n", "spread", "-g", "3", "-m", "2G", "true"), (0, "", ""))
        self.environment["CUDA_VISIBLE_DEVICES"] = "1"
        self.assertEqual(self.berth("run", "-n", "second", "-g", "2", "-m", "2G", "true"), (0, "", ""))
        del self.environment["CUDA_VISIBLE_DEVICES"]
        self.assertEqual(self.berth("run", "-n", "first", "-g", "2", "-m", "2G", "--device", "0", "true"), (0, "", ""))
        self.refused(125, r"8 virtual devices of 8 GiB \(64 GiB in all\), but the 2 devices have 32 GiB.*: 2 of them would fit",
                     "run", "-g", "8", "-m", "8G", "true")
        cards = {name: [device["device_index"] for device in job["virtual_devices"]] for name, job in self.jobs("-a").items()}
        self.assertEqual(cards, {"spread": [0, 1, 0], "second": [1, 1], "first": [0, 0]})

    def test_no_room_now(self):
        first = self.job("first", "-m", "10G")
        self.refused(75, r"asked for 2 virtual devices of 4 GiB \(8 GiB in all\), but GPU 0 has 5 GiB of 16 GiB left to promise "
                     r"\(first \(\w+\) 10 GiB.*there is room for 1 of them; wait for room with --wait",
                     "run", "-g", "2", "-m", "4G", "true")
        self.refused(75, "asked for 2 virtual devices of", "run", "-g", "2", "true")  # an equal part of the device each
        waiting = self.start("run", "-n", "second", "--wait", "-g", "2", "-m", "4G", "true")
        wait_for(lambda: self.jobs().get("second", {}).get("state") == "waiting", "the job in the queue")
        self.assertEqual(self.jobs()["second"]["gpus"], 2)
        self.assertEqual(self.jobs()["second"]["virtual_devices"], [])
        first.communicate("\n", timeout=PATIENCE)
        code, output, errors = self.finish(waiting)
        self.assertEqual((code, output), (0, ""))
        self.assertRegex(errors, r"\Aberth: waiting for room, place 1 in the queue: asked for 2 virtual devices of 4 GiB[^\n]*\n\Z")

    # Views.
    def test_what_is_shown(self):
        self.job("several", "-g", "3", "-m", "2G")
        self.job("plain", "-m", "1G")
        job = self.jobs()["several"]
        self.assertEqual(job["gpus"], 3)
        self.assertEqual(job["devices"][0]["quota_bytes"], 6 * GIB)
        self.assertEqual([device["index"] for device in job["virtual_devices"]], [0, 1, 2])
        self.assertEqual([device["bus_id"] for device in job["virtual_devices"]],
                         ["0000BE00:01:00.0", "0000BE00:02:00.0", "0000BE00:03:00.0"])
        self.assertEqual(len({device["uuid"] for device in job["virtual_devices"]}), 3)
        for device in job["virtual_devices"]:
            self.assertRegex(device["uuid"], r"\AGPU-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
            self.assertEqual([device[key] for key in ("device_index", "quota_bytes", "used_bytes", "overhead_bytes", "leaving_bytes",
                                                      "available_bytes")], [0, 2 * GIB, 0, 0, 0, 2 * GIB])
            self.assertEqual(device["device_uuid"], job["devices"][0]["uuid"])
        self.assertEqual((self.jobs()["plain"]["gpus"], self.jobs()["plain"]["virtual_devices"]), (None, []))
        lines = self.berth("ps")[1].splitlines()
        for v in range(3):
            self.assertTrue(any(re.fullmatch(rf"  virtual GPU {v} +0 +0 B +0 B +2 GiB", line) for line in lines), lines)
        self.assertEqual(sum("virtual GPU" in line for line in lines), 3)
        self.assertIn("\n     virtual GPUs 0 to 2 of several\n", self.berth("gpus")[1])
        shown = {job["name"]: job["virtual_devices"] for job in self.json("gpus")["devices"][0]["jobs"]}
        self.assertEqual(shown, {"several": [0, 1, 2], "plain": []})
        self.assertIn("several admitted: GPU 0 3 virtual devices of 2 GiB (6 GiB in all)", self.berth("events")[1])

    def test_set_is_for_each(self):
        self.job("several", "-g", "2", "-m", "2G")
        self.assertEqual(self.berth("set", "several", "-m", "1G"), (0, "", ""))
        job = self.jobs()["several"]
        self.assertEqual([device["quota_bytes"] for device in job["virtual_devices"]], [GIB, GIB])
        self.assertEqual(job["devices"][0]["quota_bytes"], 2 * GIB)
        self.refused(2, r"2 virtual devices of 8 GiB \(16 GiB in all\)", "set", "several", "-m", "8G")
        self.assertEqual(self.berth("set", "several", "-m", ""), (0, "", ""))  # as without -m: an equal part each
        self.assertEqual(self.jobs()["several"]["virtual_devices"][1]["quota_bytes"], 15 * GIB // 2)

    def test_they_outlive_the_daemon(self):
        process = self.job("several", "-g", "2", "-m", "2G")
        before = self.jobs()["several"]["virtual_devices"]
        pid = self.daemon_pid()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: self.daemon_pid() not in (0, pid), "another daemon")
        self.assertEqual(wait_for(lambda: self.jobs().get("several"), "the job")["virtual_devices"], before)
        process.communicate("\n", timeout=PATIENCE)
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=["cli_virtual_test"], verbosity=2)
