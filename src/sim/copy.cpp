// The copy calls. A copy that names pageable host memory has been done, or has taken its source along, when it returns.
#include "sim/copy.h"

#include <cstring>

#include "sim/array.h"
#include "sim/call.h"

using namespace berth::sim;

namespace {

constexpr uint64_t kStagedBytes = 1 << 20;

uint64_t number(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

bool pageable(const Side& side) { return !side.device && !find_range(side.address); }

// What a call does after its work: nothing, or wait for it.
enum class Wait { no, if_pageable, always };

CUresult start(Call& call, Stream* stream, CUresult made, CopyWork work, Wait wait) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (made) return made;
  if (!work.width || !work.height || !work.depth) return CUDA_SUCCESS;
  if (stream->context->error) return stream->context->error;
  if (wait == Wait::if_pageable && !stream->capture) {
    uint64_t bytes = work.width * work.height * work.depth;
    if (pageable(work.to))
      wait = Wait::always;
    else if (pageable(work.from) && (bytes > kStagedBytes || work.height * work.depth > 1))
      wait = Wait::always;
    else if (pageable(work.from)) {
      const auto* data = reinterpret_cast<const std::byte*>(work.from.address);
      work.staged = std::make_shared<std::vector<std::byte>>(data, data + bytes);
    }
  }
  return wait == Wait::always && !stream->capture ? run_work(call, *stream, std::move(work))
                                                  : submit_work(*stream, std::move(work));
}

CUresult linear(Call& call, Stream* stream, uint64_t to, Place to_place, uint64_t from, Place from_place,
                uint64_t bytes, Wait wait) {
  CopyWork work{};
  CUresult made = make_linear_copy(to, to_place, from, from_place, bytes, &work);
  return start(call, stream, made, std::move(work), wait);
}

// Needs no peer access: without it the real driver goes through the host.
CUresult peer(Call& call, Stream* stream, uint64_t to, CUcontext to_context, uint64_t from, CUcontext from_context,
              uint64_t bytes, Wait wait) {
  Context *target = context_of(to_context), *source = context_of(from_context);
  if (!target || !source) return CUDA_ERROR_INVALID_CONTEXT;
  // Documented of the form that is not named Async: one after another with all work of both devices.
  if (wait == Wait::always)
    for (Context* context : {source, target})
      if (context != call.context) wait_for_context(call.lock, *context);
  return linear(call, stream, to, Place::device, from, Place::device, bytes, wait);
}

template <class Description>
CUresult shaped(Call& call, Stream* stream, const Description* description, Wait wait) {
  if (!description) return CUDA_ERROR_INVALID_VALUE;
  CopyWork work{};
  CUresult made = make_copy(*description, &work);
  return start(call, stream, made, std::move(work), wait);
}

// From the card to the card the host does not wait, even in the calls that are not named Async.
template <class Description>
CUresult shaped_now(Call& call, Stream* stream, const Description* description) {
  if (!description) return CUDA_ERROR_INVALID_VALUE;
  CopyWork work{};
  CUresult made = make_copy(*description, &work);
  bool host = !work.from.device || !work.to.device;
  return start(call, stream, made, std::move(work), host ? Wait::always : Wait::no);
}

CUresult with_array(Call& call, Stream* stream, CUarray to_array, uint64_t to, CUarray from_array, uint64_t from,
                    size_t bytes, Place host, Wait wait) {
  CUDA_MEMCPY2D d{};
  auto type = [host](CUarray array) { return array ? 3 : host == Place::host ? 1 : 2; };
  d.srcMemoryType = type(from_array), d.dstMemoryType = type(to_array);
  d.srcArray = from_array, d.dstArray = to_array;
  if (from_array)
    d.srcXInBytes = from;
  else
    d.srcHost = reinterpret_cast<const void*>(from), d.srcDevice = from;
  if (to_array)
    d.dstXInBytes = to;
  else
    d.dstHost = reinterpret_cast<void*>(to), d.dstDevice = to;
  d.WidthInBytes = bytes, d.Height = 1;
  return shaped(call, stream, &d, wait);
}

bool says_no_device(const CUmemLocation& hint) {
  return hint.type == berth::abi::kMemLocationDevice && !device_of(hint.id);
}

struct Hints {
  const CUmemcpyAttributes* list;
  size_t count;
};

CUresult batch(Call& call, Stream* stream, const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes,
               size_t count, Hints hints, size_t* failed) {
  if (!stream || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
  if (!to || !from || !bytes || !count || hints.count > count) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; hints.list && i < hints.count; ++i)
    if (says_no_device(hints.list[i].srcLocHint) || says_no_device(hints.list[i].dstLocHint))
      return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i)
    if (CUresult bad =
            linear(call, stream, to[i], Place::by_address, from[i], Place::by_address, bytes[i], Wait::if_pageable)) {
      if (failed) *failed = i;
      return bad;
    }
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

SIM_BOTH_FLAVOURS(cuMemcpy, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, nullptr, flavour), to, Place::by_address, from, Place::by_address, bytes,
                Wait::always);
})
SIM_BOTH_FLAVOURS(cuMemcpyAsync, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, stream, flavour), to, Place::by_address, from, Place::by_address, bytes,
                Wait::if_pageable);
})
SIM_BOTH_FLAVOURS(cuMemcpyHtoD_v2, _ptds, (CUdeviceptr to, const void* from, size_t bytes), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, nullptr, flavour), to, Place::device, number(from), Place::host, bytes,
                Wait::always);
})
SIM_BOTH_FLAVOURS(cuMemcpyHtoDAsync_v2, _ptsz, (CUdeviceptr to, const void* from, size_t bytes, CUstream stream), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, stream, flavour), to, Place::device, number(from), Place::host, bytes,
                Wait::if_pageable);
})
SIM_BOTH_FLAVOURS(cuMemcpyDtoH_v2, _ptds, (void* to, CUdeviceptr from, size_t bytes), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, nullptr, flavour), number(to), Place::host, from, Place::device, bytes,
                Wait::always);
})
SIM_BOTH_FLAVOURS(cuMemcpyDtoHAsync_v2, _ptsz, (void* to, CUdeviceptr from, size_t bytes, CUstream stream), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, stream, flavour), number(to), Place::host, from, Place::device, bytes,
                Wait::if_pageable);
})
SIM_BOTH_FLAVOURS(cuMemcpyDtoD_v2, _ptds, (CUdeviceptr to, CUdeviceptr from, size_t bytes), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, nullptr, flavour), to, Place::device, from, Place::device, bytes, Wait::no);
})
SIM_BOTH_FLAVOURS(cuMemcpyDtoDAsync_v2, _ptsz, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, stream, flavour), to, Place::device, from, Place::device, bytes, Wait::no);
})
SIM_BOTH_FLAVOURS(cuMemcpyPeer, _ptds,
                  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes), {
                    SIM_CALL(kContext);
                    return peer(call, stream_of(call, nullptr, flavour), to, to_context, from, from_context, bytes,
                                Wait::always);
                  })
