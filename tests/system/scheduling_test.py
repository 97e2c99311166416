"""GPU time on the simulated GPU as a user meets it: daemon, command, shim, unmodified programs. What is asserted is order,
progress and ratios, never a duration."""
import json
import os
import signal
import sys
import tempfile
import unittest

from cli_case import BUILD, LOAD, PATIENCE, wait_for
from guest_case import GUEST, GuestCase

# A rank: in each round it says "I am here" on one stream and waits on another, in a kernel that spins on the device, until its
# neighbour says so. Ranks whose kernels could not run together would wait for ever.
RANK = r"""
import ctypes
rank, ranks, rounds, folder = int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
assert start() == 0
ptx = open(folder + "/kernels.ptx", "rb").read()
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda().cuModuleLoadData(ctypes.byref(module), ptx) == 0
assert cuda().cuModuleGetFunction(ctypes.byref(kernel), module, b"berth_wait") == 0
code, mine = alloc(4096)
assert code == 0 and cuda().cuMemsetD32_v2(ctypes.c_uint64(mine), 0, ctypes.c_size_t(1024)) == 0
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 64)]
handle = Handle()
assert cuda().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(mine)) == 0
with open(f"{folder}/{rank}.tmp", "wb") as file:
    file.write(bytes(handle))
os.rename(f"{folder}/{rank}.tmp", f"{folder}/{rank}.handle")
other = f"{folder}/{(rank + 1) % ranks}.handle"
while not os.path.exists(other):
    time.sleep(0.01)
neighbour = ctypes.c_uint64()
cuda().cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
assert cuda().cuIpcOpenMemHandle_v2(ctypes.byref(neighbour), Handle.from_buffer_copy(open(other, "rb").read()), 1) == 0
say_stream, wait_stream = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda().cuStreamCreate(ctypes.byref(say_stream), 1) == 0 and cuda().cuStreamCreate(ctypes.byref(wait_stream), 1) == 0
for r in range(rounds):
    flag, one = ctypes.c_uint64(neighbour.value + 4 * (r % 1024)), ctypes.c_uint(r // 1024 + 1)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(flag), ctypes.addressof(one))
    assert cuda().cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, wait_stream, arguments, None) == 0
    assert cuda().cuMemsetD32Async(ctypes.c_uint64(mine + 4 * (r % 1024)), r // 1024 + 1, ctypes.c_size_t(1), say_stream) == 0
    assert cuda().cuStreamSynchronize(wait_stream) == 0
print(rank, flush=True)
hold()
"""

# A captured graph of ten kernels of 1 ms each, launched until the driver launches more than one instance for it: says how many.
LONG_GRAPH = r"""
import ctypes
assert start() == 0
sim = ctypes.CDLL(sys.argv[3])  # the driver itself, which counts its calls; of the same name, so it comes second
sim.berth_sim_calls.restype = ctypes.c_uint64
module, kernel, stream, graph, instance = (ctypes.c_void_p() for _ in range(5))
assert cuda().cuModuleLoadData(ctypes.byref(module), open(sys.argv[2], "rb").read()) == 0
assert cuda().cuModuleGetFunction(ctypes.byref(kernel), module, b"berth_spin") == 0
assert cuda().cuStreamCreate(ctypes.byref(stream), 1) == 0
duration = ctypes.c_uint64(1000000)
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(duration))
assert cuda().cuStreamBeginCapture_v2(stream, 0) == 0
for _ in range(10):
    assert cuda().cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None) == 0
assert cuda().cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
assert cuda().cuGraphInstantiateWithFlags(ctypes.byref(instance), graph, ctypes.c_uint64(0)) == 0
assert cuda().cuGraphDestroy(graph) == 0
launched = 0
while launched < 2:
    before = sim.berth_sim_calls(b"cuGraphLaunch")
    assert cuda().cuGraphLaunch(instance, stream) == 0
    launched = sim.berth_sim_calls(b"cuGraphLaunch") - before
    assert cuda().cuStreamSynchronize(stream) == 0
say(parts=launched)
"""


def write_kernels(folder):
    with open(os.path.join(os.path.dirname(GUEST), "../../tools/load/kernels_ptx.h")) as file:
        text = file.read()
    with open(f"{folder}/kernels.ptx", "w") as file:
        file.write(text.split('R"ptx(')[1].split(')ptx"')[0] + "\0")


