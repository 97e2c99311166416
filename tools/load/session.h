// One device made ready: primary context, our kernels, a stream. Single-threaded; the context is current on the thread
// that made the session.
#pragma once
#include <cstdint>
#include <string>

#include "driver.h"

namespace berth::load {

class Session {
 public:
  // Throws Error when there is no such device or anything of it fails.
  Session(const Driver& driver, int device);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Enqueue one kernel on stream().
  void fill(CUdeviceptr address, uint64_t words, uint32_t seed);
  void check(CUdeviceptr address, uint64_t words, uint32_t seed, CUdeviceptr errors);
  void spin(uint64_t nanoseconds);  // the whole device, one wave
  void axpy(CUdeviceptr y, CUdeviceptr x, float a, uint64_t n);
  void synchronize();

  const Driver& driver() const { return driver_; }
  int device() const { return device_; }
  CUstream stream() const { return stream_; }
  const std::string& device_name() const { return device_name_; }
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t free_bytes() const;
  double init_seconds() const { return init_seconds_; }
  double context_seconds() const { return context_seconds_; }

 private:
  void launch(CUfunction function, void** parameters);
  CUfunction function(const char* name);

  Driver driver_;
  CUdevice device_ = 0;
  CUmodule module_ = nullptr;
  CUfunction fill_, check_, spin_, axpy_;
  CUstream stream_ = nullptr;
  unsigned blocks_ = 0;  // one full wave
  std::string device_name_;
  uint64_t total_bytes_ = 0;
  double init_seconds_ = 0, context_seconds_ = 0;
};

}  // namespace berth::load
