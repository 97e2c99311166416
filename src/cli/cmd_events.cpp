// berth events: what has happened, and with --follow what happens.
#include <chrono>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/run_options.h"
#include "cli/text.h"
#include "cli/views.h"

namespace berth::cli {
namespace {

struct EventsOptions {
  bool follow = false, json = false;
  std::optional<std::string> since;
};

void show_event(const Json& event, bool json) {
  if (json) return print_json_line(event);
  print(event_line(event));
  std::fflush(stdout);
}

int events(const EventsOptions& options) {
  Json request{{"op", "events"}, {"follow", options.follow}, {"since_seconds", Json()}};
  if (options.since) {
    double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    auto since = parse_since(*options.since, now);
    if (!since) return fail(since.error(), options.json);
    request["since_seconds"] = *since;
  }
  auto connection = client::connect_daemon();
  if (!connection && !options.follow && is_only_idle(connection.error())) return kExitOk;  // nothing has happened
  if (!connection) return fail(connection.error(), options.json);
  // What comes before the reply is newer than what the reply holds.
  std::vector<Json> early;
  connection->on_event([&](const Json& event) { early.push_back(event); });
  auto reply = connection->request(request);
  if (!reply) return fail(reply.error(), options.json);
  for (const Json& event : reply->value("events", Json::array())) show_event(event, options.json);
  for (const Json& event : early) show_event(event, options.json);
  if (!options.follow) return kExitOk;
  connection->on_event([&](const Json& event) { show_event(event, options.json); });
  while (std::ferror(stdout) == 0)
    if (auto heard = connection->wait_event(); !heard) return fail(heard.error(), options.json);
  return kExitRefused;
}

}  // namespace

void add_events(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("events", "show what has happened");
  auto options = std::make_shared<EventsOptions>();
  command->add_flag("-f,--follow", options->follow, "go on, as events come");
  add_text(command, "--since", &options->since, "age (10m, 2h) or time (RFC 3339) of the first to show")->type_name("T");
  command->add_flag("--json", options->json, "one object a line; see docs/json.md");
  command->callback([options, outcome] { outcome->exit_code = events(*options); });
}

}  // namespace berth::cli
