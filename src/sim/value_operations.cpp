// Stream memory operations: the card writes a word, or waits for one.
#include <cstring>

#include "sim/call.h"

using namespace berth::sim;

namespace {

constexpr unsigned kFlush = 1u << 30;

// CUstreamBatchMemOpParams, as the driver interface lays it out.
struct Params {
  int operation;
  CUdeviceptr address;
  uint64_t value;
  unsigned flags;
  CUdeviceptr alias;
  uint64_t pad;
};
static_assert(sizeof(Params) == 48);

enum Operation { kWait32 = 1, kWrite32 = 2, kFlushRemote = 3, kWait64 = 4, kWrite64 = 5, kBarrier = 6 };

CUresult check(const ValueOperation& operation) {
  unsigned known = operation.write ? 1u : 3u | kFlush;
  if (operation.flags & ~known || operation.address % (operation.wide ? 8 : 4)) return CUDA_ERROR_INVALID_VALUE;
  return device_may_use(operation.address, operation.wide ? 8 : 4) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult one(Stream* stream, const ValueOperation& operation) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (CUresult bad = check(operation)) return bad;
  if (stream->context->error) return stream->context->error;
  return submit_work(*stream, ValueWork{{operation}});
}

CUresult batch(Stream* stream, unsigned count, const CUstreamBatchMemOpParams* list, unsigned flags) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!list || !count || count > 256 || flags) return CUDA_ERROR_INVALID_VALUE;
  ValueWork work;
  for (unsigned i = 0; i < count; ++i) {
    Params params;
    std::memcpy(&params, reinterpret_cast<const char*>(list) + i * sizeof params, sizeof params);
    if (params.operation == kFlushRemote || params.operation == kBarrier) continue;
    if (params.operation < kWait32 || params.operation > kBarrier) return CUDA_ERROR_INVALID_VALUE;
    bool write = params.operation == kWrite32 || params.operation == kWrite64;
    bool wide = params.operation == kWait64 || params.operation == kWrite64;
    ValueOperation operation{write, wide, params.address, wide ? params.value : params.value & UINT32_MAX,
                             params.flags};
    if (CUresult bad = check(operation)) return bad;
    work.operations.push_back(operation);
  }
  if (stream->context->error) return stream->context->error;
  return submit_work(*stream, std::move(work));
}

}  // namespace

extern "C" {

SIM_BOTH_FLAVOURS(cuStreamWriteValue32, _ptsz, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags), {
  SIM_CALL(kContext);
  return one(stream_of(call, stream, flavour), {true, false, address, value, flags});
})
SIM_BOTH_FLAVOURS(cuStreamWriteValue32_v2, _ptsz,
                  (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags), {
                    SIM_CALL(kContext);
                    return one(stream_of(call, stream, flavour), {true, false, address, value, flags});
                  })
SIM_BOTH_FLAVOURS(cuStreamWriteValue64, _ptsz, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags), {
  SIM_CALL(kContext);
  return one(stream_of(call, stream, flavour), {true, true, address, value, flags});
})
SIM_BOTH_FLAVOURS(cuStreamWriteValue64_v2, _ptsz,
                  (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags), {
                    SIM_CALL(kContext);
                    return one(stream_of(call, stream, flavour), {true, true, address, value, flags});
                  })
SIM_BOTH_FLAVOURS(cuStreamWaitValue32, _ptsz, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags), {
  SIM_CALL(kContext);
  return one(stream_of(call, stream, flavour), {false, false, address, value, flags});
})
SIM_BOTH_FLAVOURS(cuStreamWaitValue32_v2, _ptsz, (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags),
                  {
                    SIM_CALL(kContext);
                    return one(stream_of(call, stream, flavour), {false, false, address, value, flags});
                  })
SIM_BOTH_FLAVOURS(cuStreamWaitValue64, _ptsz, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags), {
  SIM_CALL(kContext);
  return one(stream_of(call, stream, flavour), {false, true, address, value, flags});
})
SIM_BOTH_FLAVOURS(cuStreamWaitValue64_v2, _ptsz, (CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags),
                  {
                    SIM_CALL(kContext);
                    return one(stream_of(call, stream, flavour), {false, true, address, value, flags});
                  })
SIM_BOTH_FLAVOURS(cuStreamBatchMemOp, _ptsz,
                  (CUstream stream, unsigned count, CUstreamBatchMemOpParams* list, unsigned flags), {
                    SIM_CALL(kContext);
                    return batch(stream_of(call, stream, flavour), count, list, flags);
                  })
SIM_BOTH_FLAVOURS(cuStreamBatchMemOp_v2, _ptsz,
                  (CUstream stream, unsigned count, CUstreamBatchMemOpParams* list, unsigned flags), {
                    SIM_CALL(kContext);
                    return batch(stream_of(call, stream, flavour), count, list, flags);
                  })

}  // extern "C"
