#include "client/job.h"

#include "client/daemon.h"

namespace berth::client {
namespace {

using std::chrono::steady_clock;

constexpr int kTries = 3;  // a daemon that dies while it is asked, again and again, is not worth more

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

Json admit_request(const JobRequest& request) {
  return {{"op", "admit"},
          {"name", or_null(request.name)},
          {"command", request.command},
          {"memory", or_null(request.memory)},
          {"gpus", or_null(request.gpus)},
          {"priority", request.priority},
          {"weight", request.weight},
          {"max_share_ratio", or_null(request.max_share_ratio)},
          {"max_slowdown_ratio", or_null(request.max_slowdown_ratio)},
          {"device", or_null(request.device)},
          {"visible_devices", or_null(request.visible_devices)},
          {"wait_seconds", request.wait_seconds},
          {"strict", request.strict}};
}

Result<Admission> admit(Connection* connection, JobRequest request, const std::function<void(const Json&)>& queued,
                        pid_t* daemon) {
  auto began = steady_clock::now();
  long patience = request.wait_seconds;
  for (int attempt = 1;; ++attempt) {
    connection->on_event(queued);
    // The daemon keeps the time of a wait; it always answers in the end.
    auto reply = connection->request(admit_request(request), request.wait_seconds == 0 ? kUsualTimeout : kForEver);
    connection->on_event(nullptr);
    if (reply) {
      if (!reply->contains("job")) return Error{"internal", "the daemon's reply to 'admit' names no job"};
      Admission admission{(*reply)["job"], reply->value("name", ""), std::nullopt,
                          reply->value("notes", std::vector<std::string>())};
      if (auto visible = reply->find("visible_devices"); visible != reply->end() && visible->is_string())
        admission.visible_devices = visible->get<std::string>();
      return admission;
    }
    if (reply.error().code != "lost" || attempt == kTries) return reply.error();
    auto again = connect_or_start_daemon(daemon);
    if (!again) return again.error();
    *connection = std::move(*again);
    if (patience > 0) {
      auto waited = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - began).count();
      request.wait_seconds = std::max(1l, patience - static_cast<long>(waited));
    }
  }
}

Status start(Connection* connection, const Json& job, pid_t pid, std::chrono::milliseconds timeout) {
  auto reply = connection->request({{"op", "start"}, {"job", job}, {"pid", pid}}, timeout);
  if (!reply) return reply.error();
  return Ok{};
}

void finish(Connection* connection, const Json& job, int exit_code) {
  auto reply = connection->request({{"op", "finish"}, {"job", job}, {"exit_code", exit_code}}, std::chrono::seconds(2));
  (void)reply.ok();
}

}  // namespace berth::client
