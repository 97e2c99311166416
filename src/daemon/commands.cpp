#include "daemon/commands.h"

#include <cmath>

#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/users.h"
#include "daemon/views.h"
#include "policy/names.h"
#include "policy/placement.h"
#include "wire/control.h"

namespace berth::daemon {
namespace {

constexpr size_t kMaxPending = 16;  // requests of one connection that wait for their turn
constexpr size_t kMaxCommandWords = 64;

Error usage(const std::string& what) { return {"usage", what}; }

// Reading of request fields. A missing field and null are the same; a field of another type throws Json::exception,
// which handle() turns into a usage error.
template <class T>
std::optional<T> field(const Json& request, const char* name) {
  auto it = request.find(name);
  if (it == request.end() || it->is_null()) return std::nullopt;
  return it->get<T>();
}

std::string text_field(const Json& request, const char* name) { return field<std::string>(request, name).value_or(""); }

std::optional<int64_t> whole_field(const Json& request, const char* name) {
  auto number = field<double>(request, name);
  if (!number) return std::nullopt;
  if (*number != std::floor(*number) || std::fabs(*number) > 9e15)
    throw std::invalid_argument(std::string(name) + " must be a whole number");
  return static_cast<int64_t>(*number);
}

// The head of a long command line is enough for people.
std::vector<std::string> command_words(const Json& request) {
  auto words = field<std::vector<std::string>>(request, "command").value_or(std::vector<std::string>());
  if (words.size() > kMaxCommandWords) words.resize(kMaxCommandWords), words.push_back("...");
  for (std::string& word : words)
    if (word.size() > 1024) word = word.substr(0, 1024) + "...";
  return words;
}

policy::Priority priority_field(const Json& request, policy::Priority otherwise) {
  auto text = field<std::string>(request, "priority");
  if (!text) return otherwise;
  auto priority = policy::parse_priority(*text);
  if (!priority) throw std::invalid_argument("'" + text->substr(0, 40) + "' is no priority: give high, normal or low");
  return *priority;
}

}  // namespace

void Commands::open(const std::shared_ptr<Connection>& connection, std::string_view first) {
  auto session = std::make_shared<ControlSession>();
  session->connection = connection;
  session->chain = parent_chain(connection->peer().pid);
  session->cgroups = cgroups_of(connection->peer().pid);
  if (!session->chain.empty()) session->process = session->chain.front();
  sessions_.insert(session);
  // Sessions own their connections, so these must not own sessions.
  connection->on_packet = [this, weak = std::weak_ptr(session)](std::string_view text) {
    if (auto alive = weak.lock()) packet(alive, text);
  };
  connection->after_read = [this] { daemon_.settle(); };
  connection->on_closed = [this, weak = std::weak_ptr(session)] {
    if (auto alive = weak.lock()) closed(alive);
  };
  packet(session, first);
}

void Commands::closed(const SessionPtr& session) {
  sessions_.erase(session);
  if (session->follower) daemon_.events.unfollow(*session->follower);
  if (session->queued) daemon_.jobs.leave_queue(session->queued, "its command has gone");
  for (JobId job : session->jobs) daemon_.jobs.runner_disconnected(job);
  daemon_.settle();
}

void Commands::packet(const SessionPtr& session, std::string_view text) {
  wire::ControlPacket control;
  if (!wire::parse_control_packet(text, &control) || control.type != wire::MessageType::control_request) {
    fail(session, usage("this is no request of a command"));
    return session->connection->close_after_sending();
  }
  if (session->pending.size() >= kMaxPending) return session->connection->close();
  session->pending.emplace_back(control.text);
  next(session);
}

void Commands::next(const SessionPtr& session) {
  while (!session->busy && !session->pending.empty() && session->connection->is_open()) {
    std::string text = std::move(session->pending.front());
    session->pending.pop_front();
    session->busy = true;
    handle(session, text);
  }
}

void Commands::reply(const SessionPtr& session, const Json& body) {
  session->busy = false;
  for (std::string& packet : wire::control_reply_packets(body.dump(-1, ' ', false, Json::error_handler_t::replace)))
    session->connection->send(std::move(packet));
  if (!session->pending.empty()) asio::post(daemon_.loop, [this, session] { next(session); });
}

void Commands::fail(const SessionPtr& session, const Error& error) {
  reply(session, {{"error", {{"code", error.code}, {"message", error.message}}}});
}

Tell Commands::teller(const SessionPtr& session) const {
  return [weak = std::weak_ptr(session->connection)](const Json& event) {
    std::string text = event.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (auto connection = weak.lock(); connection && text.size() <= wire::kMaxControlPiece)
      connection->send(wire::control_packet(wire::MessageType::control_event, text));
  };
}

void Commands::handle(const SessionPtr& session, const std::string& text) try {
  static const std::map<std::string, void (Commands::*)(const SessionPtr&, const Json&)> operations = {
      {"admit", &Commands::admit},   {"register_container", &Commands::register_container},
      {"start", &Commands::start},   {"finish", &Commands::finish},
      {"ps", &Commands::ps},         {"gpus", &Commands::gpus},
      {"set", &Commands::set},       {"kill", &Commands::kill},
      {"events", &Commands::events}, {"status", &Commands::status},
      {"pause", &Commands::pause},   {"resume", &Commands::resume},
      {"stop", &Commands::stop}};
  // Depth is bounded before anything is built: parsing and destroying must not recurse as a stranger likes.
  int depth = 0, deepest = 0;
  for (char c : text) deepest = std::max(deepest, depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0);
  Json request = deepest > 32 ? Json(nullptr) : Json::parse(text, nullptr, false);
  if (!request.is_object()) return fail(session, usage("the request is no JSON object"));
  std::string name = text_field(request, "op");
  auto operation = operations.find(name);
  if (operation == operations.end())
    return fail(session, usage("the daemon knows no operation '" + name.substr(0, 40) + "'"));
  (this->*operation->second)(session, request);
} catch (const Json::exception& error) {
  fail(session, usage(std::string("a field of the request has a wrong type: ") + error.what()));
} catch (const std::invalid_argument& error) {
  fail(session, usage(error.what()));
}

std::optional<JobId> Commands::inside_of(const SessionPtr& session) const {
  if (session->process.pid == 0) return std::nullopt;
  // The runner of a job is outside of it, what it runs is inside.
  std::vector<ProcessId> chain = session->chain;
  auto runs = [&](JobId job) { return daemon_.jobs.info(job).runner == session->process; };
  auto job = daemon_.job_of(chain, session->cgroups);
  if (!job || !runs(*job)) return job;
  chain.erase(chain.begin());
  return daemon_.job_of(chain, session->cgroups);
}

Result<JobId> Commands::own_job(const SessionPtr& session, const Json& request, bool* inside) const {
  auto job = policy::find_job(daemon_.state, session->uid(), text_field(request, "name"));
  if (!job) return job.error();
  auto mine = inside_of(session);
  *inside = mine && *mine == *job;
  if (mine && !*inside) return Error{"not_permitted", "a process of a job cannot change other jobs"};
  return job;
}

void Commands::admit(const SessionPtr& session, const Json& request) {
  if (auto job = inside_of(session))
    return fail(session, {"nested", "this is already inside the job " + daemon_.state.jobs.at(*job).name +
                                        "; a job inside a job is not possible: start it from outside"});
  if (session->process.pid == 0)
    return fail(session,
                {"not_permitted", "the sender lives in another process namespace; register its container instead"});
  AdmitOrder order;
  order.runner = session->process;
  order.tell = teller(session);
  this->order(session, request, std::move(order));
}

void Commands::register_container(const SessionPtr& session, const Json& request) {
  std::string cgroup = text_field(request, "cgroup");
  while (cgroup.size() > 1 && cgroup.back() == '/') cgroup.pop_back();
  // Plain names only: "/." would be the root, and with it every process of the machine.
  bool plain = cgroup.size() > 1 && cgroup.front() == '/' && cgroup.find("//") == std::string::npos &&
               (cgroup + "/").find("/./") == std::string::npos && (cgroup + "/").find("/../") == std::string::npos;
  if (!plain)
    return fail(
        session,
        usage("give the container's cgroup as an absolute path, as /proc/PID/cgroup shows it, and not the root"));
  if (auto job = inside_of(session))
    return fail(session, {"nested", "this is inside the job " + daemon_.state.jobs.at(*job).name +
                                        "; register the container from outside"});
  if (session->uid() != 0 && daemon_.settings.system)
    return fail(session, {"not_permitted", "only root may register a container with the system's daemon"});
  AdmitOrder order;
  order.cgroup = cgroup;
  order.tell = teller(session);
  this->order(session, request, std::move(order));
}

void Commands::order(const SessionPtr& session, const Json& request, AdmitOrder order) {
  policy::Request& wanted = order.request;
  wanted.name = text_field(request, "name");
  wanted.uid = session->uid();
  wanted.user = user_name(wanted.uid);
  if (size_t slash = wanted.name.find('/'); slash != std::string::npos && wanted.name.substr(0, slash) == wanted.user)
    wanted.name.erase(0, slash + 1);
  wanted.command = command_words(request);
  wanted.memory = text_field(request, "memory");
  wanted.gpus = whole_field(request, "gpus");
  wanted.priority = priority_field(request, policy::Priority::normal);
  wanted.max_share = field<double>(request, "max_share_ratio");
  wanted.max_slowdown = field<double>(request, "max_slowdown_ratio");
  auto device = request.find("device");
  wanted.device = device != request.end() && device->is_number_unsigned() ? std::to_string(device->get<uint64_t>())
                                                                          : text_field(request, "device");
  wanted.visible_devices = field<std::string>(request, "visible_devices");
  wanted.strict = field<bool>(request, "strict").value_or(false);
  order.wait_seconds = field<double>(request, "wait_seconds").value_or(0);
  if (std::isnan(order.wait_seconds) || order.wait_seconds > 1e8) order.wait_seconds = -1;
  order.limits = limits_of(daemon_.settings.config, wanted.user, group_names(wanted.user), daemon_.settings.system,
                           wanted.uid == 0);
  wanted.weight = whole_field(request, "weight").value_or(std::min<int64_t>(100, order.limits.max_weight));
  order.reply = [this, session, visible = wanted.visible_devices](Result<JobId> result) {
    session->queued = 0;
    if (!result) return fail(session, with_other_daemons(result.error()));
    if (!session->connection->is_open()) return daemon_.jobs.runner_disconnected(*result);
    session->jobs.insert(*result);
    const policy::Job& job = daemon_.state.jobs.at(*result);
    Json devices = Json::array(), notes = Json::array();
    for (policy::DeviceIndex i = 0; i < job.devices.size(); ++i) {
      if (!job.devices[i].placed) continue;
      devices.push_back({{"index", i},
                         {"uuid", daemon_.state.devices[i].uuid_text},
                         {"quota_bytes", job.devices[i].quota ? Json(*job.devices[i].quota) : Json(nullptr)}});
      auto holder = daemon_.gpus.locked_by(i);
      if (holder && told_of_holders_.insert({session->uid(), i, text_of(*holder)}).second)
        notes.push_back(shared_device_text(i, *holder));
    }
    reply(session, {{"job", *result},
                    {"name", job.name},
                    {"devices", devices},
                    {"virtual_devices", virtual_devices_json(daemon_.state, job)},
                    {"visible_devices", visible_to(job, visible)},
                    {"notes", notes}});
  };
  auto decide = [this, session, order = std::move(order)]() mutable {
    if (!session->connection->is_open()) return;
    if (const auto& none = daemon_.gpus.no_device()) return fail(session, *none);
    daemon_.gpus.lock_devices();
    JobId queued = 0;
    daemon_.jobs.admit(std::move(order), &queued);
    session->queued = queued;
  };
  daemon_.gpus.when_fresh(std::move(decide));
}

// What CUDA_VISIBLE_DEVICES must be so that the job's program sees its place and no other device; null: it does
// already. Virtual devices are counted from 0.
Json Commands::visible_to(const policy::Job& job, const std::optional<std::string>& list) const {
  std::string all;
  for (size_t v = 0; v < job.virtual_devices.size(); ++v) all += (v > 0 ? "," : "") + std::to_string(v);
  if (!all.empty()) return all;
  std::vector<policy::DeviceIndex> placed;
  for (policy::DeviceIndex i = 0; i < job.devices.size(); ++i)
    if (job.devices[i].placed) placed.push_back(i);
  if (placed == policy::visible_devices(daemon_.state, list)) return nullptr;
  std::string uuids;
  for (policy::DeviceIndex i : placed) uuids += (uuids.empty() ? "" : ",") + daemon_.state.devices[i].uuid_text;
  return uuids;
}

// Where there is no room, it may be the other daemon's jobs that take it.
Error Commands::with_other_daemons(Error error) const {
  if (error.code != "refused") return error;
  for (policy::DeviceIndex i = 0; i < daemon_.state.devices.size(); ++i)
    if (auto holder = daemon_.gpus.locked_by(i)) error.message += "; " + shared_device_text(i, *holder);
  return error;
}

void Commands::start(const SessionPtr& session, const Json& request) {
  auto job = field<uint64_t>(request, "job");
  auto pid = whole_field(request, "pid");
  if (!job || !pid) return fail(session, usage("start needs job and pid"));
  auto status = daemon_.jobs.start(*job, session->process, static_cast<pid_t>(*pid), teller(session));
  if (!status) return fail(session, status.error());
  session->jobs.insert(*job);
  reply(session, Json::object());
}

void Commands::finish(const SessionPtr& session, const Json& request) {
  auto job = field<uint64_t>(request, "job");
  if (!job) return fail(session, usage("finish needs job"));
  auto status =
      daemon_.jobs.finish(*job, session->process, static_cast<int>(whole_field(request, "exit_code").value_or(0)),
                          [this, session] { reply(session, Json::object()); });
  if (!status) return fail(session, status.error());
  session->jobs.erase(*job);
}

void Commands::ps(const SessionPtr& session, const Json& request) {
  reply(session, ps_json(daemon_, field<bool>(request, "all").value_or(false)));
}

void Commands::gpus(const SessionPtr& session, const Json&) {
  daemon_.gpus.when_fresh([this, session] { reply(session, gpus_json(daemon_)); });
}

void Commands::status(const SessionPtr& session, const Json&) { reply(session, status_json(daemon_)); }

void Commands::kill(const SessionPtr& session, const Json& request) {
  bool inside = false;
  auto job = own_job(session, request, &inside);
  if (!job) return fail(session, job.error());
  int64_t signal = whole_field(request, "signal").value_or(15);
  if (signal < 0 || signal > 64) return fail(session, usage("there is no signal " + std::to_string(signal)));
  switch (daemon_.state.jobs.at(*job).state) {
    case policy::JobState::waiting:
      daemon_.jobs.leave_queue(*job, "ended by berth kill while it waited");
      return reply(session, {{"signalled", 0}});
    case policy::JobState::ended:
      return fail(session, {"unknown_job", "the job " + text_field(request, "name") + " has ended already"});
    default:
      daemon_.jobs.signal(*job, static_cast<int>(signal), [this, session, id = *job](size_t count) {
        if (count == 0) daemon_.jobs.give_up_container(id);
        reply(session, {{"signalled", count}});
        daemon_.settle();
      });
  }
}

void Commands::events(const SessionPtr& session, const Json& request) {
  auto seconds = field<double>(request, "since_seconds");
  reply(session, {{"schema", 1}, {"events", daemon_.events.since(seconds ? wall_before(*seconds) : "")}});
  if (field<bool>(request, "follow").value_or(false) && !session->follower)
    session->follower = daemon_.events.follow(teller(session));
}

void Commands::stop(const SessionPtr& session, const Json& request) {
  if (session->uid() != ::getuid() && session->uid() != 0)
    return fail(session, {"not_permitted", "only the daemon's user and root may end it"});
  if (inside_of(session)) return fail(session, {"not_permitted", "a process of a job cannot end the daemon"});
  if (daemon_.jobs.any_living() && !field<bool>(request, "force").value_or(false))
    return fail(session,
                {"refused", "jobs are running; end them first, or force it: they then run on without a daemon"});
  reply(session, Json::object());
  asio::post(daemon_.loop, [this] { daemon_.stop(); });
}

}  // namespace berth::daemon
