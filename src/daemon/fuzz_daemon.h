// A whole daemon for fuzz targets: fake devices, no file, one connection an input.
#pragma once
#include <memory>
#include <string_view>

#include "base/unique_fd.h"

namespace berth::daemon {

class FuzzedDaemon {
 public:
  // With `gpus` this process is in a job with so many virtual devices, else in its user's default job.
  explicit FuzzedDaemon(int gpus = 0);
  ~FuzzedDaemon();

  // The sender's end of a new connection.
  UniqueFd connect();

  void send(const UniqueFd& fd, std::string_view packet);

  // Lets the daemon do what there is to do, and checks what must hold whatever clients send.
  void turn();

 private:
  void admit(int gpus);

  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace berth::daemon
