#include "sim/module.h"

#include <cstring>
#include <fstream>
#include <iterator>

#include "sim/call.h"

using namespace berth::sim;

namespace berth::sim {
namespace {

struct Library {
  std::string text;
  std::map<Context*, std::shared_ptr<Module>> modules;  // loaded at first use in a context
};
struct LibraryKernel {
  std::weak_ptr<Library> library;
  std::string name;
};

Registry<Module>& modules() {
  static auto* const registry = new Registry<Module>;
  return *registry;
}
Registry<Function>& functions() {
  static auto* const registry = new Registry<Function>;
  return *registry;
}
Registry<Library>& libraries() {
  static auto* const registry = new Registry<Library>;
  return *registry;
}
Registry<LibraryKernel>& library_kernels() {
  static auto* const registry = new Registry<LibraryKernel>;
  return *registry;
}

constexpr uint32_t kFatMagic = 0xba55ed50, kWrapperMagic = 0x466243b1;

// An image as text: PTX, or what a fat binary holds of it uncompressed.
std::string text_of(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic == kWrapperMagic) {
    const void* inner = nullptr;
    std::memcpy(&inner, static_cast<const char*>(image) + 8, sizeof inner);
    return inner ? text_of(inner) : std::string();
  }
  if (magic == kFatMagic) {
    uint16_t header = 0;
    uint64_t bytes = 0;
    std::memcpy(&header, static_cast<const char*>(image) + 6, sizeof header);
    std::memcpy(&bytes, static_cast<const char*>(image) + 8, sizeof bytes);
    return {static_cast<const char*>(image), header + bytes};
  }
  if (magic == 0x464c457f) return {};  // a compiled image: not for this card
  return static_cast<const char*>(image);
}

// The names after ".entry"; none: not PTX.
std::vector<std::string> entries_of(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find(".entry"); at != std::string::npos; at = text.find(".entry", at)) {
    at += 6;
    size_t from = text.find_first_not_of(" \t\r\n", at), to = text.find_first_of(" \t\r\n(", from);
    if (from != std::string::npos && to != std::string::npos) names.push_back(text.substr(from, to - from));
  }
  return names;
}

CUresult load(Context& context, const std::string& text, std::shared_ptr<Module>* result) {
  if (text.empty()) return CUDA_ERROR_INVALID_IMAGE;
  if (text.find(".version") == std::string::npos) return CUDA_ERROR_INVALID_IMAGE;
  auto module = std::make_shared<Module>();
  module->context = &context;
  module->entries = entries_of(text);
  module->memory = take_physical(context.device->card, text.size(), PageKind::module);
  if (!module->memory) return CUDA_ERROR_OUT_OF_MEMORY;
  *result = module;
  return CUDA_SUCCESS;
}

bool has_entry(const Module& module, const std::string& name) {
  for (const std::string& entry : module.entries)
    if (entry == name) return true;
  return false;
}

// One handle for each function of a module, however often it is asked for.
std::shared_ptr<Function> make_function(const std::shared_ptr<Module>& module, const std::string& name) {
  const Kernel* kernel = find_kernel(name);
  if (!kernel || !has_entry(*module, name)) return nullptr;
  for (const auto& [handle, function] : functions().all())
    if (function->module == module && function->kernel == kernel) return function;
  auto function = std::make_shared<Function>();
  function->module = module;
  function->kernel = kernel;
  functions().add<CUfunction>(function);
  return function;
}

CUresult module_in(Library& library, Context& context, std::shared_ptr<Module>* module) {
  auto& loaded = library.modules[&context];
  if (!loaded) {
    if (CUresult bad = load(context, library.text, &loaded)) return bad;
    loaded->of_library = true;
    modules().add<CUmodule>(loaded);
  }
  *module = loaded;
  return CUDA_SUCCESS;
}

void drop_module(const std::shared_ptr<Module>& module) {
  functions().remove_if([&](const Function& function) { return function.module == module; });
  modules().remove(module.get());
}

bool read_file(const char* path, std::string* text) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  text->assign(std::istreambuf_iterator<char>(file), {});
  return true;
}

}  // namespace

std::shared_ptr<Function> function_of(CUfunction handle, Context& context) {
  if (auto function = functions().find(handle)) return function;
  auto kernel = library_kernels().find(handle);
  auto library = kernel ? kernel->library.lock() : nullptr;
  std::shared_ptr<Module> module;
  if (!library || module_in(*library, context, &module) != CUDA_SUCCESS) return nullptr;
  return make_function(module, kernel->name);
}

void drop_modules_of(Context& context) {
  std::vector<std::shared_ptr<Module>> gone;
  for (const auto& [handle, module] : modules().all())
    if (module->context == &context) gone.push_back(module);
  for (const auto& module : gone) drop_module(module);
  for (const auto& [handle, library] : libraries().all()) library->modules.erase(&context);
}

}  // namespace berth::sim

