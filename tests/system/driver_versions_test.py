#!/usr/bin/env python3
"""Drivers that are not the one of our list: older, newer, one that hands on to another, none of this machine's kind. Every guest
here is under a time limit (PATIENCE): rows B28 and B29 are about programs that hang."""
import json
import os
import sys
import unittest

from cli_case import BUILD, GIB, PATIENCE, wait_for
from guest_case import MIB, GuestCase

NOT_SUPPORTED = 801
DRIVERS = f"{BUILD}/tests/drivers"
ASK = ("def ask(name, version, form='cuGetProcAddress_v2'):\n"
       "    p, s = ctypes.c_void_p(), ctypes.c_int()\n"
       "    more = () if form == 'cuGetProcAddress' else (ctypes.byref(s),)\n"
       "    r = getattr(cuda(), form)(name.encode(), ctypes.byref(p), version, ctypes.c_uint64(0), *more)\n"
       "    return r, p.value\n")


class DriverVersions(GuestCase):
    def use(self, kind):
        path = f"{DRIVERS}/{kind}/libcuda.so.1"
        if not os.path.exists(path):
            self.skipTest(f"there is no {kind} driver on this machine")
        self.environment["BERTH_DRIVER"] = path

    def doctor(self):
        code, output, errors = self.berth("doctor", "--json")
        self.assertEqual(errors, "")
        return {check["name"]: check for check in json.loads(output)["checks"]}["driver functions"]

    def test_B28_B29_a_program_starts_ends_and_is_held_on_every_driver(self):
        for kind in ("older", "newer", "thin"):
            with self.subTest(kind):
                self.use(kind)
                said = self.result("say(s=start(), total=info()[2], d=device_total(), one=alloc(GIB)[0], over=alloc(4 * GIB)[0], "
                                   "n=nvml()['total'])", "-m", "4G")
                self.assertEqual(said, {"s": 0, "total": 4 * GIB, "d": 4 * GIB, "one": 0, "over": 2, "n": 4 * GIB})

    def test_an_older_driver_lacks_functions(self):
        self.use("older")
        said = self.result("lib = ctypes.c_void_p(); m = ctypes.c_void_p(); v = ctypes.c_int(); start()\n"
                           "cuda().cuDriverGetVersion(ctypes.byref(v))\n"
                           "say(version=v.value, library=cuda().cuLibraryLoadData(ctypes.byref(lib), b'', 0, 0, 0, 0, 0, 0), "
                           "multicast=cuda().cuMulticastCreate(ctypes.byref(m), 0), id=cuda().cuCtxGetId(0, ctypes.byref(m)), "
                           "there=hasattr(cuda(), 'cuMulticastCreate'))", "-m", "4G")
        self.assertEqual(said, {"version": 11080, "library": NOT_SUPPORTED, "multicast": NOT_SUPPORTED, "id": NOT_SUPPORTED, "there": True})
        attached = self.events("client_attached")[-1]["fields"]
        self.assertEqual(attached["unknown_symbols"], 0)
        self.assertGreater(attached["missing_symbols"], 100)
        check = self.doctor()
        self.assertEqual(check["result"], "ok")
        self.assertRegex(check["found"], "the driver is older and lacks cuCheckpointProcess")

    def test_an_older_driver_answers_lookups_itself(self):
        """The first form of cuGetProcAddress, all that a program of then knows; what it hands out is counted."""
        self.use("older")
        look = ASK + ("start()\n"
                      "r, p = ask('cuMemAlloc', 11080, 'cuGetProcAddress')\n"
                      "q = ctypes.c_uint64(); f = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(p)\n"
                      "say(r=r, over=f(ctypes.addressof(q), 5 * GIB), later=ask('cuMemAlloc', 12000, 'cuGetProcAddress')[0], "
                      "none=ask('cuMulticastCreate', 11080, 'cuGetProcAddress'))")
        said = self.result(look, "-m", "4G")
        self.assertEqual(said, {"r": 0, "over": 2, "later": 1, "none": [500, None]})
        alone, _ = self.plain(look).communicate(timeout=PATIENCE)
        self.assertEqual({**json.loads(alone), "over": 2}, said)

    def test_a_newer_driver_is_partly_covered(self):
        """A program that is handed a function which we don't know: an event names it, NVML counts for it, later calls are held."""
        self.use("newer")
        process = self.guest(
            ASK + "start(); r, p = ask('cuMemAlloc', 14000); old, known = ask('cuMemAlloc', 13000)\n"
            "v3 = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(p); q = ctypes.c_uint64()\n"
            "address = lambda name: ctypes.cast(getattr(cuda(), name), ctypes.c_void_p).value\n"
            "say(r=r, known=known == address('cuMemAlloc_v2'), unknown=p != known, took=v3(ctypes.addressof(q), 3 * GIB))\n"
            "sys.stdin.readline(); say(more=alloc(GIB)[0], little=alloc(64 * MIB)[0]); hold()", "-m", "4G", "-n", "modern")
        self.assertEqual(self.line(process), {"r": 0, "known": True, "unknown": True, "took": 0})
        wait_for(lambda: self.device("modern")["used_bytes"] > 3 * GIB, "NVML's word on what was taken")
        self.assertTrue(self.jobs()["modern"]["clients"][0]["partly_covered"])
        self.assertEqual(self.ask(process), {"more": 2, "little": 0})
        self.over(process)
        event, = self.events("partly_covered")
        self.assertEqual((event["job"], event["fields"]["name"]), ("modern", "cuMemAlloc"))
        self.assertGreaterEqual(self.events("client_attached")[-1]["fields"]["unknown_symbols"], 2)
        check = self.doctor()
        self.assertEqual(check["result"], "warning")
        self.assertRegex(check["found"], "the driver is newer and has cuFutureThing, cuMemAlloc_v3")

    def test_functions_that_a_newer_driver_handed_out_before_cuInit_count_too(self):
        """As the CUDA runtime asks: everything first, then cuInit."""
        self.use("newer")
        process = self.guest(ASK + "ask('cuMemAlloc', 14000); start(); say(up=1); hold()", "-m", "4G", "-n", "modern")
        self.line(process)
        self.assertTrue(self.jobs()["modern"]["clients"][0]["partly_covered"])
        self.over(process)

    def test_B25_a_thin_driver_that_asks_for_libcuda_again(self):
        """As in WSL: no recursion, and calls by name are held."""
        self.use("thin")
        said = self.result("say(s=start(), again=init(), r=alloc(3 * GIB)[0], over=alloc(2 * GIB)[0])", "-m", "4G")
        self.assertEqual(said, {"s": 0, "again": 0, "r": 0, "over": 2})

    def test_B27_a_thin_drivers_lookups_are_held(self):
        """Its cuGetProcAddress hands out functions of the driver behind it, which are no exports of its own."""
        self.use("thin")
        process = self.guest(
            ASK + "start(); r, p = ask('cuMemAlloc', 13000); q = ctypes.c_uint64()\n"
            "f = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(p); say(r=r, over=f(ctypes.addressof(q), 5 * GIB)); hold()",
            "-m", "4G", "-n", "thin")
        self.assertEqual(self.line(process), {"r": 0, "over": 2})
        self.over(process)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