SIM_BOTH_FLAVOURS(cuMemcpyPeerAsync, _ptsz,
                  (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
                   CUstream stream),
                  {
                    SIM_CALL(kContext);
                    return peer(call, stream_of(call, stream, flavour), to, to_context, from, from_context, bytes,
                                Wait::no);
                  })

// The interface of 32-bit pointers.
CUresult cuMemcpyHtoD(CUdeviceptr_v1 to, const void* from, unsigned bytes) {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, nullptr, Flavour::legacy), to, Place::device, number(from), Place::host, bytes,
                Wait::always);
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr_v1 from, unsigned bytes) {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, nullptr, Flavour::legacy), number(to), Place::host, from, Place::device, bytes,
                Wait::always);
}
CUresult cuMemcpyDtoD(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes) {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, nullptr, Flavour::legacy), to, Place::device, from, Place::device, bytes,
                Wait::no);
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr_v1 to, const void* from, unsigned bytes, CUstream stream) {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, stream, Flavour::legacy), to, Place::device, number(from), Place::host, bytes,
                Wait::if_pageable);
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream) {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, stream, Flavour::legacy), number(to), Place::host, from, Place::device, bytes,
                Wait::if_pageable);
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream) {
  SIM_CALL(kContext);
  return linear(call, stream_of(call, stream, Flavour::legacy), to, Place::device, from, Place::device, bytes,
                Wait::no);
}

