#include "modes.h"

#include <algorithm>

#include "base/size.h"
#include "timing.h"
#include "work.h"

namespace berth::load {
namespace {

constexpr uint64_t kMiB = 1 << 20;

const char* ended_by() { return stop_requested ? "signal" : "time"; }

Report as_json(const Session& session, const Refusal& refusal) {
  const char* name = nullptr;
  session.driver().cuGetErrorName(refusal.code, &name);
  return {{"call", refusal.call},
          {"code", static_cast<int>(refusal.code)},
          {"name", name ? name : "unknown"},
          {"asked_bytes", refusal.bytes}};
}

// Allocates `bytes` in pieces of --step. A refusal is left for the caller to judge.
std::optional<Refusal> take(Memory* memory, uint64_t bytes, uint64_t step) {
  if (step == 0) step = bytes;
  for (uint64_t left = bytes; left > 0 && !stop_requested; left -= std::min(left, step))
    if (auto refusal = memory->add(std::min(left, step))) return refusal;
  return std::nullopt;
}

// Allocates a mode's working memory, whose refusal is the end of the program.
void take_all(const Session& session, Memory* memory, uint64_t bytes, uint64_t step) {
  auto refusal = take(memory, bytes, step);
  if (!refusal) return;
  throw Error{"refused", std::string(refusal->call) + " of " + format_size(refusal->bytes) + " answered " +
                             session.driver().describe(refusal->code) +
                             "; free here: " + format_size(session.free_bytes())};
}

}  // namespace

Report run_alloc(Session& session, const Options& options, Ready ready) {
  Memory memory(session, options.kind);
  constexpr uint64_t kEndless = uint64_t{1} << 62;
  uint64_t asked = options.bytes ? options.bytes : options.grow ? kEndless : 256 * kMiB;
  uint64_t step = options.step ? options.step : options.grow ? 256 * kMiB : 0;
  auto refusal = take(&memory, asked, step);
  memory.write(options.seed, options.write);
  auto got_at = Clock::now();
  Report report{{"bytes", memory.bytes()},
                {"allocations", memory.blocks().size()},
                {"refusal", refusal ? as_json(session, *refusal) : Report()},
                {"free_bytes", session.free_bytes()}};
  ready(options, report);
  if (!refusal || options.grow) sleep_until(got_at + seconds(options.seconds));
  report["held_seconds"] = rounded(in_seconds(Clock::now() - got_at));
  report["wrong"] = memory.verify(options.seed, options.write);
  report["ended_by"] = refusal && !options.grow ? "refusal" : ended_by();
  return report;
}

Report run_check(Session& session, const Options& options, Ready ready) {
  Memory memory(session, options.kind);
  take_all(session, &memory, options.bytes ? options.bytes : 64 * kMiB, options.step);
  ready(options, {{"bytes", memory.bytes()}});
  auto start = Clock::now(), end = start + seconds(options.seconds);
  uint64_t rounds = 0, wrong = 0;
  do {
    uint32_t seed = options.seed + static_cast<uint32_t>(rounds * 7919);
    memory.write(seed, 0);
    wrong += memory.verify(seed, 0);
    ++rounds;
  } while (Clock::now() < end && !stop_requested);
  return {{"bytes", memory.bytes()},
          {"rounds", rounds},
          {"wrong", wrong},
          {"seconds", rounded(in_seconds(Clock::now() - start))},
          {"ended_by", ended_by()}};
}

Report run_infer(Session& session, const Options& options, Ready ready) {
  Memory memory(session, options.kind);
  take_all(session, &memory, options.bytes ? options.bytes : 64 * kMiB, options.step);
  Work work(session, memory, options.kernels ? options.kernels : 20, options.kernel_us ? options.kernel_us : 50,
            options.graph);
  Arrivals arrivals(options.rate, options.seed);
  ready(options, {{"bytes", memory.bytes()}});
  auto start = Clock::now(), end = start + seconds(options.seconds);
  constexpr auto kDrain = std::chrono::seconds(2);  // for requests that came before the end
  std::vector<double> latencies_ms;
  auto due = start + seconds(arrivals.next_gap());
  for (; due < end && !stop_requested && Clock::now() < end + kDrain; due += seconds(arrivals.next_gap())) {
    sleep_until(due);
    if (stop_requested) break;
    work.submit();
    work.finish();
    latencies_ms.push_back(1000 * in_seconds(Clock::now() - due));
  }
  uint64_t unserved = 0;
  for (auto now = std::min(Clock::now(), end); due < now; due += seconds(arrivals.next_gap())) ++unserved;
  return {{"served", work.done()},
          {"unserved", unserved},
          {"p50_ms", rounded(percentile(&latencies_ms, 0.5))},
          {"p90_ms", rounded(percentile(&latencies_ms, 0.9))},
          {"p99_ms", rounded(percentile(&latencies_ms, 0.99))},
          {"max_ms", rounded(percentile(&latencies_ms, 1))},
          {"bytes", memory.bytes()},
          {"wrong", work.wrong()},
          {"seconds", rounded(in_seconds(Clock::now() - start))},
          {"ended_by", ended_by()}};
}

Report run_train(Session& session, const Options& options, Ready ready) {
  Memory memory(session, options.kind);
  take_all(session, &memory, options.bytes ? options.bytes : 64 * kMiB, options.step);
  Work work(session, memory, options.kernels ? options.kernels : 10, options.kernel_us ? options.kernel_us : 200,
            options.graph);
  ready(options, {{"bytes", memory.bytes()}});
  auto start = Clock::now(), end = start + seconds(options.seconds);
  do {
    work.submit();
    work.finish(Work::kAhead - 1);
  } while (Clock::now() < end && !stop_requested);
  work.finish();
  double took = in_seconds(Clock::now() - start);
  return {{"steps", work.done()},     {"steps_per_s", rounded(static_cast<double>(work.done()) / took)},
          {"bytes", memory.bytes()},  {"wrong", work.wrong()},
          {"seconds", rounded(took)}, {"ended_by", ended_by()}};
}

}  // namespace berth::load
