#!/usr/bin/env python3
"""berth run on a terminal: interrupts, stopping and going on, a shell as the program."""
import os
import pty
import re
import select
import signal
import sys
import time
import unittest

from cli_case import BERTH, Case, wait_for


class Terminal(Case):
    """On a terminal of its own, under a shell with job control."""

    def setUp(self):
        super().setUp()
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve("/bin/bash", ["bash", "--norc", "--noprofile", "-i"], {**self.environment, "PS1": "> ", "TERM": "dumb"})
        self.addCleanup(self.close)
        self.seen = ""
        self.expect("> ")

    def close(self):
        os.close(self.terminal)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def expect(self, pattern):
        def look():
            self.seen += os.read(self.terminal, 4096).decode(errors="replace") if self.readable() else ""
            return re.search(pattern, self.seen)
        found = wait_for(look, f"{pattern!r} in {self.seen!r}")
        self.seen = self.seen[found.end():]
        return found

    def readable(self):
        return select.select([self.terminal], [], [], 0.1)[0]

    def type(self, text):
        os.write(self.terminal, text.encode())

    def test_interrupt_reaches_the_program_once(self):
        script = f"{self.folder}/count.py"
        with open(script, "w") as file:
            file.write("import signal, time\ncount = []\nsignal.signal(signal.SIGINT, lambda *_: count.append(1))\n"
                       "print('up', flush=True)\nend = time.monotonic() + 0.7\n"
                       "while time.monotonic() < end: time.sleep(0.05)\nprint('count', len(count))\n")
        self.type(f"{BERTH} run python3 {script}\n")
        self.expect("up")
        self.type("\x03")
        self.expect(r"count 1\r\n")

    def test_stop_and_go_on(self):
        self.type(f"{BERTH} run sh -c 'echo u\"\"p; read x; echo got:$x'\n")
        self.expect("up\r\n")
        self.type("\x1a")
        self.expect("Stopped")
        self.expect("> ")
        self.type("fg\n")
        self.expect("fg\r\n.*\r\n")
        self.type("word\n")
        self.expect("got:word\r\n")

    def test_an_interactive_shell_as_the_program(self):
        self.type(f"{BERTH} run bash --norc --noprofile -i\n")
        self.expect("> ")
        self.type("sleep 1000\n")
        time.sleep(0.3)
        self.type("\x03")
        self.expect("> ")
        self.type("echo in:$((1 + 1))\n")
        self.expect("in:2\r\n")
        self.type("exit 9\n")
        self.type("echo out:$?\n")
        self.expect("out:9\r\n")

    def test_the_program_has_the_terminal(self):
        self.type(f"{BERTH} run sh -c 'test -t 0 && test -t 1 && test -t 2 && ps -o stat= -p $$'\n")
        self.expect(r"[A-Z]\S*\+")  # in the foreground group; whatever it does at that moment


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