class TimeCase(GuestCase):
    def load(self, name, kind, *options, run=()):
        return self.start("run", "-n", name, *run, "--", LOAD, kind, "--json", *options)

    def rows(self, *names):
        """Of jobs that have a process on the GPU by now."""
        jobs = wait_for(lambda: (all_ := self.jobs("-a")) and all(all_.get(n, {}).get("started_at") for n in names) and all_, names)
        return [jobs[name]["devices"][0] for name in names]

    def share(self, name):
        """Over the last second; a job that is alone is not measured: it has all."""
        ratio = self.rows(name)[0]["gpu_share_ratio"]
        return 1 if ratio is None else ratio

    def steps(self, process):
        output, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, errors), (0, ""), output)
        return json.loads(output.splitlines()[-1])["steps_per_s"]


class Scheduling(TimeCase):
    def test_low_work_waits_for_high_work_and_says_for_whom(self):
        self.load("low", "train", "--seconds", "60", run=("-p", "low"))
        high = self.load("serve", "infer", "--seconds", "60", "--rate", "50", run=("-p", "high", "--max-slowdown", "1"))
        low = wait_for(lambda: (row := self.rows("low")[0])["waited_seconds"] > 0.2 and row["held_by"] == "serve" and row, "the low job to wait")
        self.assertIsNotNone(low["window_seconds"])
        self.assertEqual(self.rows("serve")[0]["waited_seconds"], 0)
        self.berth("kill", "serve")
        high.communicate(timeout=PATIENCE)
        wait_for(lambda: self.share("low") > 0.9, "low to have the GPU")

    def test_long_graphs_below_a_high_job_are_launched_in_parts_where_the_settings_say_so(self):
        self.environment["BERTH_CONFIG"] = f"{self.folder}/berth.toml"
        with open(self.environment["BERTH_CONFIG"], "w") as file:
            file.write("[scheduler]\nsplit_graphs = true\n")
        write_kernels(self.folder)
        self.load("serve", "infer", "--seconds", "60", "--rate", "20", run=("-p", "high"))
        low = self.start("run", "-n", "low", "-p", "low", "--", sys.executable, GUEST, LONG_GRAPH, f"{self.folder}/kernels.ptx",
                         f"{BUILD}/lib/berth/sim/libcuda.so.1")
        output, errors = low.communicate(timeout=PATIENCE)
        self.assertEqual((low.returncode, errors), (0, ""), output)
        self.assertIn(json.loads(output)["parts"], range(2, 11))

    def test_weights_divide_the_time(self):
        self.load("heavy", "train", "--seconds", "60", run=("-w", "300"))
        self.load("light", "train", "--seconds", "60", run=("-w", "100"))
        wait_for(lambda: 0.7 < self.share("heavy") < 0.8 and 0.2 < self.share("light") < 0.3, "shares of 3 to 1")

    def test_a_cap_holds_for_a_job_alone(self):  # B42, B45: strict also without a neighbour, with short kernels
        free = self.steps(self.load("free", "train", "--seconds", "3", "--kernel-us", "50"))
        capped = self.steps(self.load("capped", "train", "--seconds", "5", "--kernel-us", "50", run=("--max-share", "20%")))
        self.assertLess(capped, free * 0.35)
        self.assertGreater(capped, free * 0.05)

    def test_a_paused_job_does_no_work_and_goes_on_when_resumed(self):
        self.load("a", "train", "--seconds", "60")
        self.load("b", "train", "--seconds", "60")
        wait_for(lambda: all(row["window_seconds"] for row in self.rows("a", "b")), "both to be tracked")
        self.assertEqual(self.berth("pause", "a")[0], 0)
        wait_for(lambda: self.rows("a")[0]["held_by"] == "paused", "a to be held")
        wait_for(lambda: self.share("a") == 0, "a to use no GPU time")
        memory = self.rows("a")[0]["used_bytes"]
        self.assertGreater(memory, 0)
        wait_for(lambda: self.share("b") > 0.5, "b to have the GPU")
        self.assertEqual(self.jobs("-a")["a"]["state"], "paused")
        self.assertEqual(self.berth("resume", "a")[0], 0)
        wait_for(lambda: self.share("a") > 0.1, "a to go on")
        self.assertEqual(self.rows("a")[0]["used_bytes"], memory)

    def test_the_death_of_a_high_program_frees_the_others(self):
        self.load("low", "train", "--seconds", "120", run=("-p", "low"))
        self.load("high", "train", "--seconds", "120", run=("-p", "high", "--max-slowdown", "1"))
        wait_for(lambda: self.rows("low")[0]["held_by"] == "high", "low to be held")
        os.kill(self.jobs("-a")["high"]["clients"][0]["pid"], signal.SIGKILL)
        wait_for(lambda: self.share("low") > 0.9, "low to have the GPU")

    def test_priority_and_weight_change_while_jobs_run(self):
        self.load("a", "train", "--seconds", "120", run=("-p", "low"))
        self.load("b", "train", "--seconds", "120", run=("-p", "low"))
        wait_for(lambda: all(0.3 < self.share(name) < 0.7 for name in "ab"), "equal shares")
        self.assertEqual(self.berth("set", "a", "-w", "900")[0], 0)
        wait_for(lambda: self.share("a") > 0.75, "a to get nine times as much")
        self.assertEqual(self.berth("set", "b", "-p", "normal")[0], 0)
        wait_for(lambda: self.share("b") > 0.9, "b to come first")
        self.assertEqual(self.rows("a")[0]["held_by"], "b")

    def test_ranks_whose_kernels_wait_for_each_other_progress_beside_a_high_job(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        write_kernels(folder)
        with open(f"{folder}/rank.sh", "w") as file:
            file.write("for rank in 0 1 2 3; do %s %s \"$1\" $rank 4 60 %s & done; wait\n" % (sys.executable, GUEST, folder))
        self.load("serve", "infer", "--seconds", "60", "--rate", "40", run=("-p", "high", "--max-slowdown", "1"))
        ranks = self.start("run", "-n", "ranks", "-p", "low", "--", "bash", f"{folder}/rank.sh", RANK, stdin=None)
        output, errors = ranks.communicate(timeout=PATIENCE)
        self.maxDiff = None
        self.assertEqual((ranks.returncode, errors, sorted(output.replace("\n", ""))), (0, "", ["0", "1", "2", "3"]))


class TwoCards(TimeCase):
    """Each card has gates, turns and priorities of its own."""
    def setUp(self):
        super().setUp()
        self.environment["BERTH_SIM_GPUS"] = "2"

    def on(self, name, card, kind="train", *options, run=()):
        return self.load(name, kind, "--seconds", "120", *options, run=("--device", str(card), *run))

    def test_weights_divide_each_card_by_itself(self):
        self.on("heavy", 0, run=("-w", "300"))
        self.on("light", 0)
        self.on("other", 1)
        self.on("equal", 1)
        wait_for(lambda: 0.7 < self.share("heavy") < 0.8 and 0.2 < self.share("light") < 0.3 and
                 all(0.4 < self.share(name) < 0.6 for name in ("other", "equal")), "3 to 1 on one card, halves on the other")
        self.assertEqual([self.rows(name)[0]["index"] for name in ("heavy", "light", "other", "equal")], [0, 0, 1, 1])

    def test_high_work_holds_nobody_on_another_card(self):
        self.on("low", 1, run=("-p", "low"))
        self.on("held", 0, run=("-p", "low"))
        self.on("high", 0, run=("-p", "high", "--max-slowdown", "1"))
        wait_for(lambda: self.rows("held")[0]["held_by"] == "high", "the low job on its card to be held")
        row = self.rows("low")[0]
        self.assertEqual((row["waited_seconds"], row["held_by"], row["gpu_share_ratio"]), (0, None, None), "alone on its card")

    def test_who_computes_on_a_card_that_is_not_its_place_is_held_there_too(self):
        visitor = r"""
show_all_cards()
assert start(0) == 0
folder = sys.argv[2]
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda().cuModuleLoadData(ctypes.byref(module), open(folder + "/kernels.ptx", "rb").read()) == 0
assert cuda().cuModuleGetFunction(ctypes.byref(kernel), module, b"berth_spin") == 0
stream, ns = ctypes.c_void_p(), ctypes.c_uint64(200_000)
assert cuda().cuStreamCreate(ctypes.byref(stream), 1) == 0
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(ns))
say(up=1)
while True:
    for _ in range(20):
        assert cuda().cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, None) == 0
    assert cuda().cuStreamSynchronize(stream) == 0
"""
        folder = tempfile.mkdtemp(dir=self.folder)
        write_kernels(folder)
        self.on("high", 0, run=("-p", "high", "--max-slowdown", "1"))
        self.rows("high")
        self.line(self.start("run", "-n", "visitor", "-p", "low", "--device", "1", "--", sys.executable, GUEST, visitor, folder))
        there = wait_for(lambda: [d for d in self.jobs()["visitor"]["devices"] if d["index"] == 0 and d["held_by"] == "high"],
                         "the visitor to be held by the high job")
        self.assertGreater(there[0]["used_bytes"], 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