namespace {

CUresult load_module(Call& call, CUmodule* result, const std::string& text) {
  std::shared_ptr<Module> module;
  if (CUresult bad = load(*call.context, text, &module)) return bad;
  *result = modules().add<CUmodule>(module);
  return CUDA_SUCCESS;
}

CUresult load_library(CUlibrary* result, const std::string& text) {
  if (text.find(".version") == std::string::npos) return CUDA_ERROR_INVALID_IMAGE;
  auto library = std::make_shared<Library>();
  library->text = text;
  *result = libraries().add<CUlibrary>(library);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  SIM_CALL(kContext);
  if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
  return load_module(call, module, text_of(image));
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) {
  SIM_CALL(kContext);
  if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
  return load_module(call, module, text_of(image));
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  SIM_CALL(kContext);
  if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
  return load_module(call, module, text_of(image));
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  SIM_CALL(kContext);
  std::string text;
  if (!module || !path) return CUDA_ERROR_INVALID_VALUE;
  return read_file(path, &text) ? load_module(call, module, text) : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuModuleUnload(CUmodule handle) {
  SIM_CALL(kContext);
  auto module = modules().find(handle);
  if (!module || module->of_library) return CUDA_ERROR_INVALID_HANDLE;
  CUresult error = wait_for_context(call.lock, *module->context);
  drop_module(module);
  return error;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SIM_CALL(kDriver);
  if (!mode) return CUDA_ERROR_INVALID_VALUE;
  *mode = 1;  // eager: a module costs its memory when it is loaded
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* result, CUmodule handle, const char* name) {
  SIM_CALL(kContext);
  if (!result || !name) return CUDA_ERROR_INVALID_VALUE;
  auto module = modules().find(handle);
  if (!module) return CUDA_ERROR_INVALID_HANDLE;
  auto function = make_function(module, name);
  if (!function) return CUDA_ERROR_NOT_FOUND;
  *result = reinterpret_cast<CUfunction>(function.get());
  return CUDA_SUCCESS;
}

// No kernel of ours has globals.
CUresult cuModuleGetGlobal_v2(CUdeviceptr*, size_t*, CUmodule handle, const char* name) {
  SIM_CALL(kContext);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  return modules().find(handle) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetGlobal(CUdeviceptr_v1*, unsigned*, CUmodule handle, const char* name) {
  SIM_CALL(kContext);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  return modules().find(handle) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                           void**, unsigned) {
  SIM_CALL(kDriver);
  if (!library || !code) return CUDA_ERROR_INVALID_VALUE;
  return load_library(library, text_of(code));
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option*, void**, unsigned, CUlibraryOption*,
                               void**, unsigned) {
  SIM_CALL(kDriver);
  std::string text;
  if (!library || !path) return CUDA_ERROR_INVALID_VALUE;
  return read_file(path, &text) ? load_library(library, text) : CUDA_ERROR_FILE_NOT_FOUND;
}

CUresult cuLibraryUnload(CUlibrary handle) {
  SIM_CALL(kDriver);
  auto library = libraries().find(handle);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  for (const auto& [context, module] : library->modules) {
    if (context->alive) wait_for_context(call.lock, *context);
    drop_module(module);
  }
  library_kernels().remove_if([&](const LibraryKernel& kernel) { return kernel.library.lock() == library; });
  libraries().remove(handle);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* result, CUlibrary handle) {
  SIM_CALL(kContext);
  auto library = libraries().find(handle);
  if (!result) return CUDA_ERROR_INVALID_VALUE;
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Module> module;
  if (CUresult bad = module_in(*library, *call.context, &module)) return bad;
  *result = reinterpret_cast<CUmodule>(module.get());
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* result, CUlibrary handle, const char* name) {
  SIM_CALL(kDriver);
  auto library = libraries().find(handle);
  if (!result || !name) return CUDA_ERROR_INVALID_VALUE;
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  bool known = false;
  for (const std::string& entry : entries_of(library->text)) known |= entry == name;
  if (!known || !find_kernel(name)) return CUDA_ERROR_NOT_FOUND;
  for (const auto& [raw, kernel] : library_kernels().all())
    if (kernel->name == name && kernel->library.lock() == library)
      return *result = reinterpret_cast<CUkernel>(kernel.get()), CUDA_SUCCESS;
  *result = library_kernels().add<CUkernel>(std::make_shared<LibraryKernel>(LibraryKernel{library, name}));
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* result, CUkernel kernel) {
  SIM_CALL(kContext);
  if (!result) return CUDA_ERROR_INVALID_VALUE;
  auto function = function_of(reinterpret_cast<CUfunction>(kernel), *call.context);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *result = reinterpret_cast<CUfunction>(function.get());
  return CUDA_SUCCESS;
}

}  // extern "C"
