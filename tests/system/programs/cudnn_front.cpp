// B24: the front of a pair of libraries; its function hands on to the function of the same name in the other one.
#include <dlfcn.h>

#include <string>

extern "C" int cudnnCreate(void** handle) {
  Dl_info self;
  dladdr(reinterpret_cast<void*>(&cudnnCreate), &self);
  std::string path = self.dli_fname;
  void* back = dlopen((path.substr(0, path.rfind('/')) + "/cudnn_back.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  auto real = back ? reinterpret_cast<int (*)(void**)>(dlsym(back, "cudnnCreate")) : nullptr;
  return real && real != &cudnnCreate ? real(handle) : -1;
}
