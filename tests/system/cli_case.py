"""What the tests of the command share: a folder, a socket and a simulated GPU of their own, and the daemon's end."""
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = os.path.abspath(sys.argv[1])
SOURCE = os.path.abspath(sys.argv[2])
BERTH = f"{BUILD}/bin/berth"
LOAD = f"{BUILD}/bin/berth-load"
PATIENCE = 60  # watchdog; nothing here takes a tenth of it
GIB = 1 << 30


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="berth-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.socket = f"{self.folder}/berth.sock"
        left_out = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "XDG_RUNTIME_DIR", "NO_COLOR")
        self.environment = {key: value for key, value in os.environ.items()
                            if key not in left_out and not key.startswith("BERTH_")}
        self.environment.update(BERTH_SOCKET=self.socket, BERTH_DRIVER="sim", BERTH_SIM_DIR=f"{self.folder}/sim",
                                BERTH_SIM_MEMORY="16G")
        self.addCleanup(self.end_daemon)

    def start(self, *arguments, program=BERTH, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True,
                   "env": self.environment, **options}
        process = subprocess.Popen([program, *arguments], **options)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        """By a signal that reaches the program too; a `berth run` that is killed leaves it running."""
        if process.poll() is None:
            process.terminate()
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def finish(self, process):
        output, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, output, errors

    def berth(self, *arguments, **options):
        return self.finish(self.start(*arguments, **options))

    def json(self, *arguments):
        code, output, errors = self.berth(*arguments, "--json")
        self.assertEqual((code, errors), (0, ""), output)
        return json.loads(output)

    def refused(self, code, pattern, *arguments, **options):
        """One clear line on stderr, nothing on stdout."""
        returned, output, errors = self.berth(*arguments, **options)
        self.assertEqual((returned, output), (code, ""), errors)
        self.assertRegex(errors, r"\Aberth: [^\n]+\n\Z")
        self.assertRegex(errors, pattern)
        return errors

    def jobs(self, *options):
        """By name; none where no daemon answers, as between two of them."""
        code, output, errors = self.berth("ps", *options, "--json")
        reply = json.loads(output)
        if code == 1 and reply["error"]["code"] == "unreachable":
            return {}
        self.assertEqual((code, errors), (0, ""), output)
        return {job["name"]: job for job in reply["jobs"]}

    def daemon_pid(self, path=None):
        """Of the daemon that listens; 0 if none does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            try:
                connection.connect(path or self.socket)
            except OSError:
                return 0
            return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def end_daemon(self):
        """And all jobs first, since a `berth run` that a test left behind would start another one."""
        if not self.daemon_pid():
            return
        for name in self.jobs():
            self.berth("kill", name, "-s", "KILL")
        wait_for(lambda: not self.jobs(), "the end of all jobs")
        self.kill_daemon(self.socket)

    def kill_daemon(self, path):
        if pid := self.daemon_pid(path):
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not self.daemon_pid(path), "the daemon's end")
