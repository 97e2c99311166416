#!/usr/bin/env python3
"""Compute modes and, where there are several GPUs, placement, peer copies and NVML views, on the real driver. Changes no setting: what
an exclusive or prohibited card answers is only seen where somebody has set one so; berth's own modes are tried anyway."""
import json
import os
import subprocess
import sys
import tempfile

from common import BERTH, WORK, finish, start

bad = 0


def check(what, good, detail=""):
    global bad
    bad += not good
    print(f"{'ok  ' if good else 'BAD '} {what} {detail}", flush=True)


# The guest of the system tests: the driver by ctypes.
GUEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/system/guest.py")


def guest(script, berth=None, env=None):
    code, out, err = finish(start([sys.executable, GUEST, script], berth, env))
    if code or not out:
        return {"fault": f"exit {code}: {err[-300:]}"}
    return json.loads(out.splitlines()[-1])


def with_config(text):
    """The environment of another daemon, started by the first job, with such a configuration."""
    folder = tempfile.mkdtemp(dir=WORK)
    with open(f"{folder}/berth.toml", "w") as file:
        file.write(text)
    return {"BERTH_SOCKET": f"{folder}/s", "BERTH_CONFIG": f"{folder}/berth.toml"}


def stop(env):
    subprocess.run([sys.executable, "-c", "import os, signal, socket, struct, sys\n"
                    "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(sys.argv[1])\n"
                    "os.kill(struct.unpack('3i', s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0], signal.SIGTERM)",
                    env["BERTH_SOCKET"]])


LOOK = "init(); say(a=[attribute(20, i) for i in range(devices())], n=nvml()['mode'], c=start(), d=[create(), create()])"
plain, shared = guest(LOOK), guest(LOOK, [])
print("plain driver: compute modes", plain.get("a"), "by NVML", plain.get("n"), "context", plain.get("c"), "two more", plain.get("d"))
check("driver and NVML say the same, and a job on a card as it is sees the same",
      plain.get("a", [None])[0] == plain.get("n") and shared.get("n") is not None and shared.get("c") == plain.get("c"), str(shared))
if plain.get("n"):
    print("the card is not in default mode: what a second process gets from the plain driver:",
          guest("import subprocess; start(); say(second=json.loads(subprocess.run([sys.executable, sys.argv[0], 'say(c=start())'],"
                " capture_output=True, text=True).stdout))"))
else:
    env = with_config('[device]\ncompute_mode = "exclusive"\n')
    second = ("import subprocess; a = [start(), attribute(20), nvml()['mode']]; run = lambda: json.loads(subprocess.run([sys.executable,"
              " sys.argv[0], 'say(c=start())'], capture_output=True, text=True).stdout)['c']; b = run();"
              " cuda().cuDevicePrimaryCtxRelease_v2(0); say(a=a, second=b, after=run())")
    said = guest(second, ["-m", "10%"], env)
    check("exclusive by configuration: shown, a second process gets 46, and the device once it is free",
          said == {"a": [0, 3, 3], "second": 46, "after": 0}, str(said))
    smi = finish(start(["nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader"], [], env))
    check("nvidia-smi inside the job shows it", smi[0] == 0 and "Exclusive_Process" in smi[1], smi[1].strip() + smi[2][-200:])
    torch = finish(start([sys.executable, "-c", "import subprocess, sys, torch; torch.zeros(1, device='cuda'); r = subprocess.run([sys.executable,"
                          " '-c', 'import torch; torch.zeros(1, device=\"cuda\")'], capture_output=True, text=True);"
                          " print(r.returncode, r.stderr.strip().splitlines()[-1] if r.stderr else '')"], [], env))
    check("PyTorch in a second process raises its own error", torch[0] == 0 and torch[1].startswith("1 ") and "unavailable" in torch[1], torch[1].strip() or torch[2][-200:])
    stop(env)
    env = with_config('[device]\ncompute_mode = "prohibited"\n')
    code, _, err = finish(start(["true"], [], env))
    check("prohibited by configuration: no job", code == 75 and "compute mode prohibited" in err, err.strip())
    stop(env)

cards = json.loads(subprocess.run([BERTH, "gpus", "--json"], capture_output=True, text=True).stdout)["devices"]
if len(cards) > 1:
    held = start([sys.executable, GUEST, "start(); say(u=uuid()); hold()"], ["-m", "50%", "-n", "first"])
    first = json.loads(held.stdout.readline())["u"]
    said = guest("init(); say(u=uuid(), n=devices(), m=[nvml(i)['pids'] for i in range(2)], me=os.getpid(), c=start())", ["-m", "50%"])
    check("a second job is placed on another card, and its program sees that one only",
          said.get("n") == 1 and said.get("u") not in (None, first) and said.get("c") == 0, str(said))
    held.kill()
    peers = ("show_all_cards(); init(); can = ctypes.c_int(); c = []\n"
             "for d in (0, 1):\n"
             "    x = ctypes.c_void_p(); assert not cuda().cuDevicePrimaryCtxRetain(ctypes.byref(x), d); cuda().cuCtxSetCurrent(x); c.append((x, ctypes.c_uint64(alloc(MIB)[1])))\n"
             "peer = lambda a, b: cuda().cuMemcpyPeer(c[a][1], c[a][0], c[b][1], c[b][0], ctypes.c_size_t(MIB))\n"
             "say(can=[[cuda().cuDeviceCanAccessPeer(ctypes.byref(can), a, b), can.value] for a in (0, 1) for b in (0, 1)], copy=peer(0, 1),\n"
             "    null=cuda().cuMemcpyPeer(c[0][1], None, c[1][1], c[1][0], ctypes.c_size_t(4)),\n"
             "    enable=[cuda().cuCtxEnablePeerAccess(c[0][0], 0) for _ in range(2)], own=cuda().cuCtxEnablePeerAccess(c[1][0], 0),\n"
             "    disable=[cuda().cuCtxDisablePeerAccess(c[0][0]) for _ in range(2)])")
    alone, inside = guest(peers), guest(peers, [])
    check("peer queries and copies are as without berth", alone == inside and "can" in alone, f"{alone} {inside}")
else:
    print("one GPU here: placement and peers are not tried")
print("FAILED" if bad else "all good")
raise SystemExit(bad != 0)
