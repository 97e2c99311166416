#!/usr/bin/env python3
"""ps, gpus, set, kill, events, daemon, completion, and what bad input gets."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import unittest

from cli_case import BERTH, GIB, LOAD, PATIENCE, SOURCE, Case, wait_for


class Commands(Case):
    def job(self, name, *options, script="echo up; read x"):
        process = self.start("run", "-n", name, *options, "--", "sh", "-c", script, stdin=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), "up\n")
        return process

    def error(self, code, *arguments):
        """Of --json: on stdout, as JSON, and nothing on stderr."""
        returned, output, errors = self.berth(*arguments, "--json")
        self.assertEqual((returned, errors), (code, ""), output)
        return json.loads(output)["error"]["code"]

    def test_without_a_daemon(self):
        del self.environment["BERTH_SOCKET"]
        self.environment["XDG_RUNTIME_DIR"] = self.folder
        if os.path.exists("/run/berth/berth.sock"):
            self.skipTest("this machine has a system service")
        self.assertEqual(self.json("ps"), {"schema": 1, "jobs": []})
        code, output, errors = self.berth("ps")
        self.assertEqual((code, output.count("\n"), errors), (0, 1, ""))
        self.assertEqual(self.berth("events"), (0, "", ""))
        self.refused(1, "no daemon answers", "kill", "x")
        self.assertEqual(os.listdir(f"{self.folder}/berth"), [])  # none was started

    def test_nobody_at_the_socket_that_was_chosen(self):
        pattern = f"no daemon answers at {self.socket}; berth run starts one"
        for arguments in (["ps"], ["ps", "--watch=9"], ["events"], ["events", "--follow"], ["kill", "x"]):
            self.refused(1, pattern, *arguments)
        for arguments in (["ps"], ["events"]):
            self.assertEqual(self.error(1, *arguments), "unreachable")
        self.environment["BERTH_SOCKET"] = f"{self.folder}/missing/berth.sock"
        self.refused(1, f"none can be started there: the folder {self.folder}/missing does not exist", "ps")
        self.environment["BERTH_SOCKET"] = self.socket
        self.refused(1, "no daemon answers", "set", "x", "-m", "1G")
        self.assertEqual(self.error(1, "set", "x", "-m", "1G"), "unreachable")
        self.assertEqual(self.daemon_pid(), 0)

    def test_gpus_starts_one(self):
        devices = self.json("gpus")["devices"]
        self.assertEqual([device["index"] for device in devices], [0])
        # As the driver counts, without what NVML's total has reserved for the driver itself.
        self.assertEqual([devices[0][key] for key in ("total_bytes", "used_bytes", "promisable_bytes")], [16 * GIB, 0, 15 * GIB])
        self.assertNotEqual(self.daemon_pid(), 0)
        self.assertIn(devices[0]["uuid"], self.berth("gpus")[1])

    def test_no_gpu(self):
        self.environment["BERTH_SIM_GPUS"] = "0"
        code, output, errors = self.berth("gpus")
        if code == 0:
            self.skipTest("the simulation has no machine without a GPU")
        self.assertEqual((code, output), (1, ""))
        self.assertRegex(errors, r"\Aberth: [^\n]+\n\Z")

    def test_ps(self):
        holder = self.job("holder", "-m", "12G", "-p", "high", "-w", "300", "--max-share", "50%")
        load = self.start("run", "-n", "load", "-m", "2G", LOAD, "check", "--seconds", "1000", "--json")
        load.stdout.readline()
        jobs = self.jobs()
        self.assertEqual(set(jobs), {"holder", "load"})
        self.assertEqual([jobs["holder"][key] for key in ("state", "priority", "weight", "max_share_ratio", "clients")],
                         ["running", "high", 300, 0.5, []])
        self.assertEqual(jobs["holder"]["devices"][0]["quota_bytes"], 12 * GIB)
        self.assertEqual(jobs["load"]["clients"][0]["command"], "berth-load")
        code, output, errors = self.berth("ps")
        self.assertEqual((code, errors), (0, ""))
        self.assertRegex(output, r"(?m)^holder +running +high +300 +0 +0 B +0 B +12 GiB")
        self.assertRegex(output, r"(?m)^  \d+ +berth-load +\d")
        self.assertLessEqual(max(map(len, output.splitlines())), 80)
        holder.communicate("\n", timeout=PATIENCE)
        self.assertEqual(set(self.jobs()), {"load"})
        self.assertEqual(self.jobs("-a")["holder"]["state"], "ended")

    def test_ps_watches(self):
        self.json("gpus")  # starts a daemon
        watch = self.start("ps", "--watch=0.1", "--json")
        self.assertEqual(json.loads(watch.stdout.readline()), {"schema": 1, "jobs": []})
        self.end_daemon()
        for _ in range(3):
            self.assertEqual(json.loads(watch.stdout.readline()), {"schema": 1, "jobs": []})
        self.refused(2, "not an interval", "ps", "--watch=never")
        self.refused(2, "not an interval", "ps", "--watch=0")

    def test_set(self):
        self.job("target", "-m", "4G")
        self.assertEqual(self.berth("set", "target", "-m", "2G", "-p", "low", "-w", "7"), (0, "", ""))
        job = self.jobs()["target"]
        self.assertEqual((job["devices"][0]["quota_bytes"], job["priority"], job["weight"]), (2 * GIB, "low", 7))
        self.assertEqual(self.json("set", "target", "-m", "")["devices"][0]["quota_bytes"], None)
        changes = [line for line in self.berth("events")[1].splitlines() if "job_changed" in line]
        self.assertEqual(len(changes), 2)
        self.assertIn("target changed: quota on GPU 0 4 GiB -> 2 GiB, priority normal -> low, weight 100 -> 7", changes[0])
        self.assertIn("target changed: quota on GPU 0 2 GiB -> none", changes[1])
        self.refused(1, "nothere", "set", "nothere", "-m", "1G")
        for arguments in (["target"], ["target", "-m", "8X"], ["target", "-w", "0"], ["target", "-p", "x"],
                          ["target", "--max-share", "0"], ["target", "-p", ""], ["target", "-w", ""], ["-bad", "-m", "1G"], ["a/", "-m", "1G"], []):
            self.refused(2, ".", "set", *arguments)
        self.refused(2, "not a slowdown", "set", "target", "--max-slowdown", "0.5")
        self.assertEqual(self.json("set", "target", "--max-slowdown", "1.3", "-p", "normal")["max_slowdown_ratio"], 1.3)
        self.assertEqual(self.error(1, "set", "nothere", "-m", "1G"), "unknown_job")
        self.assertEqual(self.error(2, "set", "target", "-m", "8X"), "usage")

    def test_pause_and_resume(self):
        self.job("target", "-m", "4G")
        self.assertEqual(self.berth("pause", "target"), (0, "", ""))
        self.assertEqual(self.jobs()["target"]["state"], "paused")
        self.assertRegex(self.berth("ps")[1], r"(?m)^target +paused")
        self.assertEqual(self.berth("pause", "target"), (0, "", ""))
        self.assertEqual(self.json("resume", "target")["state"], "running")
        told = self.berth("events")[1]
        self.assertRegex(told, r"job_paused +target +target was paused\n")
        self.assertRegex(told, r"job_resumed +target +target was resumed\n")
        self.refused(1, "nothere", "pause", "nothere")
        self.refused(1, "nothere", "resume", "nothere")
        self.refused(2, ".", "pause")
        self.assertEqual(self.error(1, "pause", "nothere"), "unknown_job")

    def test_kill(self):
        for name in ("TERM", "SIGINT", "usr1", "9"):
            process = self.job("target")
            signals = ["-s", name] if name != "TERM" else []
            self.assertEqual(self.berth("kill", "target", *signals), (0, "", ""))
            number = int(name) if name.isdigit() else getattr(signal, "SIG" + name.upper().removeprefix("SIG"))
            self.assertEqual(process.wait(PATIENCE), 128 + number)
        self.refused(1, "target", "kill", "target")
        self.refused(2, "is not a signal", "kill", "target", "-s", "NONSENSE")
        self.refused(2, ".", "kill")

    def test_events(self):
        follower = self.start("events", "--json", "--follow") if self.json("gpus") else None
        self.finish(self.job("target"))
        kinds = set()
        while "job_ended" not in kinds:
            kinds.add(json.loads(follower.stdout.readline())["kind"])
        code, output, errors = self.berth("events", "--since", "1h", "--json")
        self.assertEqual((code, errors), (0, ""))
        self.assertLessEqual(kinds, {json.loads(line)["kind"] for line in output.splitlines()})
        self.assertRegex(self.berth("events")[1], r"(?m)^2\S+Z  job_admitted  target  target admitted")
        self.assertEqual(self.berth("events", "--since", "2999-01-01T00:00:00Z")[:1], (0,))
        self.refused(2, "is not a time", "events", "--since", "yesterday")
        os.kill(self.daemon_pid(), signal.SIGKILL)
        self.assertEqual(follower.wait(PATIENCE), 1)

    def test_daemon_runs_in_the_foreground(self):
        process = self.start("daemon", "--socket", self.socket)
        wait_for(self.daemon_pid, "the daemon")
        self.assertEqual(self.daemon_pid(), process.pid)
        second = self.start("daemon", "--socket", self.socket)
        code, _, errors = self.finish(second)
        self.assertEqual(code, 1)
        self.assertIn("already", errors)
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_wrong_usage(self):
        self.refused(2, "a command is missing")
        self.refused(2, "there is no command 'nonsense'", "nonsense")
        self.refused(2, "--nonsense", "ps", "--nonsense")
        self.refused(2, "--nonsense", "--nonsense")
        self.assertEqual(self.error(2, "ps", "--nonsense"), "usage")

    def test_help_and_version(self):
        self.assertRegex(self.berth("--version")[1], r"^berth \d+\.\d+\.\d+\n$")
        for arguments in (["--help"], ["run", "--help"], ["set", "--help"], ["container", "add", "--help"]):
            code, output, errors = self.berth(*arguments)
            self.assertEqual((code, errors), (0, ""))
            self.assertLessEqual(max(map(len, output.splitlines())), 80, output)

    def test_the_manual_page_names_all_there_is(self):
        with open(f"{SOURCE}/packaging/berth.1") as file:
            page = file.read().replace("\\-", "-")
        commands = re.findall(r"(?m)^  ([a-z]+) +(?!not available)\S", self.berth("--help")[1].split("Subcommands:")[1])
        self.assertIn("run", commands)
        for command in [*commands, "container add"]:
            self.assertIn(f".SS berth {command}", page)
            for entry in re.findall(r"(?m)^  (-.*(?:\n {10,}.*)*)", self.berth(*command.split(), "--help")[1]):
                name = re.search("--[a-z-]+", entry)[0]
                (self.assertNotIn if "not available" in entry else self.assertIn)(name, page)

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            code, output, errors = self.berth("completion", shell)
            self.assertEqual((code, errors), (0, ""))
            self.assertNotIn("--swap", output)
        self.refused(2, "not a shell", "completion", "csh")
        script = ('source <("$0" completion bash); try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _berth; '
                  'echo "${COMPREPLY[@]}"; }; try berth k; try berth run --mem; try berth completion f; try berth set j')
        self.job("jolly")
        bin_first = {**self.environment, "PATH": f"{os.path.dirname(BERTH)}:{self.environment['PATH']}"}
        done = subprocess.run(["bash", "-c", script, BERTH], env=bin_first, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual((done.stdout, done.stderr), ("kill\n--memory\nfish\njolly\n", ""))

    def test_what_is_no_daemon(self):
        """B53: a daemon of another kind or version is told of in one line."""
        for answer, pattern in ((b"noise", "is no berth daemon, or one of another version: end it"), (b"BRTH\x02\x00\x41\x00\x10\x00\x00\x00\x00\x00\x00\x00", "speaks protocol 2"),
                                (b"", "ended the conversation")):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                if os.path.exists(self.socket):
                    os.unlink(self.socket)
                listener.bind(self.socket)
                listener.listen(8)
                process = self.start("kill", "x")
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    if answer:
                        peer.send(answer)
                code, output, errors = self.finish(process)
                self.assertEqual((code, output), (1, ""))
                self.assertRegex(errors, r"\Aberth: [^\n]+\n\Z")
                self.assertIn(pattern, errors)
        os.unlink(self.socket)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
