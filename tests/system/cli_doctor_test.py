#!/usr/bin/env python3
"""berth doctor: what it finds when all is well, and what when something isn't."""
import json
import os
import shutil
import sys
import unittest

from cli_case import BERTH, BUILD, Case


class Doctor(Case):
    def checks(self, *options, **more):
        code, output, errors = self.berth("doctor", "--json", *options, **more)
        self.assertEqual(errors, "")
        report = json.loads(output)
        worst = max((check["result"] for check in report["checks"]), key=["ok", "warning", "failed"].index)
        self.assertEqual(report["result"], worst)
        self.assertEqual(code, ["ok", "warning", "failed"].index(worst))
        return {check["name"]: check for check in report["checks"]}

    def test_all_is_well_on_the_simulated_gpu(self):
        checks = self.checks()
        for name in ("kernel", "driver", "driver functions", "NVML", "device 0", "berth's libraries", "reach", "daemon"):
            self.assertEqual(checks[name]["result"], "ok", checks[name])
        self.assertIn("none runs", checks["daemon"]["found"])
        self.assertEqual(self.daemon_pid(), 0)

    def test_text(self):
        code, output, errors = self.berth("doctor")
        self.assertEqual(errors, "")
        self.assertRegex(output, r"(?m)^ok      device 0 +berth simulated GPU, ")
        self.assertRegex(output, r"Sharing works here[^\n]*\n\Z")
        self.assertNotIn("\033", output)

    def test_the_daemon_is_shown(self):
        self.berth("gpus")
        self.assertIn(f"pid {self.daemon_pid()}", self.checks()["daemon"]["found"])

    def test_two_programs_prove_it(self):
        checks = self.checks("--test")
        self.assertEqual(checks["quotas"]["result"], "ok", checks)
        self.assertEqual(checks["progress"]["result"], "ok", checks)
        self.assertEqual(self.jobs(), {})

    def test_no_driver(self):
        self.environment["BERTH_DRIVER"] = "/nonexistent/libcuda.so.1"
        checks = self.checks("--test")
        if os.path.exists("/dev/nvidia0"):
            self.skipTest("there is a GPU here")
        self.assertEqual(checks["driver"]["result"], "failed")
        self.assertIn("sim", checks["driver"]["advice"])
        self.assertEqual(checks["test"]["found"], "not run")

    def test_an_incomplete_installation(self):
        tree = f"{self.folder}/tree"
        shutil.copytree(f"{BUILD}/bin", f"{tree}/bin", ignore=lambda folder, names: set(names) - {"berth", "berthd"})
        shutil.copytree(f"{BUILD}/lib/berth/sim", f"{tree}/lib/berth/sim")
        checks = json.loads(self.berth("doctor", "--json", program=f"{tree}/bin/berth")[1])["checks"]
        failed = {check["name"] for check in checks if check["result"] == "failed"}
        self.assertEqual(failed, {"berth's libraries", "reach"})

    def test_a_broken_library(self):
        tree = f"{self.folder}/tree"
        shutil.copytree(f"{BUILD}/bin", f"{tree}/bin", ignore=lambda folder, names: set(names) - {"berth", "berthd"})
        shutil.copytree(f"{BUILD}/lib/berth", f"{tree}/lib/berth")
        with open(f"{tree}/lib/berth/shim/libcuda.so.1", "r+b") as file:
            file.truncate(4096)
        checks = {check["name"]: check for check in json.loads(self.berth("doctor", "--json", program=f"{tree}/bin/berth")[1])["checks"]}
        self.assertEqual(checks["berth's libraries"]["result"], "failed")

    def test_what_is_in_the_way(self):
        self.environment["LD_PRELOAD"] = f"{BUILD}/lib/berth/sim/libcuda.so.1"
        self.environment["CUDA_MPS_PIPE_DIRECTORY"] = self.folder
        open(f"{self.folder}/control", "w").close()
        checks = self.checks()
        self.assertEqual((checks["MPS"]["result"], checks["LD_PRELOAD"]["result"], checks["reach"]["result"]),
                         ("warning", "warning", "failed"))

    def test_a_socket_for_which_no_daemon_can_be_started(self):
        self.environment["BERTH_SOCKET"] = "/nonexistent/folder/b.sock"
        checks = self.checks()
        self.assertEqual((checks["daemon"]["result"], checks["runtime folder"]["result"]), ("failed", "failed"))
        self.assertIn("the folder /nonexistent/folder does not exist", checks["runtime folder"]["found"])

    def test_the_reason_of_a_failing_run_is_passed_on(self):
        self.environment["BERTH_CONFIG"] = f"{self.folder}/berth.toml"
        with open(self.environment["BERTH_CONFIG"], "w") as file:
            file.write("[[[")
        self.assertRegex(self.checks("--test")["quotas"]["found"], r"exit code 125: .*berth\.toml:1: ")

    def test_a_daemon_that_cannot_be_spoken_to(self):
        with open(self.socket, "w") as file:
            file.write("x")
        self.assertEqual(self.checks()["daemon"]["result"], "failed")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
