"""What the tests that run guests share: a guest (guest.py) below `berth run`, what it says, and what the daemon says of its job."""
import json
import os
import subprocess
import sys

from cli_case import BUILD, PATIENCE, Case

GUEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest.py")
PROGRAMS = f"{BUILD}/tests/programs"
MIB = 1 << 20


class GuestCase(Case):
    def guest(self, script, *options, **more):
        """A guest that stays until its standard input is closed, if its script ends with hold()."""
        more = {"stdin": subprocess.PIPE, **more}
        return self.start("run", *options, "--", sys.executable, GUEST, script, **more)

    def line(self, process):
        text = process.stdout.readline()
        if not text:
            raise AssertionError(f"the guest ended: {process.stderr.read()}")
        return json.loads(text)

    def result(self, script, *options, **more):
        """The last line that a guest says, which must end well and have nothing on stderr."""
        process = self.guest(script, *options, **more)
        output, errors = process.communicate("", timeout=PATIENCE)
        self.assertEqual((process.returncode, errors), (0, ""), output)
        return json.loads(output.splitlines()[-1])

    def device(self, name):
        job = self.jobs("-a").get(name)
        return job and job["devices"][0]

    def used(self, name):
        device = self.device(name)
        return device["used_bytes"] - device["overhead_bytes"] if device else 0

    def ask(self, process):
        """The next line of a guest that waits for a line before it says one."""
        process.stdin.write("go\n")
        process.stdin.flush()
        return self.line(process)

    def over(self, process):
        """The guest's end, which must be a good one."""
        output, errors = process.communicate("", timeout=PATIENCE)
        self.assertEqual((process.returncode, errors), (0, ""), output)

    def plain(self, script, **more):
        """A guest without berth, on the driver itself."""
        driver = self.environment["BERTH_DRIVER"]
        folder = f"{BUILD}/lib/berth/sim" if driver == "sim" else os.path.dirname(driver)
        env = {**self.environment, "LD_LIBRARY_PATH": folder}
        return self.start(GUEST, script, program=sys.executable, env=env, stdin=subprocess.PIPE, **more)

    def card(self):
        """What the card's own management library says, seen past berth."""
        process = self.plain("say(n=nvml())")
        code, output, errors = self.finish(process)
        self.assertEqual((code, errors), (0, ""))
        return json.loads(output)["n"]

    def events(self, kind):
        code, output, errors = self.berth("events", "--json")
        self.assertEqual((code, errors), (0, ""))
        return [event for event in map(json.loads, output.splitlines()) if event["kind"] == kind]
