// The memset calls.
#include "sim/call.h"

using namespace berth::sim;

namespace {

CUresult fill(Stream* stream, FillWork work) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (!work.width || !work.height) return CUDA_SUCCESS;
  uint64_t row = work.width * work.element;
  if (work.height == 1) work.pitch = row;
  if (work.pitch < row || work.address % work.element || work.pitch % work.element) return CUDA_ERROR_INVALID_VALUE;
  if (!device_may_use(work.address, work.pitch * (work.height - 1) + row)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->context->error) return stream->context->error;
  return submit_work(*stream, work);
}

}  // namespace

extern "C" {

CUresult cuMemsetD8(CUdeviceptr_v1 to, unsigned char value, unsigned count) {
  SIM_CALL(kContext);
  return fill(stream_of(call, nullptr, Flavour::legacy), {to, 0, value, 1, count, 1});
}

SIM_BOTH_FLAVOURS(cuMemsetD8_v2, _ptds, (CUdeviceptr to, unsigned char value, size_t count), {
  SIM_CALL(kContext);
  return fill(stream_of(call, nullptr, flavour), {to, 0, value, 1, count, 1});
})
SIM_BOTH_FLAVOURS(cuMemsetD16_v2, _ptds, (CUdeviceptr to, unsigned short value, size_t count), {
  SIM_CALL(kContext);
  return fill(stream_of(call, nullptr, flavour), {to, 0, value, 2, count, 1});
})
SIM_BOTH_FLAVOURS(cuMemsetD32_v2, _ptds, (CUdeviceptr to, unsigned value, size_t count), {
  SIM_CALL(kContext);
  return fill(stream_of(call, nullptr, flavour), {to, 0, value, 4, count, 1});
})
SIM_BOTH_FLAVOURS(cuMemsetD8Async, _ptsz, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), {
  SIM_CALL(kContext);
  return fill(stream_of(call, stream, flavour), {to, 0, value, 1, count, 1});
})
SIM_BOTH_FLAVOURS(cuMemsetD16Async, _ptsz, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream), {
  SIM_CALL(kContext);
  return fill(stream_of(call, stream, flavour), {to, 0, value, 2, count, 1});
})
SIM_BOTH_FLAVOURS(cuMemsetD32Async, _ptsz, (CUdeviceptr to, unsigned value, size_t count, CUstream stream), {
  SIM_CALL(kContext);
  return fill(stream_of(call, stream, flavour), {to, 0, value, 4, count, 1});
})
SIM_BOTH_FLAVOURS(cuMemsetD2D8_v2, _ptds,
                  (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height), {
                    SIM_CALL(kContext);
                    return fill(stream_of(call, nullptr, flavour), {to, pitch, value, 1, width, height});
                  })
SIM_BOTH_FLAVOURS(cuMemsetD2D16_v2, _ptds,
                  (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height), {
                    SIM_CALL(kContext);
                    return fill(stream_of(call, nullptr, flavour), {to, pitch, value, 2, width, height});
                  })
SIM_BOTH_FLAVOURS(cuMemsetD2D32_v2, _ptds, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),
                  {
                    SIM_CALL(kContext);
                    return fill(stream_of(call, nullptr, flavour), {to, pitch, value, 4, width, height});
                  })
SIM_BOTH_FLAVOURS(cuMemsetD2D8Async, _ptsz,
                  (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream), {
                    SIM_CALL(kContext);
                    return fill(stream_of(call, stream, flavour), {to, pitch, value, 1, width, height});
                  })
SIM_BOTH_FLAVOURS(cuMemsetD2D16Async, _ptsz,
                  (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream), {
                    SIM_CALL(kContext);
                    return fill(stream_of(call, stream, flavour), {to, pitch, value, 2, width, height});
                  })
SIM_BOTH_FLAVOURS(cuMemsetD2D32Async, _ptsz,
                  (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream), {
                    SIM_CALL(kContext);
                    return fill(stream_of(call, stream, flavour), {to, pitch, value, 4, width, height});
                  })

}  // extern "C"
