#!/usr/bin/env python3
"""Programs on the shared CUDA runtime below `berth run -g`: daemon, command, preloaded alias library, shim and simulated GPU
together. The runtime is the tests' own (tests/support/runtime): NVIDIA's checks itself, and doesn't start on the simulated GPU."""
import os
import re
import subprocess
import unittest

from cli_case import BUILD, GIB
from guest_case import GuestCase, MIB, PROGRAMS

ALIAS = f"{BUILD}/lib/berth/shim/libberth_cudart.so"
DEVICES = f"{PROGRAMS}/runtime_devices"
CONTEXT = 518 * MIB


class RuntimeAlias(GuestCase):
    def setUp(self):
        super().setUp()
        self.environment["LD_LIBRARY_PATH"] = f"{BUILD}/tests/runtime/13"

    def said(self, *arguments, options=("-g", "3", "-m", "2G"), program=DEVICES):
        code, output, errors = self.berth("run", *options, "--", program, *arguments)
        self.assertEqual((code, errors), (0, ""), output)
        return output.splitlines()

    def devices(self, lines):
        return [dict(zip(("index", "uuid", "bus", "total"), line.split())) for line in lines]

    def test_the_programs_names_have_the_runtimes_version(self):
        table = subprocess.run(["readelf", "--dyn-syms", "-W", DEVICES], check=True, capture_output=True, text=True).stdout
        self.assertRegex(table, r"UND cudaSetDevice@libcudart\.so\.13")

    def test_every_interface_tells_the_same(self):
        seen = self.devices(self.said("look", options=("-g", "3", "-m", "2G", "-n", "three")))
        job = self.jobs("-a")["three"]["virtual_devices"]
        self.assertEqual([d["uuid"] for d in seen], [v["uuid"].removeprefix("GPU-").replace("-", "") for v in job])
        self.assertEqual(["0000" + d["bus"] for d in seen], [v["bus_id"] for v in job])
        self.assertEqual([d["total"] for d in seen], [str(2 * GIB)] * 3)

    def test_visible_devices_choose_and_order(self):
        for visible, buses in {"2": ["03"], "3,1": ["04", "02"], "0,9": ["01"]}.items():
            with self.subTest(visible=visible):
                seen = self.devices(self.said(f"CUDA_VISIBLE_DEVICES={visible}", DEVICES, "look", options=("-g", "4", "-m", "1G"), program="env"))
                self.assertEqual([d["bus"][5:7] for d in seen], buses)

    def test_each_has_its_own_quota(self):
        process = self.start("run", "-g", "2", "-m", "2G", "-n", "two", "--", DEVICES, "use", "1024", "600", "1", stdin=subprocess.PIPE)
        self.assertEqual([process.stdout.readline().split() for _ in range(3)], [["0", "0", "0"], ["1", "0", "1"], ["2", "101", "-1"]])
        used = [v["used_bytes"] for v in self.jobs()["two"]["virtual_devices"]]
        self.assertEqual(used, [CONTEXT + GIB, 600 * MIB])  # one context, of the first that was used
        self.over(process)
        # What the second may have does not hang on the first.
        process = self.start("run", "-g", "2", "-m", "1G", "--", DEVICES, "use", "900", "900", stdin=subprocess.PIPE)
        self.assertEqual([process.stdout.readline().split() for _ in range(2)], [["0", "2", "-1"], ["1", "0", "1"]])
        self.over(process)

    def test_processes_share_the_quota_of_a_device(self):
        first = self.start("run", "-g", "2", "-m", "3G", "-n", "ranks", "--", "sh", "-c", f"exec 3<&0; {DEVICES} use 8 1024 <&3 & {DEVICES} use 8 1024 <&3 & wait", stdin=subprocess.PIPE)
        lines = sorted(first.stdout.readline() for _ in range(4))
        self.assertEqual([line.split()[1] for line in lines], ["0"] * 4)
        used = [v["used_bytes"] for v in self.jobs()["ranks"]["virtual_devices"]]
        self.assertEqual(used, [2 * (CONTEXT + 8 * MIB), 2 * GIB])
        self.over(first)

    def test_threads_have_a_device_each(self):
        self.assertEqual(self.said("threads", options=("-g", "4", "-m", "2G")), ["4 threads, 0 wrong"])

    def test_a_reset_takes_what_is_its_own(self):
        self.assertEqual(self.said("reset"), ["0 64 64 7", "0 0 0 0 0"])

    def test_several_cards(self):
        self.environment["BERTH_SIM_GPUS"] = "2"
        process = self.start("run", "-g", "4", "-m", "4G", "-n", "wide", "--", DEVICES, "use", "1024", "1024", "1024", "1024", stdin=subprocess.PIPE)
        self.assertEqual([process.stdout.readline().split() for _ in range(4)], [[str(i), "0", str(i)] for i in range(4)])
        job = self.jobs()["wide"]["virtual_devices"]
        self.assertEqual([v["device_index"] for v in job], [0, 1, 0, 1])
        self.assertEqual([v["used_bytes"] for v in job], [CONTEXT + GIB] * 2 + [GIB] * 2)
        self.over(process)

    # A library that is opened with RTLD_LOCAL, its runtime with it, looks in the program's scope first, so it finds us.
    def test_a_runtime_that_is_opened_locally(self):
        self.assertEqual(self.said(f"{PROGRAMS}/runtime_plugin.so", program=f"{PROGRAMS}/plugin_host"), ["3 1"])

    # Documented as a limit: who asks the runtime's own handle gets the runtime's own function.
    def test_a_function_of_the_runtimes_handle_is_the_runtimes(self):
        self.assertEqual(self.said("handle"), ["1 3"])

    def test_without_virtual_devices_everything_passes(self):
        plain = {**self.environment, "LD_LIBRARY_PATH": f"{BUILD}/lib/berth/sim:{self.environment['LD_LIBRARY_PATH']}"}
        bare = self.finish(self.start("look", program=DEVICES, env=plain))
        preloaded = self.finish(self.start("look", program=DEVICES, env={**plain, "LD_PRELOAD": ALIAS}))
        self.assertEqual(preloaded, bare)
        self.assertEqual((bare[0], bare[2], len(bare[1].splitlines())), (0, "", 1))
        self.assertNotIn("BE00", bare[1])
        self.environment["LD_PRELOAD"] = ALIAS
        below = self.devices(self.said("look", options=("-m", "2G")))
        self.assertEqual((len(below), below[0]["bus"], below[0]["total"]), (1, bare[1].split()[2], str(2 * GIB)))
        self.assertEqual(self.said("threads", options=("-m", "2G")), ["1 threads, 0 wrong"])

    def test_programs_without_a_runtime_notice_nothing(self):
        self.assertEqual(self.said("-c", "import os; print(sum(name in open('/proc/self/maps').read() for name in ('libcuda.so', 'libcudart.so')))",
                                   program="python3"), ["0"])

    def test_without_the_library_the_runtime_sees_the_card(self):
        process = self.start("run", "-g", "3", "-m", "2G", "--", "env", "-u", "LD_PRELOAD", DEVICES, "look")
        code, output, errors = self.finish(process)
        self.assertEqual((code, errors, len(output.splitlines())), (0, "", 1))

    def test_doctor_has_nothing_to_say(self):
        output = self.berth("doctor")[1]
        self.assertRegex(output, rf"(?m)^ok +virtual devices +.*{re.escape(os.path.realpath(ALIAS))}")


if __name__ == "__main__":
    unittest.main(argv=["runtime_alias_test"], verbosity=2)
