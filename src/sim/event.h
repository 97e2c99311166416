// Events. A record is one cuEventRecord: what waits for an event waits for the record that was the last one then.
#pragma once
#include "sim/process.h"

namespace berth::sim {

inline constexpr unsigned kEventNoTiming = 2, kEventInterprocess = 4;

struct Record {
  bool done = false;
  int64_t time_ns = 0;
  int shared = -1;      // index of the shared event it belongs to
  uint64_t number = 0;  // there
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  int shared = -1;
  bool made_shared = false;          // here, not opened
  std::shared_ptr<Record> record;    // null: never recorded here
  std::shared_ptr<Capture> capture;  // recorded in a capture
  std::vector<GraphNode*> capture_after;
};

Registry<Event>& events();
// The record that a wait from now on waits for; of an event of several processes the last one anywhere. May be null.
std::shared_ptr<Record> last_record(const Event& event);
std::shared_ptr<Record> new_record(Event& event);
void complete_record(Record& record);
bool is_complete(Record& record);

}  // namespace berth::sim