SIM_BOTH_FLAVOURS(cuMemcpy2D_v2, _ptds, (const CUDA_MEMCPY2D* description), {
  SIM_CALL(kContext);
  return shaped_now(call, stream_of(call, nullptr, flavour), description);
})
SIM_BOTH_FLAVOURS(cuMemcpy2DUnaligned_v2, _ptds, (const CUDA_MEMCPY2D* description), {
  SIM_CALL(kContext);
  return shaped_now(call, stream_of(call, nullptr, flavour), description);
})
SIM_BOTH_FLAVOURS(cuMemcpy2DAsync_v2, _ptsz, (const CUDA_MEMCPY2D* description, CUstream stream), {
  SIM_CALL(kContext);
  return shaped(call, stream_of(call, stream, flavour), description, Wait::if_pageable);
})
SIM_BOTH_FLAVOURS(cuMemcpy3D_v2, _ptds, (const CUDA_MEMCPY3D* description), {
  SIM_CALL(kContext);
  return shaped_now(call, stream_of(call, nullptr, flavour), description);
})
SIM_BOTH_FLAVOURS(cuMemcpy3DAsync_v2, _ptsz, (const CUDA_MEMCPY3D* description, CUstream stream), {
  SIM_CALL(kContext);
  return shaped(call, stream_of(call, stream, flavour), description, Wait::if_pageable);
})
SIM_BOTH_FLAVOURS(cuMemcpy3DPeer, _ptds, (const CUDA_MEMCPY3D_PEER* description), {
  SIM_CALL(kContext);
  return shaped_now(call, stream_of(call, nullptr, flavour), description);
})
SIM_BOTH_FLAVOURS(cuMemcpy3DPeerAsync, _ptsz, (const CUDA_MEMCPY3D_PEER* description, CUstream stream), {
  SIM_CALL(kContext);
  return shaped(call, stream_of(call, stream, flavour), description, Wait::if_pageable);
})

SIM_BOTH_FLAVOURS(cuMemcpyHtoA_v2, _ptds, (CUarray to, size_t offset, const void* from, size_t bytes), {
  SIM_CALL(kContext);
  return with_array(call, stream_of(call, nullptr, flavour), to, offset, nullptr, number(from), bytes, Place::host,
                    Wait::always);
})
SIM_BOTH_FLAVOURS(cuMemcpyHtoAAsync_v2, _ptsz,
                  (CUarray to, size_t offset, const void* from, size_t bytes, CUstream stream), {
                    SIM_CALL(kContext);
                    return with_array(call, stream_of(call, stream, flavour), to, offset, nullptr, number(from), bytes,
                                      Place::host, Wait::if_pageable);
                  })
SIM_BOTH_FLAVOURS(cuMemcpyAtoH_v2, _ptds, (void* to, CUarray from, size_t offset, size_t bytes), {
  SIM_CALL(kContext);
  return with_array(call, stream_of(call, nullptr, flavour), nullptr, number(to), from, offset, bytes, Place::host,
                    Wait::always);
})
SIM_BOTH_FLAVOURS(cuMemcpyAtoHAsync_v2, _ptsz, (void* to, CUarray from, size_t offset, size_t bytes, CUstream stream), {
  SIM_CALL(kContext);
  return with_array(call, stream_of(call, stream, flavour), nullptr, number(to), from, offset, bytes, Place::host,
                    Wait::if_pageable);
})
SIM_BOTH_FLAVOURS(cuMemcpyDtoA_v2, _ptds, (CUarray to, size_t offset, CUdeviceptr from, size_t bytes), {
  SIM_CALL(kContext);
  return with_array(call, stream_of(call, nullptr, flavour), to, offset, nullptr, from, bytes, Place::device, Wait::no);
})
SIM_BOTH_FLAVOURS(cuMemcpyAtoD_v2, _ptds, (CUdeviceptr to, CUarray from, size_t offset, size_t bytes), {
  SIM_CALL(kContext);
  return with_array(call, stream_of(call, nullptr, flavour), nullptr, to, from, offset, bytes, Place::device, Wait::no);
})
SIM_BOTH_FLAVOURS(cuMemcpyAtoA_v2, _ptds,
                  (CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes), {
                    SIM_CALL(kContext);
                    return with_array(call, stream_of(call, nullptr, flavour), to, to_offset, from, from_offset, bytes,
                                      Place::device, Wait::no);
                  })

SIM_BOTH_FLAVOURS(cuMemcpyBatchAsync, _ptsz,
                  (CUdeviceptr * to, CUdeviceptr* from, size_t* bytes, size_t count, CUmemcpyAttributes* hints,
                   size_t*, size_t kinds, size_t* failed, CUstream stream),
                  {
                    SIM_CALL(kContext);
                    return batch(call, stream_of(call, stream, flavour), to, from, bytes, count, {hints, kinds}, failed);
                  })
SIM_BOTH_FLAVOURS(cuMemcpyBatchAsync_v2, _ptsz,
                  (CUdeviceptr * to, CUdeviceptr* from, size_t* bytes, size_t count, CUmemcpyAttributes* hints,
                   size_t*, size_t kinds, CUstream stream),
                  {
                    SIM_CALL(kContext);
                    return batch(call, stream_of(call, stream, flavour), to, from, bytes, count, {hints, kinds}, nullptr);
                  })

}  // extern "C"
