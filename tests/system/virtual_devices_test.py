"""Programs on virtual devices: daemon, command, shim and simulated GPU together. By the driver interface and the management library."""
import json
import os
import signal
import sys
import unittest

from cli_case import GIB, Case, wait_for
from guest_case import GuestCase, MIB

CONTEXT = 518 * MIB

# A guest's own helpers: enter(i) makes device i current; uuid(i), bus(i), count() and all of them by the management library.
LOOK = r"""
def enter(i):
    c = ctypes.c_void_p(); r = cuda().cuDevicePrimaryCtxRetain(ctypes.byref(c), i) or cuda().cuCtxSetCurrent(c); return r
def count():
    n = ctypes.c_int(-1); r = cuda().cuDeviceGetCount(ctypes.byref(n)); return n.value if r == 0 else -r
def text(f, *a):
    b = ctypes.create_string_buffer(64); f(*[b if x is None else x for x in a]); return b.value.decode()
def uuid(i):
    u = ctypes.create_string_buffer(16); cuda().cuDeviceGetUuid_v2(u, i); h = u.raw.hex()
    return 'GPU-' + '-'.join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))
def bus(i): return text(cuda().cuDeviceGetPCIBusId, None, 64, i)
def smi():
    l = ctypes.CDLL('libnvidia-ml.so.1'); l.nvmlInit_v2(); n = ctypes.c_uint(); l.nvmlDeviceGetCount_v2(ctypes.byref(n)); found = []
    for i in range(n.value):
        d = ctypes.c_void_p(); l.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(d)); found.append(text(l.nvmlDeviceGetUUID, d, None, 64))
    return found
"""


