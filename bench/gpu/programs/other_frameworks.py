"""jax | cupy | triton: one deterministic answer each."""
import os
import sys

which = sys.argv[1]
if which == "jax":
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    key = jax.random.PRNGKey(0)
    a = jax.random.normal(key, (1024, 1024))
    print("jax", float(jax.jit(lambda x: jnp.tanh(x @ x).sum())(a)).hex())
elif which == "cupy":
    import cupy
    a = cupy.arange(1 << 22, dtype=cupy.float32)
    print("cupy", float((cupy.sqrt(a) * 2).sum()).hex())
else:
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, z, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(z + offsets, tl.load(x + offsets, mask) + tl.load(y + offsets, mask), mask)

    x = torch.arange(100000, device="cuda", dtype=torch.float32)
    z = torch.empty_like(x)
    add[(triton.cdiv(100000, 1024),)](x, x, z, 100000, BLOCK=1024)
    print("triton", z.double().sum().item())
