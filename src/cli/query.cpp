#include "cli/query.h"

#include "base/paths.h"

namespace berth::cli {

bool is_only_idle(const Error& error) { return error.code == "unreachable" && !socket_is_chosen(); }

Result<Json> ask_daemon(const Json& request, NoDaemon without) {
  bool repeatable = request.value("op", "") != "kill";
  for (bool first = true;; first = false) {
    auto connection = without == NoDaemon::start_one ? client::connect_or_start_daemon() : client::connect_daemon();
    if (!connection) return connection.error();
    auto reply = connection->request(request);
    bool again = !reply && reply.error().code == "lost" && repeatable && first;  // it was just ending
    if (!again) return reply;
  }
}

int show(const Result<Json>& reply, bool json, const std::function<std::string(const Json&)>& view) {
  if (!reply) return fail(reply.error(), json);
  if (json)
    print_json(*reply);
  else
    print(view(*reply));
  return kExitOk;
}

}  // namespace berth::cli
