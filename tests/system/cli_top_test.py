#!/usr/bin/env python3
"""berth top in a terminal of tmux's: what the screen shows, what the keys do, and what is left of the terminal."""
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

from cli_case import BERTH, LOAD, PATIENCE, Case, wait_for

BAR = r"\[[#-]+ *\]"  # not empty


class Top(Case):
    servers = 0  # one a terminal: one that ends may still hold its socket

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-S", f"{self.folder}/tmux{self.servers}", "-f", "/dev/null", *arguments],
                              env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout

    def terminal(self, *command, width=80, height=24):
        """A shell that runs berth top, and says how that ended and if the terminal is as before."""
        words = " ".join(command or [BERTH, "top", "-d", "0.2"])
        self.close()
        self.servers += 1
        self.addCleanup(self.close)
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height),
                  f'trap : INT; echo before; old=$(stty -g); {words}; echo "ended $?"; '
                  '[ "$(stty -g)" = "$old" ] && echo restored; exec sleep 1000')

    def close(self):
        subprocess.run(["tmux", "-S", f"{self.folder}/tmux{self.servers}", "kill-server"], capture_output=True,
                       timeout=PATIENCE)

    def screen(self, *options):
        return self.tmux("capture-pane", "-p", *options)

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def shows(self, pattern):
        """The screen, once it shows the pattern."""
        def seen():
            text = self.screen()
            return text if re.search(pattern, text) else None
        try:
            return wait_for(seen, pattern)
        except AssertionError as fault:
            raise AssertionError(f"{fault}; the screen:\n{self.screen()}") from None

    def ended(self, code):
        """The screen from before is back, and the terminal's settings with it."""
        self.shows(rf"\Abefore\n(Terminated\n)?ended {code}\nrestored\n\s*\Z")
        self.assertEqual(self.tmux("display-message", "-p", "#{cursor_flag} #{alternate_on}").strip(), "1 0")

    def two_jobs(self):
        """Both want all of the GPU's time, so it is counted, and each waits for the other."""
        for name, memory in (("first", "4G"), ("second", "2G")):
            job = self.start("run", "-n", name, "-m", memory, LOAD, "train", "--seconds", "1000", "--json")
            wait_for(lambda: self.jobs().get(name, {}).get("clients"), f"{name} at work: {job.args}")

    def test_shows_devices_and_jobs(self):
        self.two_jobs()
        self.terminal()
        # GPU, bar of time, share; bar of memory, used, promised, total.
        text = self.shows(rf"(?m)^  0  {BAR} +\d+%  {BAR} +[\d.]+ [MG]iB +6 GiB +16 GiB  \S")
        for name, quota in (("first", 4), ("second", 2)):
            # Held by its turn; below: time over 1 and 60 s, memory used and quota, waited and throttled.
            text = self.shows(rf"(?m)^[> ] {name} +\w+ +running +normal +100 +1 +1 ms  turn *\n"
                              rf"  {BAR} +\d+% +\d+%  {BAR} +[\d.]+ [MG]iB +{quota} GiB"
                              r" +[1-9][\d.]* \w+ +[1-9][\d.]* \w+ *$")
        self.assertRegex(text, r"\Aberth top  every 0.2 s  2 jobs by name\n")
        self.assertRegex(text, r"\? keys   q quit\s*\Z")
        self.press("?")
        self.shows(r"P priority .* q quit\s*\Z")
        self.press("q")
        self.ended(0)

    def test_keys_change_the_selected_job(self):
        self.two_jobs()
        self.terminal()
        self.shows("(?m)^> first ")
        for key, name in (("Down", "second"), ("k", "first"), ("j", "second"), ("Up", "first"), ("j", "second")):
            self.press(key)
            self.shows(f"(?m)^> {name} ")
        job = lambda: self.jobs()["second"]  # noqa: E731
        self.press("p")
        self.shows("(?m)^> second .* paused ")
        self.assertEqual(job()["state"], "paused")
        self.press("p")
        self.shows("(?m)^> second .* running ")
        self.assertEqual(job()["state"], "running")
        for key, weight in (("+", 125), ("+", 156), ("-", 125), ("-", 100), ("-", 80)):
            self.press(key)
            self.shows(f"(?m)^> second .* {weight} ")
            self.assertEqual(job()["weight"], weight)
        for priority in ("high", "low", "normal"):
            self.press("P")
            self.shows(f"(?m)^> second .* {priority} ")
            self.assertEqual(job()["priority"], priority)
        first = self.jobs()["first"]
        self.assertEqual([first[key] for key in ("state", "weight", "priority")], ["running", 100, "normal"])
        for order in ("time", "memory", "waited", "name"):
            self.press("s")
            text = self.shows(f"2 jobs by {order}\n")
            self.assertIn("\n> second ", text)
            if order == "memory":
                self.assertLess(text.index("  first "), text.index("> second "))
        self.press("q")
        self.ended(0)

    def test_the_daemons_refusals_show(self):
        self.start("run", "-n", "holder", "-m", "12G", "sleep", "1000")
        wait_for(lambda: "holder" in self.jobs(), "the holder")
        self.start("run", "-n", "later", "-m", "12G", "--wait", "sleep", "1000")
        wait_for(lambda: "later" in self.jobs(), "the one that waits")
        self.terminal()
        self.shows(r"(?m)^  later .* waiting .*\n  waits, place 1: \S")
        self.press("j", "P")
        self.shows("the job later still waits for room")
        self.press("k")
        wait_for(lambda: "still waits" not in self.screen(), "the end of the message")

    def test_the_daemon_goes_and_another_comes(self):
        self.terminal()
        self.shows(f"trying again: no daemon answers at {self.socket}")
        self.assertNotEqual(self.json("gpus"), None)  # starts one
        text = self.shows("(?m)^  0  ")
        self.assertNotIn("trying again", text)
        self.assertIn("no jobs", text)
        os.kill(self.daemon_pid(), signal.SIGKILL)
        self.shows("trying again: ")
        self.assertNotEqual(self.json("gpus"), None)
        self.assertNotIn("trying again", self.shows("(?m)^  0  "))
        self.press("q")
        self.ended(0)

    def test_signals_leave_the_terminal_as_it_was(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.terminal()
            self.shows("trying again")
            if number == signal.SIGINT:
                self.press("C-c")
            else:
                shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
                with open(f"/proc/{shell}/task/{shell}/children") as children:
                    os.kill(int(children.read()), number)
            self.ended(128 + number)

    def test_sizes(self):
        self.two_jobs()
        self.terminal(width=160, height=10)
        one_line = rf"(?m)^> first .* running .*  {BAR} +\d+% +\d+%  {BAR} .* 4 GiB .*$"
        self.shows(one_line)
        self.tmux("resize-window", "-x", "80", "-y", "24")
        self.shows(rf"(?m)^> first .* running .*\n  {BAR} +\d+% +\d+%  {BAR} ")
        self.tmux("resize-window", "-x", "40", "-y", "8")
        self.shows(r"(?m)^> first ")
        self.tmux("resize-window", "-x", "160", "-y", "24")
        self.shows(one_line)
        self.press("q")
        self.ended(0)

    def test_colours_and_none(self):
        self.two_jobs()
        colour = r"\x1b\[(?:\d+;)*3[0-7](?:;\d+)*m"
        self.terminal()
        self.shows(f"(?m)^> first .*\n  {BAR}")
        self.assertRegex(self.screen("-e"), colour)
        self.environment["NO_COLOR"] = "1"
        self.terminal()
        self.shows(f"(?m)^> first .*\n  {BAR}")
        self.assertNotRegex(self.screen("-e"), colour)

    def test_where_there_is_no_terminal(self):
        self.refused(2, "needs a terminal: the standard input is none; berth ps", "top")
        self.refused(2, "'0' is not an interval", "top", "-d", "0")
        self.refused(2, "'x' is not an interval", "top", "--delay", "x")
        for kind in ("dumb", "no-such-terminal"):
            self.terminal(f"TERM={kind}", BERTH, "top")
            self.shows(rf"\Abefore\nberth: berth top needs a terminal: TERM is '{kind}'[^/]*\nended 2\nrestored\n\s*\Z")


if __name__ == "__main__":
    if not shutil.which("tmux"):
        print("there is no tmux")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
