#!/usr/bin/env python3
"""berth run --isolate: quotas hold for programs that know nothing of LD_LIBRARY_PATH. And --strict, for those that escape."""
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

from cli_case import BERTH, BUILD, GIB, LOAD, PATIENCE, Case, wait_for

NOBODY = 65534


class Isolate(Case):
    def setUp(self):
        super().setUp()
        # A driver in a folder of its own, which the program opens by its path.
        self.driver = f"{self.folder}/driver"
        shutil.copytree(f"{BUILD}/lib/berth/sim", self.driver)
        self.environment["BERTH_DRIVER"] = f"{self.driver}/libcuda.so.1"
        code, _, errors = self.berth("run", "--isolate", "true")
        if code == 125 and "user namespace" in errors:
            self.skipTest(errors)

    def bare(self, *arguments):
        """The program with next to no environment."""
        return ["env", "-i", f"LD_LIBRARY_PATH={self.driver}", f"BERTH_SIM_DIR={self.folder}/sim", LOAD, *arguments, "--json"]

    def total(self, output):
        return json.loads(output.splitlines()[-1])["total_bytes"]

    def test_B49_an_empty_environment_does_not_lead_out(self):
        code, output, errors = self.berth("run", "-m", "2G", *self.bare("check", "--seconds", "0"))
        self.assertEqual((code, errors), (0, ""))
        self.assertGreater(self.total(output), 2 * GIB)  # without --isolate it does
        code, output, errors = self.berth("run", "--isolate", "-m", "2G", *self.bare("alloc", "--grow", "--seconds", "0"))
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(self.total(output), 2 * GIB)
        self.assertLessEqual(json.loads(output.splitlines()[-1])["bytes"], 2 * GIB)

    def test_B49_sessions_and_other_logins_do_not_lead_out(self):
        check = self.bare("check", "--seconds", "0")
        ways = [["setsid", "-w"], ["sh", "-c", '(setsid "$@" &)', "sh"]]
        if os.getuid() == 0 and subprocess.run(["su", "root", "-c", "true"], capture_output=True).returncode == 0:
            ways += [["su", "root", "-c", 'exec "$0" "$@"', "--"], ["su", "-", "root", "-c", 'exec "$0" "$@"', "--"]]
        for way in ways:
            with self.subTest(way):
                code, output, errors = self.berth("run", "--isolate", "-m", "2G", *way, *check)
                self.assertEqual((code, errors, self.total(output)), (0, "", 2 * GIB))

    def test_a_chosen_driver_is_covered_too(self):
        for chosen in ("sim", f"{self.driver}/libcuda.so.1"):
            self.environment["BERTH_DRIVER"] = chosen
            code, output, errors = self.berth("run", "--isolate", "-m", "2G", LOAD, "check", "--seconds", "0", "--json")
            self.assertEqual((code, errors, self.total(output)), (0, "", 2 * GIB))

    def test_it_is_seen_as_a_client(self):
        process = self.start("run", "--isolate", "-n", "inside", *self.bare("check", "--seconds", "1000"))
        process.stdout.readline()
        self.assertEqual([client["state"] for client in self.jobs()["inside"]["clients"]], ["attached"])

    def test_a_restarted_daemon_is_found_from_inside(self):
        process = self.start("run", "--isolate", "-n", "inside", *self.bare("check", "--seconds", "1000"))
        process.stdout.readline()
        old = self.daemon_pid()
        os.kill(old, signal.SIGKILL)
        wait_for(lambda: self.daemon_pid() not in (0, old), "another daemon")
        wait_for(lambda: [c["state"] for c in self.jobs()["inside"]["clients"]] == ["attached"], "the client to attach again")

    def test_nothing_outside_changes(self):
        before = os.stat(f"{self.driver}/libcuda.so.1").st_ino
        process = self.start("run", "--isolate", "sh", "-c", f"stat -c %i {self.driver}/libcuda.so.1; read x", stdin=subprocess.PIPE)
        self.assertEqual(int(process.stdout.readline()), os.stat(f"{BUILD}/lib/berth/shim/libcuda.so.1").st_ino)
        self.assertEqual(os.stat(f"{self.driver}/libcuda.so.1").st_ino, before)
        with open("/proc/self/mountinfo") as mounts:
            self.assertNotIn(self.folder, mounts.read())

    def test_exit_codes_and_identity_stay(self):
        code, output, errors = self.berth("run", "--isolate", "sh", "-c", "id -u; id -g; exit 7")
        self.assertEqual((code, output, errors), (7, f"{os.getuid()}\n{os.getgid()}\n", ""))

    def test_no_driver_to_cover(self):
        shutil.rmtree(self.driver)
        code, _, errors = self.berth("run", "--isolate", "true", env={**self.environment, "BERTH_DRIVER": f"{self.driver}/libcuda.so.1"})
        if code == 0:
            self.skipTest("this machine has a driver")
        self.assertEqual(code, 125)
        self.assertRegex(errors, r"\Aberth: BERTH_DRIVER=[^\n]* names no driver [^\n]*\n\Z")

    def test_without_being_root(self):
        if os.getuid() != 0:
            self.skipTest("not root, so all other tests are this one")
        if not shutil.which("setpriv") or subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                                                          BERTH, "--version"], capture_output=True).returncode:
            self.skipTest("another user can't reach the build folder")
        self.end_daemon()
        for path, folders, files in os.walk(self.folder):
            os.chown(path, NOBODY, NOBODY)
            for file in files:
                os.chown(f"{path}/{file}", NOBODY, NOBODY)
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", BERTH, "run", "--isolate", "-m", "2G",
                   *self.bare("check", "--seconds", "0")]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        if done.returncode == 125 and "user namespace" in done.stderr:
            self.skipTest(done.stderr)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.total(done.stdout), 2 * GIB)


class Strict(Case):
    def escape(self, *options):
        """A program that reaches the driver past berth's library."""
        return ["run", "-n", "runaway", "-m", "2G", *options, "env", "-i", "BERTH_DRIVER=sim", f"BERTH_SIM_DIR={self.folder}/sim",
                f"BERTH_SOCKET={self.socket}", LOAD, "check", "--seconds", "1000", "--json"]

    def test_a_process_that_escapes_is_told_of(self):
        process = self.start(*self.escape())
        process.stdout.readline()
        self.assertRegex(process.stderr.readline(), r"^berth: .*without berth")
        self.assertEqual(self.jobs()["runaway"]["clients"][0]["state"], "escaped")

    def test_strict_ends_the_job(self):
        process = self.start(*self.escape("--strict"))
        code, _, errors = self.finish(process)
        self.assertEqual(code, 125)
        self.assertRegex(errors, r"(?m)^berth: .*without berth")
        wait_for(lambda: not self.jobs(), "the job's end")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
