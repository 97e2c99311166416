#include "daemon/events.h"

#include "daemon/clock.h"
#include "daemon/log.h"

namespace berth::daemon {
namespace {

// Events that wait for a slow disk are dropped from the store beyond this, never from memory.
constexpr size_t kMaxUnwritten = 1024;

}  // namespace

void Events::restore(std::vector<Json> stored) {
  for (Json& event : stored) {
    next_id_ = std::max(next_id_, event.value("id", uint64_t{0}) + 1);
    last_.push_back(std::move(event));
  }
}

void Events::add(const Event& event) {
  uint64_t id = next_id_++;
  auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json record = {{"id", id},
                 {"at", wall_now()},
                 {"kind", event.kind},
                 {"job", or_null(event.job)},
                 {"user", or_null(event.user)},
                 {"message", event.message},
                 {"fields", event.fields}};
  last_.push_back(record);
  while (last_.size() > keep_) last_.pop_front();
  for (auto& [number, follower] : followers_) follower(record);
  if (unwritten_ >= kMaxUnwritten) return;
  ++unwritten_;
  disk_.run([this, id, record = std::move(record)] { return store_.append_event(id, record, keep_); },
            [this](Status status) {
              --unwritten_;
              if (!status && !std::exchange(write_failed_, true)) log_line(status.error().message);
              if (status) write_failed_ = false;
            });
}

Json Events::since(const std::string& at) const {
  Json events = Json::array();
  for (const Json& event : last_)
    if (event.value("at", "") >= at) events.push_back(event);
  return events;
}

uint64_t Events::follow(Follower follower) {
  followers_.emplace(next_follower_, std::move(follower));
  return next_follower_++;
}

}  // namespace berth::daemon
