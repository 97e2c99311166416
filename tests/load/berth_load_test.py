#!/usr/bin/env python3
"""berth-load alone on the simulated GPU: every mode and kind of allocation, signals, bad usage."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

BUILD = sys.argv[1]
PROGRAM = f"{BUILD}/bin/berth-load"
GIB = 1 << 30


class BerthLoad(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        self.environment.update(BERTH_DRIVER="sim", BERTH_SIM_DIR=self.folder.name, BERTH_SIM_MEMORY="2G")

    def start(self, *arguments, **environment):
        return subprocess.Popen([PROGRAM, *arguments], env={**self.environment, **environment}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_it(self, *arguments, **environment):
        process = self.start(*arguments, **environment)
        output, errors = process.communicate(timeout=60)
        return process.returncode, output, errors

    def result(self, *arguments, code=0):
        returned, output, errors = self.run_it(*arguments, "--json")
        self.assertEqual((returned, errors), (code, ""), output)
        lines = [json.loads(line) for line in output.splitlines()]
        self.assertEqual([line["event"] for line in lines], ["ready", "result"])
        self.assertEqual({line["schema"] for line in lines}, {1})
        return lines[-1]

    def refused_usage(self, *arguments):
        returned, output, errors = self.run_it(*arguments)
        self.assertEqual((returned, output), (2, ""))
        self.assertRegex(errors, r"^berth-load: [^\n]+\n$")
        return errors

    def test_every_kind_is_given_and_holds_its_pattern(self):
        for kind in ("linear", "async", "vmm", "managed", "pitch", "array"):
            with self.subTest(kind):
                result = self.result("alloc", "--kind", kind, "--bytes", "96M", "--step", "32M", "--seconds", "0")
                self.assertEqual(result["allocations"], 3)
                self.assertGreaterEqual(result["bytes"], 96 << 20)
                self.assertEqual((result["kind"], result["refusal"], result["wrong"]), (kind, None, 0))

    def test_every_kind_is_verified(self):
        for kind in ("linear", "async", "vmm", "managed", "pitch", "array"):
            with self.subTest(kind):
                result = self.result("check", "--kind", kind, "--bytes", "4M", "--step", "1M", "--seconds", "0")
                self.assertEqual((result["rounds"], result["wrong"]), (1, 0))

    def test_growing_ends_with_the_drivers_refusal(self):
        for kind, call in (("linear", "cuMemAlloc"), ("async", "cuMemAllocAsync"), ("vmm", "cuMemCreate"),
                           ("pitch", "cuMemAllocPitch"), ("array", "cuArrayCreate")):
            with self.subTest(kind):
                result = self.result("alloc", "--grow", "--kind", kind, "--step", "64M", "--seconds", "0")
                self.assertEqual(result["refusal"], {"call": call, "code": 2, "name": "CUDA_ERROR_OUT_OF_MEMORY",
                                                     "asked_bytes": 64 << 20})
                self.assertGreater(result["bytes"], GIB)
                self.assertLess(result["bytes"], 2 * GIB)

    def test_a_refusal_that_was_not_asked_for_is_a_failure(self):
        result = self.result("alloc", "--bytes", "3G", code=1)
        self.assertEqual((result["bytes"], result["ended_by"]), (0, "refusal"))
        returned, output, errors = self.run_it("train", "--bytes", "3G")
        self.assertEqual((returned, output), (1, ""))
        self.assertRegex(errors, r"cuMemAlloc of 3 GiB answered CUDA_ERROR_OUT_OF_MEMORY \(2\); free here: ")

    def test_managed_memory_is_never_asked_for_beyond_what_is_free(self):
        self.assertIn("explicit --bytes", self.refused_usage("alloc", "--kind", "managed"))
        returned, output, errors = self.run_it("alloc", "--kind", "managed", "--bytes", "3G")
        self.assertEqual((returned, output), (1, ""))
        self.assertIn("managed memory of 3 GiB was asked for", errors)

    def test_requests_are_answered(self):
        for graph in ([], ["--graph"]):
            result = self.result("infer", "--rate", "100", "--seconds", "1", "--kernels", "2", *graph)
            self.assertGreater(result["served"], 20)
            self.assertEqual(result["wrong"], 0)
            self.assertLessEqual(0.1, result["p50_ms"])  # two kernels of 50 us
            self.assertLessEqual(result["p50_ms"], result["p99_ms"])

    def test_steps_are_done(self):
        for graph in ([], ["--graph"]):
            result = self.result("train", "--seconds", "1", "--kernels", "2", "--kernel-us", "1000", *graph)
            self.assertGreater(result["steps"], 10)
            self.assertLessEqual(result["steps_per_s"], 500)
            self.assertEqual(result["wrong"], 0)

    def test_both_ways_to_find_the_drivers_functions(self):
        for way in ("dlsym", "proc-address"):
            self.assertEqual(self.result("--lookup", way, "--seconds", "0")["wrong"], 0)

    def test_signals_end_it_with_a_report(self):
        for mode in ("alloc", "check", "infer", "train"):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(mode, number=number):
                    process = self.start(mode, "--seconds", "600", "--bytes", "1M", "--json")
                    self.assertEqual(json.loads(process.stdout.readline())["event"], "ready")
                    process.send_signal(number)
                    output, errors = process.communicate(timeout=60)
                    self.assertEqual((process.returncode, errors), (0, ""))
                    self.assertEqual(json.loads(output)["ended_by"], "signal")

    def test_people_get_a_table(self):
        returned, output, errors = self.run_it("--seconds", "0")
        self.assertEqual((returned, errors), (0, ""))
        self.assertRegex(output, r"(?m)^wrong +0$")
        self.assertRegex(output, r"(?m)^total_bytes +2 GiB$")

    def test_bad_usage(self):
        self.assertIn("'12x' is not a size", self.refused_usage("alloc", "--bytes", "12x"))
        self.assertIn("is none of array, async", self.refused_usage("check", "--kind", "paper"))
        self.assertEqual(self.refused_usage("train", "--nonsense"),
                         "berth-load: '--nonsense' is not expected here; see berth-load --help\n")
        self.assertIn("'mode' is not expected here", self.refused_usage("mode"))
        self.assertIn("--bytes needs a value", self.refused_usage("--bytes"))
        self.assertIn("--device: 'x' is not a number", self.refused_usage("--device", "x"))
        self.assertIn("--rate: '-1' is not a number from 0.001 to 1000000", self.refused_usage("infer", "--rate", "-1"))
        self.refused_usage("infer", "--kind", "array")
        self.assertIn("--seconds: 'soon' is not a number from 0 to", self.refused_usage("--seconds", "soon"))

    def test_no_device(self):
        returned, output, errors = self.run_it("--device", "7")
        self.assertEqual((returned, output), (1, ""))
        self.assertRegex(errors, r"^berth-load: there is no device 7: this program sees 1\n$")
        returned, output, errors = self.run_it("--json", BERTH_DRIVER="/nowhere/libcuda.so.1")
        self.assertEqual((returned, json.loads(output)["error"]["code"]), (1, "no_device"))
        self.assertRegex(errors, r"^berth-load: BERTH_DRIVER=/nowhere/libcuda.so.1 cannot be opened: [^\n]+\n$")

    def test_the_loaders_driver_comes_before_BERTH_DRIVER(self):
        sim = f"{BUILD}/lib/berth/sim"
        returned, output, errors = self.run_it("--seconds", "0", BERTH_DRIVER="/nowhere/libcuda.so.1", LD_LIBRARY_PATH=sim)
        self.assertEqual((returned, errors), (0, ""), output)


unittest.main(argv=sys.argv[:1])
