"""A small CUDA driver program in Python, run by the tests as a guest: ctypes on whatever libcuda.so.1 the loader finds.

  guest.py SCRIPT [ARGUMENT...]   runs SCRIPT (Python text) with the names below; say(...) prints one JSON line
"""
import ctypes
import json
import os
import sys
import time

OOM, NOT_INITIALIZED = 2, 3
MIB, GIB = 1 << 20, 1 << 30
_library = None


def cuda():
    global _library
    if _library is None:
        _library = ctypes.CDLL("libcuda.so.1")
    return _library


def init():
    return cuda().cuInit(0)


def start(device=0):
    """cuInit and the primary context of a device, current. Returns the first code that is not 0."""
    context = ctypes.c_void_p()
    return init() or cuda().cuDevicePrimaryCtxRetain(ctypes.byref(context), device) or cuda().cuCtxSetCurrent(context)


def create(device=0):
    """A context of its own: the code."""
    return init() or cuda().cuCtxCreate_v2(ctypes.byref(ctypes.c_void_p()), 0, device)


def show_all_cards():
    """What a program does that sees to its devices itself; before the first call of the driver."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def devices():
    count = ctypes.c_int()
    cuda().cuDeviceGetCount(ctypes.byref(count))
    return count.value


def attribute(which, device=0):
    value = ctypes.c_int(-1)
    return cuda().cuDeviceGetAttribute(ctypes.byref(value), which, device) or value.value


def uuid(device=0):
    raw = ctypes.create_string_buffer(16)
    cuda().cuDeviceGetUuid_v2(raw, device)
    text = raw.raw.hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def alloc(size):
    """(code, pointer)"""
    pointer = ctypes.c_uint64()
    return cuda().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), pointer.value


def free(pointer):
    return cuda().cuMemFree_v2(ctypes.c_uint64(pointer))


def info():
    """(code, free, total)"""
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    return cuda().cuMemGetInfo_v2(ctypes.byref(available), ctypes.byref(total)), available.value, total.value


def device_total():
    total = ctypes.c_size_t()
    cuda().cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    return total.value


class Memory(ctypes.Structure):
    _fields_ = [(n, ctypes.c_ulonglong) for n in ("total", "free", "used")]


class Memory2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def nvml(index=0):
    """What the management library says of its first device, or of the one with that number."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    library.nvmlInit_v2()
    device = ctypes.c_void_p()
    library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    one, two, count, list_, mode = Memory(), Memory2(), ctypes.c_uint(64), (Process * 64)(), ctypes.c_int(-1)
    two.version = ctypes.sizeof(Memory2) | 2 << 24
    library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(one))
    library.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(two))
    library.nvmlDeviceGetComputeMode(device, ctypes.byref(mode))
    library.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), list_)
    return {"total": one.total, "free": one.free, "used": one.used, "total2": two.total, "free2": two.free, "used2": two.used,
            "reserved2": two.reserved, "mode": mode.value, "pids": sorted(list_[i].pid for i in range(count.value)),
            "processes": {list_[i].pid: list_[i].used for i in range(count.value)}}


def say(**values):
    os.write(1, json.dumps(values).encode() + b"\n")  # one write: processes share the pipe


def wait_file(path):
    while not os.path.exists(path):
        time.sleep(0.005)


def hold():
    """Until the test closes our standard input."""
    sys.stdin.read()


if __name__ == "__main__":
    exec(compile(sys.argv[1], "script", "exec"))
