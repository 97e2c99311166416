// berthd: one event loop owns all state; what blocks runs on two workers. The parts call each other through this
// object.
//
//   Commands  requests of people and scripts      Jobs    admission, processes, end of jobs
//   Guests    attached programs, their memory     Gpus    NVML readings and what follows from them
//   TimeScheduler  gates and turns of attached programs
#pragma once
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <memory>

#include "daemon/commands.h"
#include "daemon/config.h"
#include "daemon/events.h"
#include "daemon/gpus.h"
#include "daemon/guests.h"
#include "daemon/jobs.h"
#include "daemon/listener.h"
#include "daemon/process_watch.h"
#include "daemon/store.h"
#include "daemon/time_scheduler.h"
#include "daemon/worker.h"

namespace berth::daemon {

class Daemon {
 public:
  // `loop` must outlive the daemon and not run after its end.
  Daemon(asio::io_context& loop, Settings settings, std::unique_ptr<GpuSource> source);
  ~Daemon();

  // Stored state, socket, devices. Call before the loop runs; an error leaves nothing behind.
  Status open();

  // Stops serving and lets the loop's run() return.
  void stop();

  // To be called by each handler that has changed accounts or jobs, when it is done: grants what waits, admits from the
  // queue, shows the new figures in the pages, sets the timers.
  void settle();

  // Takes a connection in; the listener's do, and those of fuzzers.
  void serve(UniqueFd socket);

  // The job of a process by its parents and then its cgroup; not by the default job.
  std::optional<policy::JobId> job_of(const std::vector<ProcessId>& chain,
                                      const std::vector<std::string>& cgroups) const;

  asio::io_context& loop;
  const Settings settings;
  policy::State state;
  Store store;
  ProcessWatch processes;
  Worker disk, nvml;
  Events events;
  Jobs jobs;
  Guests guests;
  Gpus gpus;
  TimeScheduler time;
  Commands commands;

 private:
  void first_packet(const std::shared_ptr<Connection>& connection, std::string_view packet);
  bool too_many(const Peer& peer) const;
  void set_idle_timer();

  Listener listener_;
  asio::steady_timer idle_timer_, newcomers_timer_;
  bool idle_timer_set_ = false, settling_ = false, settle_again_ = false, stopped_ = false;
  struct Newcomer {  // a connection that has not said yet what it is
    std::shared_ptr<Connection> connection;
    policy::Time since;
  };
  std::map<Connection*, Newcomer> newcomers_;
  void sweep_newcomers();
  std::map<uid_t, size_t> connections_of_;
  size_t connections_ = 0;
};

}  // namespace berth::daemon
