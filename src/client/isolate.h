// `berth run --isolate`: a mount namespace in which our libraries lie over the driver's own files, so that a program
// reaches them whatever its environment, RPATH or absolute paths say.
//
// In it /tmp/berth-UID holds what our library needs to find without an environment: berth.sock (the daemon's socket) and
// real/ (the driver's own libraries, which are covered everywhere else). Nothing outside the namespace changes but that
// the empty folder /tmp/berth-UID, and for a socket inside it /tmp/berth-UID/real, comes to be.
#pragma once
#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "client/driver_files.h"

namespace berth::client {

struct IsolationPlan {
  DriverFiles files;
  std::string shim_folder;
  std::string socket;
  std::string meeting_folder;  // /tmp/berth-UID
  bool socket_inside = false;  // `socket` lies in it already
  uid_t uid = 0;
  gid_t gid = 0;
};

// In the parent: all that can be found out beforehand, with a clear error if it can't work.
Result<IsolationPlan> plan_isolation(const std::string& socket);

// In the forked child, before exec: a namespace of its own (a user namespace too, unless root). On an error the child
// must end: its mounts may be half done.
Status enter_isolation(const IsolationPlan& plan);

// Could this process make the namespaces? Tried in a child. For doctor.
Status probe_isolation();

}  // namespace berth::client
