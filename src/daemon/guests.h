// Attached programs: who they are, their pages, and the conversation of docs/wire-protocol.md.
#pragma once
#include <asio/steady_timer.hpp>
#include <list>
#include <map>
#include <memory>
#include <set>

#include "daemon/connection.h"
#include "daemon/page.h"
#include "policy/memory.h"
#include "wire/guest_protocol.h"

namespace berth::daemon {

class Daemon;
using policy::ClientId;

class Guests {
 public:
  explicit Guests(Daemon& daemon);

  // The first packet of a connection is a hello, whole or not.
  void hello(const std::shared_ptr<Connection>& connection, std::string_view packet);

  // Before the loop runs: the clients known from before a restart; until they have reported, or 5 s have passed,
  // nothing is granted.
  void restore(const std::vector<ClientId>& clients);
  bool collecting() const { return !unreported_.empty(); }

  // Answers reservations that wait, as far as they can be answered now.
  void settle();
  void reading_done(policy::Time began);

  // Of one job, or of all.
  void update_pages(std::optional<policy::JobId> only = {});
  void clients_changed() { pids_stale_ = true; }
  void process_ended(ProcessId process);
  bool is_attached(ClientId client) const { return sessions_.contains(client); }

  bool is_partly_covered(ClientId client) const {
    auto it = sessions_.find(client);
    return it != sessions_.end() && it->second.partly_covered;
  }

 private:
  struct Session {
    std::shared_ptr<Connection> connection;
    ClientId client = 0;
    policy::JobId job = 0;
    Page page;
    // What the numbers of devices in its messages about memory mean: the job's virtual devices if it has any, else the
    // guest's ordinals (none: a device that we don't know).
    std::vector<std::optional<policy::Place>> places;
    bool may_report = false;   // holdings are only taken before the first other message
    bool reporting = false;
    std::optional<policy::Time> over_quota_told;
    uint64_t over_quota_untold = 0;
    policy::Time noticed{0};  // events from its notices: at most ten a second
    int notices = 0;
    bool partly_covered = false;
  };
  struct Parked {
    ClientId client = 0;
    uint32_t sequence = 0;
    policy::Place place{0};
    policy::Ask ask;
    policy::Time since{0};
    bool of_all = false;   // what any client releases may help
    bool drained = false;  // all pending packets of those who could release have been read
    bool read = false;     // NVML has been read since
  };

  static constexpr size_t kMaxParked = 4096;

  void refuse(const std::shared_ptr<Connection>& connection, wire::RefusedWhy why);
  void attach(const std::shared_ptr<Connection>& connection, const wire::Hello& hello, OpenProcess process,
              policy::JobId job, std::vector<int> devices);
  void packet(Session& session, std::string_view packet);
  void on_holdings(Session& session, const wire::Holdings& message);
  void on_reserve(Session& session, const wire::Reserve& message);
  void on_release(Session& session, const wire::Release& message);
  void on_refresh(Session& session, const wire::Refresh& message);
  void on_mapped(Session& session, const wire::Mapped& message);
  void on_active(Session& session, const wire::Active& message);
  void on_notice(Session& session, const wire::Notice& message);
  std::optional<policy::Place> place_of(const Session& session, uint32_t number) const;
  void end_report(Session& session);
  void reported(ClientId client);
  void closed(ClientId client, const std::shared_ptr<Connection>& connection);
  void malformed(const std::shared_ptr<Connection>& connection, const std::string& what, ClientId client = 0);
  void drain(const Parked& parked);
  bool answer(Parked& parked);
  void send_grant(const Parked& parked, const policy::Answer& answer);
  void tell_refused(Session& session, const Parked& parked, const policy::Answer& answer);
  void tell_unavailable(const Parked& parked, const policy::Answer& answer);
  void fill_page(Session& session);
  void update_pids();

  Daemon& daemon_;
  std::map<ClientId, Session> sessions_;
  std::list<Parked> parked_;
  std::set<ClientId> unreported_;
  asio::steady_timer report_timer_, parked_timer_;
  bool parked_timer_set_ = false;
  bool pids_stale_ = false;  // a client has come or gone
  uint64_t malformed_ = 0;
  policy::Time malformed_told_{0};
};

}  // namespace berth::daemon
