#include <fcntl.h>
#include <unistd.h>

#include <exception>

#include "cli/command_line.h"
#include "cli/output.h"

namespace {

// Streams that were closed must not become one of our sockets. The program that is run gets them closed again.
void occupy_streams() {
  int fd;
  do fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd <= 2);
  if (fd > 2) ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  occupy_streams();
  std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  bool run = !arguments.empty() && arguments[0] == "run";
  try {
    return berth::cli::run_command_line(arguments);
  } catch (const std::exception& fault) {  // out of memory, a reply with a field of another kind
    berth::cli::say(std::string("unexpected: ") + fault.what());
    return run ? berth::cli::kExitBerth : berth::cli::kExitRefused;
  }
}
