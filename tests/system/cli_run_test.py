#!/usr/bin/env python3
"""berth run: exit codes, streams, signals, orphans, the queue, a daemon that dies."""
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from cli_case import BERTH, BUILD, LOAD, PATIENCE, Case, wait_for


class Run(Case):
    def run_shell(self, script, *options, **more):
        return self.berth("run", *options, "--", "sh", "-c", script, **more)

    def start_shell(self, script, *options, **more):
        return self.start("run", *options, "--", "sh", "-c", script, **more)

    # Exit codes and streams.
    def test_exit_code_is_the_programs_own(self):
        for code in (0, 1, 7, 75, 125, 255):
            self.assertEqual(self.run_shell(f"exit {code}"), (code, "", ""))

    def test_exit_code_of_a_signal(self):
        for name in ("TERM", "KILL", "SEGV"):
            self.assertEqual(self.run_shell(f"kill -{name} $$"), (128 + getattr(signal, "SIG" + name), "", ""))

    def test_streams_pass_through_untouched(self):
        code, output, errors = self.finish_with_input("cat; echo error >&2", "some text\n")
        self.assertEqual((code, output, errors), (0, "some text\n", "error\n"))

    def finish_with_input(self, script, text):
        process = self.start_shell(script, stdin=subprocess.PIPE)
        output, errors = process.communicate(text, timeout=PATIENCE)
        return process.returncode, output, errors

    def test_other_descriptors_reach_the_program_and_are_let_go(self):
        reader, writer = os.pipe()
        os.set_inheritable(writer, True)
        process = self.start_shell(f"echo there >&{writer}; exec {writer}>&- >&- 2>&-; exec sleep 1000", pass_fds=[writer])
        os.close(writer)
        with os.fdopen(reader) as stream:
            self.assertEqual(stream.read(), "there\n")  # to its end, though berth run lives on
        self.assertEqual(process.stdout.read(), "")
        process.terminate()
        self.assertEqual(process.wait(PATIENCE), 128 + signal.SIGTERM)

    def test_closed_streams_stay_closed(self):
        script = f"{BERTH} run sh -c 'for n in 0 1; do [ ! -e /proc/$$/fd/$n ] || echo $n is open >&2; done; exit 5' <&- >&-"
        self.assertEqual(self.finish(self.start("-c", script, program="/bin/sh")), (5, "", ""))

    def test_environment_gets_the_shims_folder_first_and_nothing_else(self):
        shim = f"{BUILD}/lib/berth/shim"
        _, output, _ = self.berth("run", "env")
        self.assertEqual(set(output.splitlines()) - {f"{k}={v}" for k, v in self.environment.items()},
                         {f"LD_LIBRARY_PATH={shim}"})
        self.environment["LD_LIBRARY_PATH"] = "/a:/b"
        self.assertEqual(self.run_shell("echo $LD_LIBRARY_PATH")[1], f"{shim}:/a:/b\n")

    def test_commands_that_cannot_run(self):
        plain = f"{self.folder}/plain"
        with open(plain, "w") as file:
            file.write("text")
        self.refused(127, "nosuchprogram was not found", "run", "nosuchprogram")
        self.refused(127, "No such file", "run", "./nosuchprogram")
        self.refused(126, "is not executable", "run", plain)
        self.refused(126, "is a directory", "run", self.folder)
        self.assertEqual(self.daemon_pid(), 0)  # nothing half-done
        os.chmod(plain, 0o755)
        self.assertEqual(self.berth("run", plain)[0], 127)  # run by sh, as execvp has it: 'text' is no command

    def test_an_interpreter_that_is_missing(self):
        script = f"{self.folder}/script"
        with open(script, "w") as file:
            file.write("#!/nonexistent/interpreter\n")
        os.chmod(script, 0o755)
        self.refused(127, f"cannot execute {script}: its interpreter /nonexistent/interpreter was not found", "run", script)
        self.assertEqual(self.daemon_pid(), 0)

    def test_wrong_usage(self):
        for arguments in (["run"], ["run", "-m", "8X", "true"], ["run", "-m", "-1", "true"], ["run", "--nonsense", "true"],
                          ["run", "-n", "a b", "true"], ["run", "-n", "", "true"], ["run", "--device", "", "true"], ["run", "--device", "x", "true"], ["run", "-w", "0", "true"],
                          ["run", "--wait=soon", "true"], ["run", "-p", "urgent", "true"], ["run", "--max-slowdown", "0", "true"]):
            self.refused(125, ".", *arguments)
        for option in (["--swap"], ["--sharing", "mps"]):
            self.refused(125, "is not available in this version", "run", *option, "true")
        self.assertEqual(self.daemon_pid(), 0)

    def test_a_quota_of_a_few_bytes_is_pointed_out(self):
        self.assertEqual(self.berth("run", "-m", "8", "true"), (0, "", "berth: warning: -m 8 means 8 bytes; write 8G for GiB\n"))

    def test_no_quota(self):  # B30
        for options in ([], ["-m", ""], ["--memory="], ["-m", "0"], ["-m", "0m"], ["-m", "0%"]):
            self.assertEqual(self.berth("run", "-n", "free", *options, "true"), (0, "", ""))
            self.assertEqual(self.jobs("-a")["free"]["devices"][0]["quota_bytes"], None, options)

    def test_a_quota_that_never_fits_does_not_wait(self):
        self.refused(125, "15.5 GiB.*at most 15 GiB", "run", "-m", "15.5G", "true")
        self.refused(125, "15.5 GiB.*at most 15 GiB", "run", "--wait", "-m", "15.5G", "true")

    def test_a_driver_or_a_simulated_gpu_that_makes_no_sense(self):
        def with_variable(name, value):
            return {"env": {**self.environment, name: value}}
        for command in (["run", "true"], ["gpus"]):
            code = 125 if command[0] == "run" else 1
            self.refused(code, "BERTH_SIM_MEMORY.*'abc'.*such as 16G", *command, **with_variable("BERTH_SIM_MEMORY", "abc"))
            self.refused(code, "BERTH_SIM_MEMORY.*'x'.*each GPU", *command, **with_variable("BERTH_SIM_MEMORY", "16G,x"))
            self.refused(code, "BERTH_SIM_COMPUTE_MODE.*'shy'.*exclusive", *command,
                         **with_variable("BERTH_SIM_COMPUTE_MODE", "default,shy"))
            self.refused(code, "BERTH_SIM_GPUS.*'xx'.*a number", *command, **with_variable("BERTH_SIM_GPUS", "xx"))
            self.refused(code, "is berth's own library", *command,
                         **with_variable("BERTH_DRIVER", f"{BUILD}/lib/berth/shim/libcuda.so.1"))
        self.assertEqual(self.daemon_pid(), 0)
        errors = self.refused(125, "BERTH_SIM_DIR, now /proc/none,", "run", "true", **with_variable("BERTH_SIM_DIR", "/proc/none"))
        self.assertNotIn("NVIDIA", errors)

    def test_what_the_daemon_refuses(self):
        self.refused(125, "32 GiB.*ask for less", "run", "-m", "32G", "true")
        self.refused(125, ".", "run", "--device", "7", "true")
        self.refused(125, ".", "run", "-m", "101%", "true")
        holder = self.start_shell("echo up; read x", "-n", "holder", "-m", "8G", stdin=subprocess.PIPE)
        holder.stdout.readline()
        self.refused(125, "holder", "run", "-n", "holder", "true")
        self.refused(75, "holder", "run", "-m", "12G", "true")
        self.assertEqual(set(self.jobs()), {"holder"})

    def test_a_job_inside_a_job_is_refused(self):
        code, output, errors = self.run_shell(f"{BERTH} run true")
        self.assertEqual((code, output), (125, ""))
        self.assertRegex(errors, r"\Aberth: [^\n]*inside[^\n]*\n\Z")

    # Places that don't work.
    def test_sockets_that_cannot_be(self):
        def with_socket(path):
            return {"env": {**self.environment, "BERTH_SOCKET": path}}
        self.refused(125, "107 fit", "run", "true", **with_socket(f"{self.folder}/{'x' * 120}"))
        self.refused(125, "the folder /nonexistent does not exist", "run", "true", **with_socket("/nonexistent/s"))
        file = f"{self.folder}/file"
        with open(file, "w") as stream:
            stream.write("mine")
        self.refused(125, "is not berth's socket", "run", "true", **with_socket(file))
        with open(file) as stream:
            self.assertEqual(stream.read(), "mine")

    def on_a_small_disk(self, script):
        """What `script` ends with where BERTH_SOCKET is on a disk of 64 KiB; (code, output, errors, the disk's folder)."""
        place = f"{self.folder}/full"
        os.mkdir(place, 0o700)
        whole = f"mount -t tmpfs -o size=64k,mode=700 none {place} && export BERTH_SOCKET={place}/s && {{ {script}; }}"
        code, output, errors = self.finish(self.start("-rm", "sh", "-c", whole, program="unshare"))
        if code == 1:
            self.skipTest(errors)
        return code, output, errors, place

    def test_a_full_disk(self):
        code, output, errors, _ = self.on_a_small_disk(f"head -c 1M /dev/zero >{self.folder}/full/fill 2>&-; {BERTH} run true")
        self.assertEqual((code, output), (125, ""))
        self.assertRegex(errors, r"\Aberth: [^\n]*no space is left[^\n]*free some[^\n]*BERTH_SOCKET[^\n]*\n\Z")

    def test_a_full_disk_gets_no_empty_files_and_the_doctor_sees_it(self):
        _, output, _, place = self.on_a_small_disk(f"{BERTH} run true 2>&-; {BERTH} doctor; echo code $?; ls {self.folder}/full")
        self.assertRegex(output, rf"(?m)^failed +runtime folder +no space is left in the folder {place} ")
        self.assertTrue(output.endswith("\ncode 2\n"), output)

    def test_two_daemons_in_one_folder(self):
        other = {"env": {**self.environment, "BERTH_SOCKET": f"{self.folder}/other.sock"}}
        holder = self.start("run", "-n", "holder", "-m", "4G", LOAD, "alloc", "--bytes", "3G", "--seconds", "1000", "--json")
        self.assertIn("ready", holder.stdout.readline())
        script = f"{BERTH} run -m 1G true; {BERTH} run -m 1G true; {BERTH} gpus >&2; {BERTH} run -m 14G true"
        code, output, errors = self.finish(self.start("-c", script, program="/bin/sh", **other))
        self.addCleanup(self.kill_daemon, f"{self.folder}/other.sock")
        self.assertEqual((code, output), (75, ""))
        pid = self.daemon_pid()
        name = rf"\S+ \(process {pid}, {self.socket}\)"
        # Told once, and again where it may be the reason.
        self.assertEqual(len(re.findall(rf"(?m)^berth: another berth daemon, that of {name}, shares out GPU 0 too; "
                                        "what its jobs hold counts as unmanaged here$", errors)), 1, errors)
        self.assertRegex(errors, rf"(?m)^ +another daemon shares it out too: {name}$")
        self.assertRegex(errors, rf"(?m)^berth: asked for 14 GiB, .*; another berth daemon, that of {name}, shares")
        self.assertLessEqual({"berth.db", "berthd.log", "other.sock.db", "other.sock.log"}, set(os.listdir(self.folder)))

    def test_a_state_file_that_somebody_holds(self):
        script = ("import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('pragma locking_mode = exclusive'); "
                  "db.execute('begin exclusive'); print('up', flush=True); sys.stdin.read()")
        holder = self.start("-c", script, f"{self.folder}/berth.db", program=sys.executable, stdin=subprocess.PIPE)
        self.assertEqual(holder.stdout.readline(), "up\n")
        errors = self.refused(125, f"another process uses the daemon's state {self.folder}/berth.db; ", "run", "true")
        self.assertNotIn("space", errors)

    def test_BERTH_DRIVER_that_is_no_driver(self):
        for value, why in (("foo", "neither 'sim' nor a path"), ("/nonexistent/libcuda.so.1", "No such file"),
                           (self.folder, "that is no file")):
            self.environment["BERTH_DRIVER"] = value
            for code, command in ((125, ["run", "true"]), (1, ["gpus"])):
                self.refused(code, f"BERTH_DRIVER={value} names no driver \\({why}", *command)
        self.assertEqual(self.daemon_pid(), 0)
        self.environment["BERTH_DRIVER"] = "sim"
        self.start("daemon", env={**self.environment, "BERTH_DRIVER": "foo"})
        wait_for(self.daemon_pid, "the daemon")
        self.refused(1, "BERTH_DRIVER=foo names no driver: that is neither 'sim' nor a path; set it", "gpus")

    def test_an_idle_daemon_of_another_driver_makes_room(self):
        unset = {key: value for key, value in self.environment.items() if key != "BERTH_DRIVER"}
        daemon = self.start("daemon", env=unset)
        wait_for(self.daemon_pid, "the daemon")
        self.assertEqual(self.berth("run", "-m", "1G", "true"), (0, "", ""))
        self.assertEqual(daemon.wait(PATIENCE), 0)
        holder = self.start_shell("echo up; read x", stdin=subprocess.PIPE)
        holder.stdout.readline()
        self.refused(125, f"process {self.daemon_pid()}. was started with BERTH_DRIVER=sim, and this was started without", "run",
                     "true", env=unset)

    def test_no_gpu_and_no_sim(self):
        del self.environment["BERTH_DRIVER"]
        if self.json_or_error("gpus").get("devices"):
            self.skipTest("there is a GPU here")
        self.refused(125, "BERTH_DRIVER=sim", "run", "-m", "1G", "true")

    def json_or_error(self, *arguments):
        return json.loads(self.berth(*arguments, "--json")[1])

    def test_a_stale_socket_is_replaced(self):
        self.assertEqual(self.berth("run", "true"), (0, "", ""))
        self.end_daemon()
        self.assertTrue(os.path.exists(self.socket))
        self.assertEqual(self.berth("run", "true"), (0, "", ""))

    def test_many_first_runs_at_once_share_one_daemon(self):
        runs = [self.start("run", "sh", "-c", "echo $PPID") for _ in range(8)]
        self.assertEqual([self.finish(run)[0] for run in runs], [0] * 8)
        self.assertNotEqual(self.daemon_pid(), 0)

    # Signals.
    def test_signals_sent_to_berth_run_reach_the_program_once(self):
        for name in ("TERM", "INT", "HUP", "USR1", "WINCH", "QUIT"):
            process = self.start_shell(f"trap 'echo got; exit 9' {name}; echo up; while :; do sleep 0.05; done")
            self.assertEqual(process.stdout.readline(), "up\n")
            process.send_signal(getattr(signal, "SIG" + name))
            self.assertEqual(self.finish(process), (9, "got\n", ""), name)

    def test_a_signal_that_the_program_sends_its_parent_does_not_come_back(self):
        self.assertEqual(self.run_shell("trap 'echo back' USR1; kill -USR1 $PPID; sleep 0.2; exit 3"), (3, "", ""))

    def test_ignored_signals_stay_ignored(self):
        code, output, _ = self.finish(self.start(
            "-c", f"trap '' HUP; exec {BERTH} run sh -c 'kill -HUP $$; echo alive'", program="/bin/sh"))
        self.assertEqual((code, output), (0, "alive\n"))

    def test_signals_reach_what_is_left_of_a_job(self):
        process = self.start_shell("(trap 'echo child; exit' TERM; echo up; while :; do sleep 0.05; done) & exit 4")
        self.assertEqual(process.stdout.readline(), "up\n")
        time.sleep(0.2)  # the first process has ended, most likely; either way the signal ends the job
        process.terminate()
        code, output, _ = self.finish(process)
        self.assertIn((code, output), [(4, "child\n"), (128 + signal.SIGTERM, "")])

    def test_killed_berth_run_changes_nothing_for_the_program(self):
        reader, writer = os.pipe()
        process = self.start_shell(f"echo $$; sleep 0.5; echo end >&{writer}", pass_fds=[writer], stdin=subprocess.DEVNULL)
        os.close(writer)
        process.stdout.readline()
        process.kill()
        process.wait(PATIENCE)
        with os.fdopen(reader) as stream:
            self.assertEqual(stream.read(), "end\n")
        wait_for(lambda: not self.jobs(), "the job's end")

    # The job's end.
    def test_the_job_ends_with_its_last_process(self):
        began = time.monotonic()
        code, output, errors = self.run_shell("setsid sh -c 'sleep 0.7; echo late' & exit 3")
        self.assertEqual((code, output, errors), (3, "late\n", ""))
        self.assertGreaterEqual(time.monotonic() - began, 0.7)
        self.assertEqual(self.jobs("-a")["sh-1"]["exit_code"], 3)

    def test_names_count_up(self):
        first = self.start_shell("echo up; read x", stdin=subprocess.PIPE)
        first.stdout.readline()
        second = self.start_shell("echo up; read x", stdin=subprocess.PIPE)
        second.stdout.readline()
        self.assertEqual(set(self.jobs()), {"sh-1", "sh-2"})

    # The queue.
    def test_waiting_for_room(self):
        holder = self.start_shell("echo up; read x", "-n", "holder", "-m", "12G", stdin=subprocess.PIPE)
        holder.stdout.readline()
        waiting = self.start_shell("echo in", "-m", "8G", "--wait")
        line = waiting.stderr.readline()
        self.assertRegex(line, r"^berth: waiting for room, place 1 in the queue: asked for 8 GiB, .*holder")
        self.assertEqual(self.jobs()["sh-1"]["state"], "waiting")
        holder.communicate("\n", timeout=PATIENCE)
        self.assertEqual(self.finish(waiting), (0, "in\n", ""))

    def test_waiting_in_vain_and_giving_up(self):
        holder = self.start_shell("echo up; read x", "-n", "holder", "-m", "12G", stdin=subprocess.PIPE)
        holder.stdout.readline()
        code, output, errors = self.berth("run", "-m", "8G", "--wait=1", "true")
        self.assertEqual((code, output), (75, ""))
        queued, given_up = errors.splitlines()
        self.assertRegex(queued, "^berth: waiting for room, place 1 in the queue: asked for 8 GiB, but GPU 0 has .*holder")
        self.assertEqual(given_up, "berth: no room after 1 s; wait longer, ask for less, or end one of the jobs that are in the way")
        waiting = self.start("run", "-m", "8G", "--wait", "true")
        waiting.stderr.readline()
        waiting.send_signal(signal.SIGINT)
        self.assertEqual(waiting.wait(PATIENCE), -signal.SIGINT)
        wait_for(lambda: set(self.jobs()) == {"holder"}, "the queue to be empty")

    # The daemon.
    def test_a_dead_daemon_comes_back_and_knows_the_job(self):
        process = self.start("run", "-n", "lasting", "-m", "2G", LOAD, "check", "--seconds", "1000", "--json")
        self.assertIn("ready", process.stdout.readline())
        old = self.daemon_pid()
        os.kill(old, signal.SIGKILL)
        died = time.monotonic()
        wait_for(lambda: self.daemon_pid() not in (0, old), "another daemon")
        self.assertLess(time.monotonic() - died, 10)  # 1 s is promised
        clients = wait_for(lambda: self.jobs()["lasting"]["clients"], "the client to come back")
        self.assertEqual(len(clients), 1)
        process.terminate()
        code, _, errors = self.finish(process)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(self.jobs("-a")["lasting"]["exit_code"], 0)

    def test_a_daemon_that_dies_while_a_job_waits(self):
        holder = self.start_shell("echo up; read x", "-n", "holder", "-m", "12G", stdin=subprocess.PIPE)
        holder.stdout.readline()
        waiting = self.start_shell("echo in", "-n", "second", "-m", "8G", "--wait")
        waiting.stderr.readline()
        os.kill(self.daemon_pid(), signal.SIGKILL)
        wait_for(lambda: self.jobs().get("second", {}).get("state") == "waiting", "the queue to be there again")
        holder.communicate("\n", timeout=PATIENCE)
        self.assertEqual(self.finish(waiting)[:2], (0, "in\n"))

    def test_the_daemon_keeps_nothing_of_its_starter(self):
        reader, writer = os.pipe()
        process = self.start("run", "true", pass_fds=[writer])
        os.close(writer)
        self.finish(process)
        with os.fdopen(reader) as stream:
            self.assertEqual(stream.read(), "")  # ends: the daemon doesn't hold the pipe
        pid = self.daemon_pid()
        self.assertEqual(os.readlink(f"/proc/{pid}/cwd"), "/")
        self.assertEqual(os.getsid(pid), pid)

    # Warnings.
    def test_programs_out_of_reach_get_one_warning(self):
        for name in ("docker", "podman", "nerdctl"):
            path = f"{self.folder}/{name}"
            os.symlink("/bin/true", path)
            self.assertEqual(self.berth("run", path, "ps"), (0, "", ""))
            code, output, errors = self.berth("run", path, "--log-level", "debug", "run", "image")
            self.assertEqual((code, output), (0, ""))
            self.assertRegex(errors, r"\Aberth: warning: [^\n]*container[^\n]*docs/containers.md[^\n]*\n\Z")

    def test_a_32_bit_program_is_told_of(self):
        path = f"{self.folder}/old"
        with open(path, "wb") as file:
            file.write(b"\x7fELF\x01\x01\x01" + bytes(45))
        os.chmod(path, 0o755)
        code, _, errors = self.berth("run", path)
        self.assertIn(code, (126, 127))
        self.assertRegex(errors, r"\Aberth: warning: [^\n]*32-bit[^\n]*\n")

    def test_a_32_bit_program_runs_and_is_told_of(self):
        source, made, path = f"{self.folder}/old.s", f"{self.folder}/old.o", f"{self.folder}/old"
        with open(source, "w") as file:
            file.write(".globl _start\n_start: movl $1, %eax\nmovl $7, %ebx\nint $0x80\n.section .note.GNU-stack\n")
        for command in (["as", "--32", "-o", made, source], ["ld", "-m", "elf_i386", "-o", path, made]):
            if subprocess.run(command, capture_output=True).returncode:
                self.skipTest("binutils cannot make 32-bit programs here")
        try:
            self.assertEqual(subprocess.run([path]).returncode, 7)
        except OSError as error:
            self.skipTest(f"32-bit programs do not run here: {error}")
        code, output, errors = self.berth("run", "-m", "1G", path)
        self.assertEqual((code, output), (7, ""))
        self.assertRegex(errors, r"\Aberth: warning: [^\n]*32-bit[^\n]*\n\Z")
        self.assertEqual(self.berth("run", "-m", "1G", "sh", "-c", path), (7, "", ""))  # a child: nothing in its way


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
