#!/usr/bin/env python3
"""Rows of the field reports (docs/field-reports.md) that concern memory and have no better place. Programs under `berth run` on the
simulated GPU, with the library that ships."""
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import unittest

from cli_case import BUILD, GIB, PATIENCE, wait_for
from guest_case import GUEST, MIB, PROGRAMS, GuestCase

CONTEXT = 518 * MIB  # of the simulated GPU


class Memory(GuestCase):
    def program(self, *arguments, options=()):
        code, output, errors = self.berth("run", *options, "--", *arguments)
        self.assertEqual((code, errors), (0, ""), output)
        return json.loads(output.splitlines()[-1])

    def test_B2_modules_and_stacks_are_counted(self):
        """An image of 200 MB and a stack of 8 KiB a thread: the count is what NVML says, and counts against the quota."""
        process = self.guest(
            "start(); alloc(GIB); image = b'.version 8.0\\n' + b'/' * 200_000_000 + b'\\0'; m = ctypes.c_void_p()\n"
            "say(module=cuda().cuModuleLoadData(ctypes.byref(m), image)); sys.stdin.readline()\n"
            "say(stack=cuda().cuCtxSetLimit(0, ctypes.c_size_t(8192))); sys.stdin.readline()\n"
            "say(more=alloc(GIB)[0], still=alloc(64 * MIB)[0]); sys.stdin.readline()\n"
            "say(deep=cuda().cuCtxSetLimit(0, ctypes.c_size_t(100 << 10)), gone=cuda().cuModuleUnload(m)); hold()",
            "-m", "4G", "-n", "big")
        pid = None

        def counted_as_nvml():
            device = self.device("big")
            return device["used_bytes"] == self.card()["processes"].get(str(pid)) and device
        self.assertEqual(self.line(process), {"module": 0})
        pid = self.jobs()["big"]["clients"][0]["pid"]
        device = wait_for(counted_as_nvml, "the module on the account")
        self.assertGreater(device["overhead_bytes"], CONTEXT + 200_000_000)
        self.assertEqual(self.ask(process), {"stack": 0})
        device = wait_for(counted_as_nvml, "the stacks on the account")
        stacks = (8192 - 1024) * 132 * 2048
        self.assertGreater(device["overhead_bytes"], CONTEXT + 200_000_000 + stacks)
        self.assertEqual(self.ask(process), {"more": 2, "still": 0})
        self.assertEqual(self.ask(process), {"deep": 2, "gone": 0})
        wait_for(lambda: self.device("big")["overhead_bytes"] < CONTEXT + 200_000_000 + stacks, "the module's end on the account")
        wait_for(counted_as_nvml, "the count")
        self.over(process)

    def test_B11_one_program_after_another_sees_its_own_use_alone(self):
        process = self.guest("import subprocess\nfor _ in range(2): subprocess.run([sys.executable, sys.argv[0], "
                             "'start(); a = info(); alloc(GIB); say(before=a, after=info())'], check=True)", "-m", "4G")
        said = [self.line(process), self.line(process)]
        for views in said:
            self.assertEqual((views["before"][2], views["after"][2]), (4 * GIB, 4 * GIB))
            self.assertLess(views["before"][1], 4 * GIB)
            self.assertEqual(views["before"][1] - views["after"][1], GIB)
        self.assertEqual(said[0], said[1])
        self.over(process)

    def test_B13_stream_ordered_memory_of_a_program_with_a_runtime_of_its_own(self):
        process = self.start("run", "-m", "4G", "-n", "native", "--", f"{PROGRAMS}/async_pool", stdin=subprocess.PIPE)
        said = self.line(process)
        self.assertEqual((said["result"], said["total"], said["freed"], said["again"]), (2, 4 * GIB, 0, 0))
        self.assertEqual(said["pieces"], (4 * GIB - CONTEXT) // (64 * MIB))
        self.assertLess(said["free"], 64 * MIB)
        self.over(process)

    def test_B13_the_pool_never_grows_past_the_quota(self):
        said = self.program(f"{PROGRAMS}/async_pool", options=("-m", "4G"))
        self.assertLessEqual(said["most"], 4 * GIB - CONTEXT)

    def test_B14_memory_taken_past_the_library_is_charged(self):
        """By an attached program that also uses the device by other means (Vulkan, OpenGL): NVML tells, later calls are refused."""
        sim = f"{BUILD}/lib/berth/sim/libcuda.so.1"
        process = self.guest(f"start(); alloc(GIB); past = ctypes.CDLL({sim!r}); p = ctypes.c_uint64()\n"
                             "say(up=1); sys.stdin.readline(); say(r=past.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(2 * GIB))); sys.stdin.readline()\n"
                             "say(more=alloc(GIB)[0], free=info()[1]); sys.stdin.readline()\n"
                             "past.cuMemFree_v2(p); sys.stdin.readline(); say(more=alloc(GIB)[0]); hold()", "-m", "4G", "-n", "game")
        self.line(process)
        # A reading that had all of that in it: what comes after has no announcement to explain it.
        wait_for(lambda: self.json("gpus")["devices"][0]["used_bytes"] >= GIB + CONTEXT, "a reading of NVML")
        self.assertEqual(self.ask(process), {"r": 0})
        wait_for(lambda: self.device("game")["used_bytes"] == 3 * GIB + CONTEXT, "NVML's word on what was taken")
        said = self.ask(process)
        self.assertEqual((said["more"], said["free"]), (2, GIB - CONTEXT))
        process.stdin.write("go\n")
        process.stdin.flush()
        wait_for(lambda: self.device("game")["used_bytes"] == GIB + CONTEXT, "NVML's word on what was given back")
        self.assertEqual(self.ask(process), {"more": 0})
        drift, = self.events("drift")
        self.assertEqual((drift["job"], drift["fields"]["nvml_bytes"]), ("game", 3 * GIB + CONTEXT))
        self.over(process)

    def test_B14_a_process_that_escapes_is_charged_to_its_job(self):
        sim = f"{BUILD}/lib/berth/sim"
        process = self.guest("import subprocess\nkid = subprocess.Popen([sys.executable, sys.argv[0], 'start(); alloc(2 * GIB); say(up=1); hold()'], "
                             f"env={{**os.environ, 'LD_LIBRARY_PATH': {sim!r}}}, stdin=subprocess.PIPE)\n"
                             "start(); say(here=1); sys.stdin.readline(); say(more=alloc(2 * GIB)[0], less=alloc(128 * MIB)[0]); kid.communicate(b'')",
                             "-m", "4G", "-n", "leaky")
        self.assertEqual({tuple(self.line(process)) for _ in range(2)}, {("up",), ("here",)})
        wait_for(lambda: self.device("leaky")["used_bytes"] == 2 * GIB + 2 * CONTEXT, "the escaped process on the account")
        self.assertEqual(sorted(c["state"] for c in self.jobs()["leaky"]["clients"]), ["attached", "escaped"])
        self.assertEqual(self.ask(process), {"more": 2, "less": 0})
        output, errors = process.communicate("", timeout=PATIENCE)
        self.assertRegex(errors, r"\Aberth: [^\n]*uses the GPU without berth[^\n]*\n\Z")

    def test_B21_peers_and_multicast_answer_as_without_us(self):
        self.environment["BERTH_SIM_GPUS"] = "2"
        look = ("show_all_cards(); start(); v = ctypes.c_int(); n = ctypes.c_size_t(); h = ctypes.c_uint64(); d = (ctypes.c_uint64 * 8)(2, 2 * MIB)\n"
                "say(peer=[[cuda().cuDeviceCanAccessPeer(ctypes.byref(v), a, b), v.value] for a in (0, 1) for b in (0, 1)],\n"
                "    p2p=[[cuda().cuDeviceGetP2PAttribute(ctypes.byref(v), k, 0, 1), v.value] for k in range(1, 6)],\n"
                "    multicast=[cuda().cuMulticastGetGranularity(ctypes.byref(n), d, 0), cuda().cuMulticastCreate(ctypes.byref(h), d)],\n"
                "    attribute=[cuda().cuDeviceGetAttribute(ctypes.byref(v), 132, 0), v.value])")
        alone, _ = self.plain(look).communicate(timeout=PATIENCE)
        self.assertEqual(self.result(look), json.loads(alone))

    def test_B30_no_quota_is_no_quota(self):
        for options in ((), ("-m", ""), ("-m", "0"), ("-m", "0m"), ("-m", "0%")):
            with self.subTest(options):
                self.assertEqual(self.result("start(); say(i=info()[2], d=device_total(), n=nvml()['total2'], r=alloc(14 * GIB)[0])", *options),
                                 {"i": 16 * GIB, "d": 16 * GIB, "n": 16 * GIB + 644939776, "r": 0})

    def test_B57_nobody_is_ended_for_being_over_quota(self):
        """We offer no such thing (only --strict, for a process that escapes: cli_isolate)."""
        self.assertEqual(self.result("start(); codes = {alloc(GIB)[0] for _ in range(100)}; say(codes=sorted(codes))", "-m", "4G"),
                         {"codes": [0, 2]})


class Symbols(GuestCase):
    def test_B24_an_odd_place_and_a_library_that_looks_up_its_own_name(self):
        place = f"{self.folder}/an odd pläce/cu$dir"
        shutil.copytree(f"{BUILD}/bin", f"{place}/bin", ignore=lambda _, names: set(names) - {"berth", "berthd"})
        shutil.copytree(f"{BUILD}/lib/berth", f"{place}/lib/berth")
        script = f"start(); say(cudnn=ctypes.CDLL({PROGRAMS + '/cudnn_front.so'!r}).cudnnCreate(None), over=alloc(5 * GIB)[0])"
        process = self.start("run", "-m", "4G", "--", sys.executable, GUEST, script, program=f"{place}/bin/berth")
        code, output, errors = self.finish(process)
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(json.loads(output), {"cudnn": 42, "over": 2})

    def test_B25_every_way_to_look_up_leads_to_the_same_function(self):
        """Also: the driver used before main, after main and at a thread's end, by a program that needs it by name."""
        for options, total in (((), 16 * GIB), (("-m", "4G"), 4 * GIB)):
            code, output, errors = self.berth("run", *options, "--", f"{PROGRAMS}/linked")
            self.assertEqual((code, errors), (0, ""), output)
            self.assertEqual(json.loads(output), {"early": 0, "same": 5, "again": 0, "total": total})

    def test_B37_preloaded_without_a_driver_it_is_silent(self):
        for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
            env = {**self.environment, "LD_PRELOAD": f"{BUILD}/lib/berth/shim/{library}", "BERTH_DRIVER": "/nonexistent/libcuda.so.1"}
            self.assertEqual(self.finish(self.start("-c", "echo fine; exit 3", program="/bin/bash", env=env)), (3, "fine\n", ""))
            self.assertEqual(self.finish(self.start(program="/bin/true", env=env)), (0, "", ""))

    def test_B37_without_a_driver_a_program_is_told_so_by_the_drivers_own_codes(self):
        env = {**self.environment, "LD_LIBRARY_PATH": f"{BUILD}/lib/berth/shim", "BERTH_DRIVER": "/nonexistent/libcuda.so.1"}
        script = "say(init=init(), nvml=ctypes.CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
        code, output, errors = self.finish(self.start(GUEST, script, program=sys.executable, env=env))
        self.assertEqual((code, errors), (0, ""))
        self.assertEqual(json.loads(output), {"init": 100, "nvml": 12})  # no device, no library


class Identity(GuestCase):
    def uuid_of(self, index):
        return self.json("gpus")["devices"][index]["uuid"]

    def test_B48_the_job_is_on_the_device_that_the_program_sees(self):
        self.environment["BERTH_SIM_GPUS"] = "2"
        uuids = [self.uuid_of(0), self.uuid_of(1)]
        orders = {"driver first": "start(); r = alloc(GIB)[0]; n = [nvml(0), nvml(1)]",
                  "management library first": "nvml(0); start(); r = alloc(GIB)[0]; n = [nvml(0), nvml(1)]"}
        for visible, cards in (("0", {0}), ("1", {1}), ("1,0", {0, 1}), (uuids[1], {1}), (uuids[1][:12], {1}), (None, {0, 1})):
            for order, script in orders.items():
                with self.subTest(visible=visible, order=order):
                    self.environment.pop("CUDA_VISIBLE_DEVICES", None)
                    if visible:
                        self.environment["CUDA_VISIBLE_DEVICES"] = visible
                    process = self.guest(script + "; say(r=r, uuid=uuid(), i=info(), n=n, over=alloc(4 * GIB)[0], me=os.getpid()); hold()",
                                         "-m", "4G", "-n", "chosen")
                    said = self.line(process)
                    device = self.device("chosen")
                    index = device["index"]
                    self.assertIn(index, cards)
                    self.assertEqual((said["r"], said["uuid"], said["i"][2], said["over"]), (0, uuids[index], 4 * GIB, 2))
                    self.assertEqual((said["n"][index]["total"], said["n"][index]["pids"]), (4 * GIB, [said["me"]]))
                    self.assertEqual(device["used_bytes"], GIB + CONTEXT)
                    self.over(process)

    def test_B49_children_in_sessions_of_their_own_keep_the_quota(self):
        look = "start(); say(t=info()[2], over=alloc(5 * GIB)[0])"
        for before in (["setsid", "-w"], ["sh", "-c", '(setsid "$@" <&- &)', "sh"], ["nohup"], ["env", "-u", "BERTH_SOCKET"]):
            with self.subTest(before[0]):
                # env -u: the socket is then looked for in the usual places
                env = {**self.environment, "XDG_RUNTIME_DIR": self.folder} if before[0] == "env" else self.environment
                if before[0] == "env":
                    os.mkdir(f"{self.folder}/berth", 0o700)
                    os.symlink(self.socket, f"{self.folder}/berth/berth.sock")
                code, output, errors = self.berth("run", "-m", "4G", "--", *before, sys.executable, GUEST, look, env=env)
                self.assertEqual((code, json.loads(output)), (0, {"t": 4 * GIB, "over": 2}), errors)

    def test_B51_a_stranger_on_the_device_raises_an_event(self):
        """A container in a container, a program of somebody without berth."""
        holder = self.guest("start(); say(up=1); hold()", "-m", "4G", "-n", "ours")
        self.line(holder)
        stranger = self.plain("start(); alloc(3 * GIB); say(me=os.getpid()); hold()")
        pid = json.loads(stranger.stdout.readline())["me"]
        event, = wait_for(lambda: self.events("unmanaged_process"), "the event")
        self.assertEqual((event["fields"]["pid"], event["job"]), (pid, None))
        gpu = wait_for(lambda: [g for g in self.json("gpus")["devices"] if g["unmanaged"]], "the stranger among the unmanaged")[0]
        self.assertEqual([(u["pid"], u["used_bytes"]) for u in gpu["unmanaged"]], [(pid, 3 * GIB + CONTEXT)])
        self.refused(75, "processes of no job 3.5 GiB", "run", "-m", "9G", "true")
        stranger.communicate("", timeout=PATIENCE)
        wait_for(lambda: self.berth("run", "-m", "9G", "true")[0] == 0, "room after the stranger's end")
        self.over(holder)

    def test_B52_processes_of_another_pid_namespace_are_listed(self):
        if subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode:
            self.skipTest("no pid namespaces here")
        process = self.start("run", "-m", "4G", "-n", "boxed", "--", "unshare", "--pid", "--fork", "--mount-proc", sys.executable, GUEST,
                             "start(); alloc(GIB); say(me=os.getpid(), t=info()[2]); hold()", stdin=subprocess.PIPE)
        self.assertEqual(self.line(process), {"me": 1, "t": 4 * GIB})
        client, = self.jobs()["boxed"]["clients"]
        self.assertNotEqual(client["pid"], 1)
        self.assertEqual((client["state"], client["devices"][0]["used_bytes"]), ("attached", GIB + CONTEXT))
        self.assertEqual(self.card()["processes"], {str(client["pid"]): GIB + CONTEXT})
        self.assertRegex(self.berth("ps")[1], rf"(?m)^  {client['pid']} +python3\S* +1\.5 GiB")
        self.over(process)

    def test_B53_a_killed_program_is_gone_from_ps_when_the_driver_lets_go(self):
        self.environment["BERTH_SIM_EXIT_MS"] = "700"
        keeper = self.guest("start(); say(up=1); hold()", "-m", "4G", "-n", "job")
        self.line(keeper)
        pid = self.jobs()["job"]["clients"][0]["pid"]
        doomed = self.guest("start(); alloc(2 * GIB); say(me=os.getpid()); hold()", "-m", "4G", "-n", "doomed")
        os.kill(self.line(doomed)["me"], signal.SIGKILL)
        # While the driver holds on to it, it is on the account as leaving; never as attached; and then not at all.
        states, amounts = [], []

        def gone():
            device = self.device("doomed")
            amounts.append((device["used_bytes"], device["leaving_bytes"]))
            states.append([c["state"] for c in self.jobs("-a")["doomed"]["clients"]])
            return not device["used_bytes"]
        self.finish(doomed)
        wait_for(gone, "the end of its memory")
        self.assertLessEqual({state for each in states for state in each}, {"leaving"})
        self.assertEqual({used - leaving for used, leaving in amounts}, {0})
        self.assertEqual(amounts[0][0], 2 * GIB + CONTEXT)
        self.assertNotIn("doomed", self.jobs())
        self.assertEqual(self.jobs()["job"]["clients"][0]["pid"], pid)
        self.over(keeper)

    def test_B53_a_daemon_that_is_not_ours_leaves_the_program_alone(self):
        """Another major, noise, nothing, a closed door: the program goes on as if there were no berth, and says nothing."""
        header = struct.Struct("<IHHII")
        refusal = header.pack(0x48545242, 1, 3, 24, 1) + struct.pack("<II", 1, 9)
        for answer in (refusal, header.pack(0x48545242, 2, 2, 40, 1) + bytes(24), b"noise", b""):
            with self.subTest(answer), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(self.socket)
                listener.listen(8)
                env = {**self.environment, "LD_LIBRARY_PATH": f"{BUILD}/lib/berth/shim"}
                process = self.start(GUEST, "say(s=start(), r=alloc(3 * GIB)[0], t=info()[2])", program=sys.executable, env=env)
                peer, _ = listener.accept()
                with peer:
                    hello = peer.recv(65536)
                    if answer:
                        peer.send(answer)
                self.assertEqual(header.unpack(hello[:16])[:3], (0x48545242, 1, 1))
                code, output, errors = self.finish(process)
                self.assertEqual((code, json.loads(output), errors), (0, {"s": 0, "r": 0, "t": 16 * GIB}, ""))
            os.unlink(self.socket)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
