#!/usr/bin/env python3
"""Several cards: where jobs are placed, what they see, and what becomes of those that go elsewhere."""
import json
import re
import shutil
import subprocess
import sys
import unittest

from cli_case import BERTH, PATIENCE, wait_for
from guest_case import GuestCase

GIB = 1 << 30
CONTEXT = 518 << 20


class Cards(GuestCase):
    def cards(self, memory, count=""):
        self.environment.update(BERTH_SIM_MEMORY=memory, BERTH_SIM_GPUS=str(count))

    def uuids(self):
        return [device["uuid"] for device in self.json("gpus")["devices"]]

    def place(self, *options):
        """Of a job that stays: its name and its card."""
        self.made = getattr(self, "made", 0) + 1
        name = f"job{self.made}"
        self.line(self.guest("start(); say(up=1); hold()", "-n", name, *options))
        return self.device(name)["index"]


class Placement(Cards):
    def test_the_card_with_most_memory_to_promise(self):
        self.cards("16G,8G,12G")
        self.assertEqual([self.place("-m", size) for size in ("4G", "4G", "6G", "7G", "5G")], [0, 2, 0, 1, 2])
        self.refused(75, r"GPU 0 has 5 GiB .* the other devices have less", "run", "-m", "8G", "true")

    def test_equal_ones_by_their_jobs(self):
        self.cards("8G", 3)
        self.assertEqual([self.place() for _ in range(3)], [0, 1, 2])

    def test_a_card_by_index_or_uuid(self):
        self.cards("16G,8G")
        uuids = self.uuids()
        for name in ("1", uuids[1], uuids[1][:10]):
            self.assertEqual(self.place("-m", "1G", "--device", name), 1, name)
        self.refused(125, "8 GiB", "run", "-m", "8G", "--device", "1", "true")
        self.refused(125, "no device here", "run", "--device", "2", "true")

    def test_a_percentage_is_of_each_card(self):
        self.cards("16G,8G")
        self.assertEqual([self.place("-m", "80%"), self.place("-m", "80%")], [0, 1])
        self.assertEqual([self.device(n)["quota_bytes"] for n in ("job1", "job2")], [16 * GIB * 80 // 100, 8 * GIB * 80 // 100])

    def test_a_job_waits_for_one_card_while_another_gets_the_other(self):
        self.cards("8G", 2)
        self.place("-m", "6G", "--device", "0")
        waiting = self.start("run", "-n", "waits", "-m", "6G", "--device", "0", "--wait", "true")
        wait_for(lambda: self.jobs().get("waits"), "the job that waits")
        self.assertEqual(self.place("-m", "6G"), 1)
        self.berth("kill", "job1")
        self.assertEqual(self.finish(waiting)[0], 0)


class Views(Cards):
    def test_any_number_of_cards(self):
        for count in (1, 2, 8, 16):
            with self.subTest(count=count):
                self.cards("4G", count)
                self.environment["BERTH_SIM_DIR"] = f"{self.folder}/sim{count}"
                self.environment["BERTH_SOCKET"] = self.socket = f"{self.folder}/{count}.sock"
                devices = self.json("gpus")["devices"]
                self.assertEqual([d["index"] for d in devices], list(range(count)))
                self.assertEqual(len({d["uuid"] for d in devices}), count)
                jobs = [self.guest("start(); say(n=devices(), u=uuid()); hold()", "-m", "1G", "-n", f"on{i}") for i in range(count)]
                seen = [self.line(job) for job in jobs]
                self.assertEqual([said["n"] for said in seen], [1] * count)
                self.assertEqual({said["u"] for said in seen}, {d["uuid"] for d in devices}, "one job on each")
                shown = self.jobs()
                self.assertEqual({shown[f"on{i}"]["devices"][0]["uuid"] for i in range(count)}, {d["uuid"] for d in devices})
                gpus = self.berth("gpus")[1]
                self.assertEqual(len([line for line in gpus.splitlines() if "berth simulated GPU" in line]), count)
                self.assertRegex(gpus, rf"(?m)^ *{count - 1}  berth simulated GPU +4 GiB")
                text = self.berth("ps")[1]
                self.assertEqual(len([line for line in text.splitlines() if line.startswith("on")]), count)
                self.assertLessEqual(max(map(len, (gpus + text).splitlines())), 80)
                for job in jobs:
                    self.over(job)
                self.end_daemon()

    def test_cards_of_several_kinds_by_name(self):
        self.cards("16G,8G")
        self.assertEqual([(d["name"], d["total_bytes"]) for d in self.json("gpus")["devices"]],
                         [("berth simulated GPU 16 GiB", 16 * GIB), ("berth simulated GPU 8 GiB", 8 * GIB)])


    @unittest.skipUnless(shutil.which("tmux"), "there is no tmux here")
    def test_top_of_sixteen_cards(self):
        self.cards("4G", 16)
        self.json("gpus")
        server = ["tmux", "-S", f"{self.folder}/tmux", "-f", "/dev/null"]
        self.addCleanup(subprocess.run, [*server, "kill-server"], capture_output=True)
        subprocess.run([*server, "new-session", "-d", "-x", "120", "-y", "60", f"{BERTH} top"], env=self.environment, check=True)
        screen = lambda: subprocess.run([*server, "capture-pane", "-p"], capture_output=True, text=True).stdout
        wait_for(lambda: len(re.findall(r"(?m)^ +\d+  \[.*berth simulated GPU", screen())) == 16, "all cards on the screen")


class Sight(Cards):
    def test_neither_memory_nor_processes_of_another_card(self):
        self.cards("8G", 2)
        look = "start(); r = alloc(GIB)[0]; say(me=os.getpid()); sys.stdin.readline(); say(i=info(), n=[nvml(0), nvml(1)], u=uuid()); hold()"
        one, other = (self.guest(look, "-m", "4G", "-n", name) for name in ("one", "other"))
        pids = [self.line(process)["me"] for process in (one, other)]
        cards = [self.device(name)["index"] for name in ("one", "other")]
        self.assertEqual(sorted(cards), [0, 1])
        for process, pid, card in zip((one, other), pids, cards):
            said = self.ask(process)
            self.assertEqual(said["u"], self.uuids()[card])
            self.assertEqual(said["i"], [0, 3 * GIB - CONTEXT, 4 * GIB])
            self.assertEqual((said["n"][card]["pids"], said["n"][card]["used"]), ([pid], GIB + CONTEXT))
            self.assertEqual((said["n"][1 - card]["pids"], said["n"][1 - card]["free"]), ([], 0), "nothing for it there")
            self.over(process)

    def test_what_the_user_chose_stays(self):
        self.cards("8G", 2)
        script = "init(); say(v=os.environ.get('CUDA_VISIBLE_DEVICES'), n=devices(), u=uuid())"
        uuids = self.uuids()
        self.environment["CUDA_VISIBLE_DEVICES"] = "1"
        self.assertEqual(self.result(script, "-m", "1G"), {"v": "1", "n": 1, "u": uuids[1]})
        self.assertEqual(self.result(script, "-m", "1G", "--device", "0"), {"v": uuids[0], "n": 1, "u": uuids[0]})
        self.environment["CUDA_VISIBLE_DEVICES"] = "1,0"
        said = self.result(script, "-m", "1G")
        self.assertEqual((said["v"], said["n"]), (said["u"], 1))

    def test_alone_on_one_card_nothing_is_set(self):
        self.assertEqual(self.result("say(v=os.environ.get('CUDA_VISIBLE_DEVICES'))", "-m", "1G"), {"v": None})


class Elsewhere(Cards):
    """A program that sees to its devices itself and uses a card where its job has no place."""
    def setUp(self):
        super().setUp()
        self.cards("8G", 2)

    def test_with_a_quota_it_gets_a_context_and_no_memory_there(self):
        process = self.guest("show_all_cards(); say(n=[init(), devices()], here=[start(0), alloc(GIB)[0]], there=[start(1), alloc(1)[0]],"
                             " i=info()[1:]); hold()", "-m", "4G", "-n", "both", "--device", "0")
        said = self.line(process)
        self.assertEqual(said, {"n": [0, 2], "here": [0, 0], "there": [0, 2], "i": [0, 8 * GIB]})
        devices = self.jobs()["both"]["devices"]
        self.assertEqual([(d["index"], d["quota_bytes"], d["used_bytes"]) for d in devices],
                         [(0, 4 * GIB, GIB + CONTEXT), (1, None, CONTEXT)])
        self.assertIn("it was placed on another device", self.events("over_quota")[0]["message"])
        self.over(process)

    def test_without_one_it_may_take_what_nobody_was_promised(self):
        holder = self.guest("start(); say(up=1); hold()", "-m", "6G", "--device", "1")
        self.line(holder)
        process = self.guest("show_all_cards(); say(here=[start(0), alloc(GIB)[0]], there=[start(1), alloc(400 * MIB)[0], alloc(GIB)[0]]); hold()",
                             "-n", "both", "--device", "0")
        self.assertEqual(self.line(process), {"here": [0, 0], "there": [0, 0, 2]})
        self.assertEqual([(d["index"], d["used_bytes"]) for d in self.jobs()["both"]["devices"]],
                         [(0, GIB + CONTEXT), (1, 400 * (1 << 20) + CONTEXT)])
        gpu = self.json("gpus")["devices"][1]
        self.assertEqual([job["name"] for job in gpu["jobs"] if job["quota_bytes"] is None], ["both"])
        for each in (process, holder):
            self.over(each)

    def test_copies_between_cards_are_as_without_us(self):
        script = r"""
show_all_cards()
assert init() == 0
contexts, memory = [], []
for device in (0, 1):
    context = ctypes.c_void_p()
    assert cuda().cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda().cuCtxSetCurrent(context) == 0
    contexts.append(context)
    code, pointer = alloc(MIB)
    assert code == 0 and cuda().cuMemsetD32_v2(ctypes.c_uint64(pointer), device + 5, ctypes.c_size_t(MIB // 4)) == 0
    memory.append(ctypes.c_uint64(pointer))
cuda().cuCtxSetCurrent(contexts[0])
can, word = ctypes.c_int(), ctypes.c_uint()
codes = [cuda().cuDeviceCanAccessPeer(ctypes.byref(can), 0, 1), can.value]
codes.append(cuda().cuMemcpyPeer(memory[0], contexts[0], memory[1], contexts[1], ctypes.c_size_t(MIB)))
codes += [cuda().cuCtxSynchronize(), cuda().cuMemcpyDtoH_v2(ctypes.byref(word), memory[0], ctypes.c_size_t(4)), word.value]
codes += [cuda().cuCtxEnablePeerAccess(contexts[1], 0) for _ in range(2)]
codes += [cuda().cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], ctypes.c_size_t(MIB), None)]
codes += [cuda().cuCtxSynchronize()] + [cuda().cuCtxDisablePeerAccess(contexts[1]) for _ in range(2)]
say(codes=codes)
"""
        alone, _ = self.plain(script).communicate(timeout=PATIENCE)
        self.assertEqual(json.loads(alone), {"codes": [0, 1, 0, 0, 0, 6, 0, 704, 0, 0, 0, 705]})
        self.assertEqual(self.result(script, "--device", "0"), json.loads(alone))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
