#include "sim/launch.h"

#include <cstring>

#include "sim/call.h"
#include "sim/module.h"
#include "sim/test_interface.h"

using namespace berth::sim;

namespace {

constexpr uint64_t kMaxThreads = 1024, kMaxShared = 232448;

std::vector<unsigned char> attributes_of_last_launch;  // under the process's mutex

// `extra` is a list of name and value, up to a null: 1 is the buffer, 2 points to its size.
bool read_extra(void** extra, const void** buffer, size_t* size) {
  *buffer = nullptr;
  *size = 0;
  for (; *extra; extra += 2) {
    auto key = reinterpret_cast<uintptr_t>(*extra);
    if (key == 1)
      *buffer = extra[1];
    else if (key == 2)
      *size = *static_cast<size_t*>(extra[1]);
    else
      return false;
  }
  return *buffer != nullptr;
}

CUresult launch(Call& call, Stream* stream, const Launch& what) {
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  KernelWork work;
  if (CUresult bad = make_kernel_work(*stream->context, what, &work)) return bad;
  if (stream->context->error) return stream->context->error;
  (void)call;
  return submit_work(*stream, std::move(work));
}

CUresult launch_extended(Call& call, const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra,
                         Flavour flavour) {
  if (!config || (config->numAttrs && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  const auto* raw = reinterpret_cast<const unsigned char*>(config->attrs);
  attributes_of_last_launch.assign(raw, raw + config->numAttrs * sizeof(CUlaunchAttribute));
  return launch(call, stream_of(call, config->hStream, flavour),
                {function,
                 {config->gridDimX, config->gridDimY, config->gridDimZ},
                 {config->blockDimX, config->blockDimY, config->blockDimZ},
                 config->sharedMemBytes,
                 parameters,
                 extra});
}

// A cooperative launch needs all its blocks on the card at once.
CUresult launch_cooperative(Call& call, Stream* stream, const Launch& what) {
  uint64_t blocks = uint64_t{what.grid[0]} * what.grid[1] * what.grid[2],
           threads = uint64_t{what.block[0]} * what.block[1] * what.block[2];
  if (threads && blocks * ((threads + 31) / 32 * 32) > 132 * 2048)
    return static_cast<CUresult>(720);  // COOPERATIVE_LAUNCH_TOO_LARGE
  return launch(call, stream, what);
}

CUresult launch_old(Call& call, CUfunction handle, int width, int height, CUstream stream, Flavour flavour) {
  auto function = function_of(handle, *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  size_t size = function->arguments.size();
  void* extra[] = {reinterpret_cast<void*>(1), function->arguments.data(), reinterpret_cast<void*>(2), &size, nullptr};
  return launch(call, stream_of(call, stream, flavour),
                {handle,
                 {static_cast<unsigned>(width), static_cast<unsigned>(height), 1},
                 function->block,
                 function->shared_bytes,
                 nullptr,
                 extra});
}

CUresult set_argument(Call& call, CUfunction handle, int offset, const void* data, size_t bytes) {
  auto function = function_of(handle, *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (offset < 0 || offset > 4096 || bytes > 4096 || !data) return CUDA_ERROR_INVALID_VALUE;
  auto from = static_cast<size_t>(offset);
  if (function->arguments.size() < from + bytes) function->arguments.resize(from + bytes);
  std::memcpy(function->arguments.data() + from, data, bytes);
  return CUDA_SUCCESS;
}

}  // namespace

namespace berth::sim {

CUresult make_kernel_work(Context& context, const Launch& launch, KernelWork* work) {
  auto function = function_of(launch.function, context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel& kernel = *function->kernel;
  for (int i = 0; i < 3; ++i)
    if (!launch.grid[static_cast<size_t>(i)] || !launch.block[static_cast<size_t>(i)]) return CUDA_ERROR_INVALID_VALUE;
  if (uint64_t{launch.block[0]} * launch.block[1] * launch.block[2] > kMaxThreads) return CUDA_ERROR_INVALID_VALUE;
  if (launch.shared_bytes > kMaxShared || (launch.parameters && launch.extra)) return CUDA_ERROR_INVALID_VALUE;
  *work = {launch.function,     &kernel,
           launch.grid,         launch.block,
           launch.shared_bytes, std::vector<std::byte>(kernel.arguments_bytes())};
  if (launch.parameters) {
    for (size_t i = 0; i < kernel.parameters.size(); ++i) {
      if (!launch.parameters[i]) return CUDA_ERROR_INVALID_VALUE;
      std::memcpy(work->arguments.data() + kernel.offset_of(i), launch.parameters[i], kernel.parameters[i]);
    }
    return CUDA_SUCCESS;
  }
  const void* buffer = nullptr;
  size_t size = 0;
  if (!launch.extra || !read_extra(launch.extra, &buffer, &size) || size < kernel.arguments_bytes())
    return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(work->arguments.data(), buffer, kernel.arguments_bytes());
  return CUDA_SUCCESS;
}

}  // namespace berth::sim

extern "C" {

SIM_BOTH_FLAVOURS(cuLaunchKernel, _ptsz,
                  (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream stream, void** parameters, void** extra),
                  {
                    SIM_CALL(kContext);
                    return launch(call, stream_of(call, stream, flavour),
                                  {function, {gx, gy, gz}, {bx, by, bz}, shared, parameters, extra});
                  })

SIM_BOTH_FLAVOURS(cuLaunchKernelEx, _ptsz,
                  (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra), {
                    SIM_CALL(kContext);
                    return launch_extended(call, config, function, parameters, extra, flavour);
                  })

SIM_BOTH_FLAVOURS(cuLaunchCooperativeKernel, _ptsz,
                  (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream stream, void** parameters),
                  {
                    SIM_CALL(kContext);
                    return launch_cooperative(call, stream_of(call, stream, flavour),
                                              {function, {gx, gy, gz}, {bx, by, bz}, shared, parameters, nullptr});
                  })

CUresult cuLaunch(CUfunction function) {
  SIM_CALL(kContext);
  return launch_old(call, function, 1, 1, nullptr, Flavour::legacy);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  SIM_CALL(kContext);
  return launch_old(call, function, width, height, nullptr, Flavour::legacy);
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  SIM_CALL(kContext);
  return launch_old(call, function, width, height, stream, Flavour::legacy);
}

CUresult cuParamSetSize(CUfunction handle, unsigned bytes) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes > 4096) return CUDA_ERROR_INVALID_VALUE;
  function->arguments.resize(bytes);
  return CUDA_SUCCESS;
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned value) {
  SIM_CALL(kContext);
  return set_argument(call, function, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction function, int offset, float value) {
  SIM_CALL(kContext);
  return set_argument(call, function, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction function, int offset, void* data, unsigned bytes) {
  SIM_CALL(kContext);
  return set_argument(call, function, offset, data, bytes);
}

CUresult cuFuncSetBlockShape(CUfunction handle, int x, int y, int z) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  function->block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
  return CUDA_SUCCESS;
}

CUresult cuFuncSetSharedSize(CUfunction handle, unsigned bytes) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  function->shared_bytes = bytes;
  return CUDA_SUCCESS;
}

// For tests: the attributes that the last cuLaunchKernelEx brought, byte for byte.
void berth_sim_last_attributes(void* buffer, size_t size) {
  Lock lock(process().mutex);
  std::memset(buffer, 0, size);
  std::memcpy(buffer, attributes_of_last_launch.data(), std::min(size, attributes_of_last_launch.size()));
}

}  // extern "C"
