// A program that knows no CUDA runtime and opens a library that does, with RTLD_LOCAL: plugin_host LIBRARY
#include <dlfcn.h>

#include <cstdio>

int main(int argc, char** argv) {
  void* opened = argc > 1 ? dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL) : nullptr;
  auto ask = opened ? reinterpret_cast<int (*)(int)>(dlsym(opened, "device_after")) : nullptr;
  if (!ask) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  std::printf("%d %d\n", ask(-1), ask(1));
  return 0;
}
