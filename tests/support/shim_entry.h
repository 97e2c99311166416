// The functions of the shim that a test has opened, typed: D(cuInit)(0). Include after abi/driver_api.h; one test a program.
#pragma once
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace berth::test {

inline void* shim = nullptr;

template <class F>
F entry(const char* name) {
  void* found = dlsym(shim, name);
  EXPECT_TRUE(found) << name;
  return reinterpret_cast<F>(found);
}

}  // namespace berth::test

#define D(name) berth::test::entry<decltype(&::name)>(#name)