class Seen(GuestCase):
    def test_every_interface_tells_the_same(self):
        said = self.result(LOOK + "before = smi(); init(); say(n=count(), uuids=[uuid(i) for i in range(count())], buses=[bus(i) for i in range(count())], "
                           "before=before, after=smi(), totals=[nvml(i)['total'] for i in range(3)])", "-g", "3", "-m", "2G", "-n", "three")
        job = self.jobs("-a")["three"]
        self.assertEqual(said["n"], 3)
        self.assertEqual(said["uuids"], [v["uuid"] for v in job["virtual_devices"]])
        self.assertEqual(["0000" + b for b in said["buses"]], [v["bus_id"] for v in job["virtual_devices"]])
        self.assertEqual((said["before"], said["after"]), (said["uuids"], said["uuids"]))
        self.assertEqual(said["totals"], [2 * GIB] * 3)
        self.assertEqual(len(set(said["uuids"])), 3)

    def test_visible_devices_choose_and_order_as_on_cards(self):
        script = LOOK + "r = init(); say(r=r, n=count() if r == 0 else 0, buses=[bus(i)[5:7] for i in range(count())] if r == 0 else [], smi=len(smi()))"
        cases = {"2": ["03"], "3,1": ["04", "02"], "0,9,1": ["01"], "1,1": [], "9": [], "": [], "-1": [], "2,x": ["03"]}
        for visible, buses in cases.items():
            with self.subTest(visible=visible):
                process = self.start("run", "-g", "4", "-m", "1G", "--", "env", f"CUDA_VISIBLE_DEVICES={visible}", sys.executable,
                                     os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest.py"), script)
                code, output, errors = self.finish(process)
                self.assertEqual((code, errors), (0, ""))
                said = json.loads(output)
                self.assertEqual((said["r"], said["n"], said["buses"], said["smi"]), (0 if buses else 100, len(buses), buses, 4))

    def test_the_programs_own_environment_is_left_alone(self):
        said = self.result(LOOK + "before = dict(os.environ); libc = ctypes.CDLL(None); libc.getenv.restype = ctypes.c_char_p\n"
                           "a = libc.getenv(b'CUDA_VISIBLE_DEVICES').decode(); init(); b = libc.getenv(b'CUDA_VISIBLE_DEVICES').decode()\n"
                           "say(a=a, b=b, child=__import__('subprocess').check_output('echo $CUDA_VISIBLE_DEVICES', shell=True, text=True).strip())",
                           "-g", "2", "-m", "1G")
        self.assertEqual(said, {"a": "0,1", "b": "0,1", "child": "0,1"})

    def test_uuids_choose_too(self):
        process = self.guest(LOOK + "us = smi(); env = {**os.environ, 'CUDA_VISIBLE_DEVICES': us[2] + ',' + us[0][:12]}\n"
                             "script = " + repr(LOOK) + " + 'init(); say(buses=[bus(i) for i in range(count())])'\n"
                             "os.execve(sys.executable, [sys.executable, sys.argv[0], script], env)", "-g", "3", "-m", "1G")
        said = self.line(process)
        self.assertEqual(said["buses"][0], "BE00:03:00.0")
        # Virtual UUIDs of one job may begin alike; then the beginning is that of several and ends the list.
        self.assertIn(said["buses"][1:], (["BE00:01:00.0"], []))
        self.over(process)


class Memory(GuestCase):
    def virtual(self, name):
        return self.jobs("-a")[name]["virtual_devices"]

    def test_each_has_its_own_quota_in_one_process(self):
        process = self.guest(LOOK + "init(); r = [enter(i) or alloc(GIB)[0] or info() for i in (0, 1)]\n"
                             "over = alloc(GIB)[0]; more = alloc(300 << 20)[0]; enter(0); other = alloc(400 << 20)[0]; say(r=r, over=over, more=more, other=other); hold()",
                             "-g", "2", "-m", "2G", "-n", "two")
        said = self.line(process)
        for _, free, total in said["r"]:
            self.assertEqual((free, total), (2 * GIB - CONTEXT - GIB, 2 * GIB))
        self.assertEqual((said["over"], said["more"], said["other"]), (2, 0, 0))
        self.assertEqual([v["used_bytes"] for v in self.virtual("two")], [CONTEXT + GIB + 400 * MIB, CONTEXT + GIB + 300 * MIB])
        device = self.device("two")
        self.assertEqual(device["used_bytes"], 2 * CONTEXT + 2 * GIB + 700 * MIB)
        self.assertEqual(device["quota_bytes"], 4 * GIB)
        self.over(process)

    def test_and_with_a_process_each(self):
        process = self.guest("import subprocess\n"
                             "ranks = [subprocess.Popen([sys.executable, sys.argv[0], " + repr(LOOK) +
                             " + 'init(); enter(%d); say(rank=%d, mine=alloc(GIB)[0], over=alloc(GIB)[0], total=info()[2]); hold()' % (i, i)], stdin=subprocess.PIPE) for i in range(3)]\n"
                             "sys.stdin.readline(); say(shown=[nvml(i)['pids'] for i in range(3)], ranks=[r.pid for r in ranks])\n"
                             "hold()\nfor r in ranks: r.communicate()", "-g", "3", "-m", "2G", "-n", "ranks")
        said = sorted((self.line(process) for _ in range(3)), key=lambda one: one["rank"])
        self.assertEqual(said, [{"rank": i, "mine": 0, "over": 2, "total": 2 * GIB} for i in range(3)])
        self.assertEqual([v["used_bytes"] for v in self.virtual("ranks")], [CONTEXT + GIB] * 3)
        self.assertEqual(len([c for c in self.jobs()["ranks"]["clients"]]), 3)
        said = self.ask(process)
        self.assertEqual(said["shown"], [[pid] for pid in said["ranks"]], "each on the virtual device that it uses")
        self.over(process)

    def test_what_a_killed_rank_held_is_its_devices_again(self):
        process = self.guest("import subprocess\n"
                             "rank = subprocess.Popen([sys.executable, sys.argv[0], " + repr(LOOK) + " + 'init(); enter(1); say(a=alloc(GIB)[0], pid=os.getpid()); hold()'], stdin=subprocess.PIPE)\n"
                             "rank.wait()\n" + LOOK + "init(); enter(1); say(again=alloc(GIB)[0], i=info()); hold()", "-g", "2", "-m", "2G", "-n", "mortal")
        os.kill(self.line(process)["pid"], 9)
        said = self.line(process)
        self.assertEqual((said["again"], said["i"]), (0, [0, 2 * GIB - CONTEXT - GIB, 2 * GIB]))
        wait_for(lambda: self.virtual("mortal")[1]["used_bytes"] == CONTEXT + GIB, "its account")
        self.over(process)

    def test_the_daemons_death_costs_nothing(self):
        process = self.guest(LOOK + "init(); enter(1); say(a=alloc(GIB)[0]); sys.stdin.readline(); say(more=alloc(300 << 20)[0], over=alloc(GIB)[0], u=uuid(1)); hold()",
                             "-g", "2", "-m", "2G", "-n", "lasting")
        self.assertEqual(self.line(process), {"a": 0})
        before = self.virtual("lasting")
        os.kill(self.daemon_pid(), signal.SIGKILL)
        said = self.ask(process)
        self.assertEqual((said["more"], said["over"], said["u"]), (0, 2, before[1]["uuid"]))
        after = wait_for(lambda: [v for v in [self.virtual("lasting")] if v[1]["used_bytes"] == CONTEXT + GIB + 300 * MIB], "the accounts after the restart")[0]
        self.assertEqual([v["uuid"] for v in after], [v["uuid"] for v in before])
        self.over(process)

    def test_a_new_quota_is_each_devices(self):
        process = self.guest(LOOK + "init(); enter(0); say(a=alloc(GIB)[0]); sys.stdin.readline(); say(b=alloc(GIB)[0]); hold()", "-g", "2", "-m", "2G", "-n", "growing")
        self.assertEqual(self.line(process), {"a": 0})
        self.assertEqual(self.berth("set", "-m", "4G", "growing")[0], 0)
        self.assertEqual(self.ask(process), {"b": 0})
        self.assertEqual([v["quota_bytes"] for v in self.virtual("growing")], [4 * GIB] * 2)
        self.over(process)


class SeveralCards(GuestCase):
    def test_they_lie_on_different_cards(self):
        self.environment["BERTH_SIM_GPUS"] = "2"
        process = self.guest(LOOK + "init(); say(n=count(), r=[enter(i) or alloc(GIB)[0] for i in range(count())], smi=len(smi())); hold()", "-g", "4", "-m", "4G", "-n", "wide")
        self.assertEqual(self.line(process), {"n": 4, "r": [0, 0, 0, 0], "smi": 4})
        job = self.jobs()["wide"]
        self.assertEqual([v["device_index"] for v in job["virtual_devices"]], [0, 1, 0, 1])
        self.assertEqual([v["used_bytes"] for v in job["virtual_devices"]], [CONTEXT + GIB] * 4)
        self.assertEqual([d["used_bytes"] for d in job["devices"]], [2 * (CONTEXT + GIB)] * 2)
        self.over(process)

    def test_a_job_on_the_second_card_sees_virtual_devices_of_that_alone(self):
        self.environment["BERTH_SIM_GPUS"] = "2"
        process = self.guest(LOOK + "init(); say(n=count(), r=[enter(i) or alloc(GIB)[0] for i in range(count())]); hold()", "-g", "2", "-m", "4G", "-n", "second", "--device", "1")
        self.assertEqual(self.line(process), {"n": 2, "r": [0, 0]})
        self.assertEqual([v["device_index"] for v in self.jobs()["second"]["virtual_devices"]], [1, 1])
        card = self.card()  # the first, which it doesn't touch
        self.assertEqual(card["pids"], [])
        self.over(process)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
