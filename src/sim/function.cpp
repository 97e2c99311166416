// What one may ask of functions.
#include "sim/call.h"
#include "sim/module.h"

using namespace berth::sim;

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!value || attribute < 0 || attribute > 15) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const int values[16] = {1024, 0, 0, 0, 32, 90, 90, 0, function->dynamic_shared, function->carveout, 0, 0, 0, 0, 0, 0};
  *value = values[attribute];
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (attribute == 8)
    function->dynamic_shared = value;
  else if (attribute == 9)
    function->carveout = value;
  else
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (config < 0 || config > 3) return CUDA_ERROR_INVALID_VALUE;
  function->cache_config = config;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule* module, CUfunction handle) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!module) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *module = reinterpret_cast<CUmodule>(function->module.get());
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction handle) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *name = function->kernel->name;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  SIM_CALL(kContext);
  auto function = function_of(handle, *call.context);
  if (!offset) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (index >= function->kernel->parameters.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = function->kernel->offset_of(index);
  if (size) *size = function->kernel->parameters[index];
  return CUDA_SUCCESS;
}

CUresult cuFuncIsLoaded(CUfunctionLoadingState* loaded, CUfunction handle) {
  SIM_CALL(kContext);
  if (!loaded) return CUDA_ERROR_INVALID_VALUE;
  if (!function_of(handle, *call.context)) return CUDA_ERROR_INVALID_HANDLE;
  *loaded = 1;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction handle) {
  SIM_CALL(kContext);
  return function_of(handle, *call.context) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // extern "C"
