// The device code of berth-load, written by hand so that no CUDA compiler is needed. The simulated GPU executes these
// five entries natively, by name; tests load the same text. All are grid-stride.
//   berth_fill(u64 ptr, u64 words, u32 seed)                   words[i] = pattern_word(seed, i), see memory.h
//   berth_check(u64 ptr, u64 words, u32 seed, u64 errors_ptr)  adds the number of words that differ to the u32 *errors
//   berth_spin(u64 nanoseconds)                                every thread is busy for that long
//   berth_wait(u64 flag_ptr, u32 value)                        every thread spins until the word equals value
//   berth_axpy(u64 y, u64 x, f32 a, u64 n)                     y[i] += a * x[i], one fused multiply-add
#pragma once

namespace berth::load {

inline constexpr char kKernelsPtx[] = R"ptx(.version 6.0
.target sm_50
.address_size 64

.visible .entry berth_fill(.param .u64 ptr, .param .u64 words, .param .u32 seed)
{
  .reg .pred %p;
  .reg .b32 %cta, %ctas, %threads, %thread, %seed, %x, %y;
  .reg .b64 %ptr, %words, %i, %stride, %address;
  ld.param.u64 %ptr, [ptr];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  cvta.to.global.u64 %ptr, %ptr;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %ctas, %nctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %cta, %threads, %i;
  mul.wide.u32 %stride, %ctas, %threads;
LOOP:
  setp.ge.u64 %p, %i, %words;
  @%p bra DONE;
  cvt.u32.u64 %x, %i;
  mul.lo.u32 %x, %x, 2654435761;
  xor.b32 %x, %x, %seed;
  shr.u32 %y, %x, 16;
  xor.b32 %x, %x, %y;
  mul.lo.u32 %x, %x, 73244475;
  shr.u32 %y, %x, 16;
  xor.b32 %x, %x, %y;
  shl.b64 %address, %i, 2;
  add.u64 %address, %address, %ptr;
  st.global.u32 [%address], %x;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  ret;
}

.visible .entry berth_check(.param .u64 ptr, .param .u64 words, .param .u32 seed, .param .u64 errors_ptr)
{
  .reg .pred %p;
  .reg .b32 %cta, %ctas, %threads, %thread, %seed, %x, %y, %wrong;
  .reg .b64 %ptr, %words, %i, %stride, %address, %errors;
  ld.param.u64 %ptr, [ptr];
  ld.param.u64 %words, [words];
  ld.param.u32 %seed, [seed];
  ld.param.u64 %errors, [errors_ptr];
  cvta.to.global.u64 %ptr, %ptr;
  cvta.to.global.u64 %errors, %errors;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %ctas, %nctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %cta, %threads, %i;
  mul.wide.u32 %stride, %ctas, %threads;
  mov.u32 %wrong, 0;
LOOP:
  setp.ge.u64 %p, %i, %words;
  @%p bra DONE;
  cvt.u32.u64 %x, %i;
  mul.lo.u32 %x, %x, 2654435761;
  xor.b32 %x, %x, %seed;
  shr.u32 %y, %x, 16;
  xor.b32 %x, %x, %y;
  mul.lo.u32 %x, %x, 73244475;
  shr.u32 %y, %x, 16;
  xor.b32 %x, %x, %y;
  shl.b64 %address, %i, 2;
  add.u64 %address, %address, %ptr;
  ld.global.u32 %y, [%address];
  setp.ne.u32 %p, %x, %y;
  @%p add.u32 %wrong, %wrong, 1;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  setp.eq.u32 %p, %wrong, 0;
  @%p ret;
  red.global.add.u32 [%errors], %wrong;
  ret;
}

.visible .entry berth_spin(.param .u64 nanoseconds)
{
  .reg .pred %p;
  .reg .b64 %length, %start, %now;
  ld.param.u64 %length, [nanoseconds];
  mov.u64 %start, %globaltimer;
LOOP:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %p, %now, %length;
  @%p bra LOOP;
  ret;
}

.visible .entry berth_wait(.param .u64 flag_ptr, .param .u32 value)
{
  .reg .pred %p;
  .reg .b32 %value, %seen;
  .reg .b64 %flag;
  ld.param.u64 %flag, [flag_ptr];
  ld.param.u32 %value, [value];
  cvta.to.global.u64 %flag, %flag;
LOOP:
  ld.volatile.global.u32 %seen, [%flag];
  setp.ne.u32 %p, %seen, %value;
  @%p bra LOOP;
  membar.sys;
  ret;
}

.visible .entry berth_axpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u64 n)
{
  .reg .pred %p;
  .reg .b32 %cta, %ctas, %threads, %thread;
  .reg .f32 %a, %fx, %fy;
  .reg .b64 %x, %y, %n, %i, %stride, %offset, %address;
  ld.param.u64 %y, [y];
  ld.param.u64 %x, [x];
  ld.param.f32 %a, [a];
  ld.param.u64 %n, [n];
  cvta.to.global.u64 %y, %y;
  cvta.to.global.u64 %x, %x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %ctas, %nctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  cvt.u64.u32 %i, %thread;
  mad.wide.u32 %i, %cta, %threads, %i;
  mul.wide.u32 %stride, %ctas, %threads;
LOOP:
  setp.ge.u64 %p, %i, %n;
  @%p bra DONE;
  shl.b64 %offset, %i, 2;
  add.u64 %address, %x, %offset;
  ld.global.f32 %fx, [%address];
  add.u64 %address, %y, %offset;
  ld.global.f32 %fy, [%address];
  fma.rn.f32 %fy, %a, %fx, %fy;
  st.global.f32 [%address], %fy;
  add.u64 %i, %i, %stride;
  bra LOOP;
DONE:
  ret;
}
)ptx";

}  // namespace berth::load
