#include "daemon/store.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <memory>

namespace berth::daemon {
namespace {

struct Finalize {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Statement = std::unique_ptr<sqlite3_stmt, Finalize>;

Statement prepare(sqlite3* db, const char* sql) {
  sqlite3_stmt* statement = nullptr;
  sqlite3_prepare_v2(db, sql, -1, &statement, nullptr);
  return Statement(statement);
}

void bind(sqlite3_stmt* statement, int place, int64_t value) { sqlite3_bind_int64(statement, place, value); }
void bind(sqlite3_stmt* statement, int place, const std::string& value) {
  sqlite3_bind_text(statement, place, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT);
}

int64_t number(uint64_t value) { return static_cast<int64_t>(value); }

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

constexpr int kBusyPatience = 2000;  // milliseconds

constexpr const char* kSchema = R"(
  pragma locking_mode = exclusive;
  pragma journal_mode = wal;
  pragma synchronous = normal;
  pragma cache_size = -256;
  create table if not exists facts(name text primary key, value text) without rowid;
  create table if not exists jobs(id integer primary key, record text not null);
  create table if not exists clients(
    pid integer, start_time integer, job integer, primary key(pid, start_time)) without rowid;
  create table if not exists events(id integer primary key, record text not null);
)";

}  // namespace

Store::~Store() { sqlite3_close(db_); }

Error Store::failed() const {
  auto error = [&](const std::string& what, const std::string& advice) {
    return Error{"internal", what + " " + file_ + (db_ ? ": " + std::string(sqlite3_errmsg(db_)) : "") + "; " + advice};
  };
  switch (db_ ? sqlite3_errcode(db_) : SQLITE_NOMEM) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {"internal", "another process uses the daemon's state " + file_ +
                              "; end it if it is a daemon, or choose a socket of another name with --socket or BERTH_SOCKET"};
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return error("cannot read the daemon's state", "remove the file: running jobs are then forgotten");
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return error("cannot open the daemon's state",
                   "it must be a file that you can write to: remove it, or choose another --socket or BERTH_SOCKET");
    case SQLITE_NOMEM:
      return error("no memory for the daemon's state", "end something and try again");
    default:
      return error("cannot write the daemon's state", "free some space there, or choose another --socket or BERTH_SOCKET");
  }
}

Status Store::open(const std::string& file, const std::string& boot) {
  file_ = file;
  mode_t before = ::umask(0077);
  int code =
      sqlite3_open_v2(file.c_str(), &db_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (code == SQLITE_OK) sqlite3_busy_timeout(db_, kBusyPatience);  // a daemon that is just ending
  if (code == SQLITE_OK) code = sqlite3_exec(db_, kSchema, nullptr, nullptr, nullptr);
  ::umask(before);
  if (code != SQLITE_OK) return failed();
  std::string known;
  if (auto statement = prepare(db_, "select value from facts where name = 'boot'");
      statement && sqlite3_step(statement.get()) == SQLITE_ROW)
    known = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), 0));
  if (known != boot &&
      sqlite3_exec(db_, "delete from jobs; delete from clients;", nullptr, nullptr, nullptr) != SQLITE_OK)
    return failed();
  // Also when nothing has changed: a full disk shows now, not when the first job comes.
  return run("insert or replace into facts values('boot', ?)", boot);
}

template <class... Values>
Status Store::run(const char* sql, const Values&... values) {
  auto statement = prepare(db_, sql);
  if (!statement) return failed();
  int place = 0;
  (bind(statement.get(), ++place, values), ...);
  if (sqlite3_step(statement.get()) != SQLITE_DONE) return failed();
  return Ok{};
}

Result<std::vector<Json>> Store::load(const char* sql, int64_t limit) {
  auto statement = prepare(db_, sql);
  if (!statement) return failed();
  bind(statement.get(), 1, limit);
  std::vector<Json> records;
  int code;
  while ((code = sqlite3_step(statement.get())) == SQLITE_ROW) {
    const char* text = reinterpret_cast<const char*>(sqlite3_column_text(statement.get(), 0));
    if (Json record = Json::parse(text ? text : "", nullptr, false); record.is_object())
      records.push_back(std::move(record));
  }
  if (code != SQLITE_DONE) return failed();
  return records;
}

Status Store::save_job(uint64_t id, const Json& job) {
  return run("insert or replace into jobs values(?, ?)", number(id), text_of(job));
}

Status Store::remove_job(uint64_t id) { return run("delete from jobs where id = ?", number(id)); }

Result<std::vector<Json>> Store::load_jobs() { return load("select record from jobs order by id limit ?", -1); }

Status Store::save_client(const StoredClient& client) {
  return run("insert or replace into clients values(?, ?, ?)", int64_t{client.process.pid},
             number(client.process.start_time), number(client.job));
}

Status Store::remove_client(ProcessId process) {
  return run("delete from clients where pid = ? and start_time = ?", int64_t{process.pid}, number(process.start_time));
}

Result<std::vector<StoredClient>> Store::load_clients() {
  auto statement = prepare(db_, "select pid, start_time, job from clients");
  if (!statement) return failed();
  std::vector<StoredClient> clients;
  while (sqlite3_step(statement.get()) == SQLITE_ROW)
    clients.push_back({{static_cast<pid_t>(sqlite3_column_int64(statement.get(), 0)),
                        static_cast<uint64_t>(sqlite3_column_int64(statement.get(), 1))},
                       static_cast<uint64_t>(sqlite3_column_int64(statement.get(), 2))});
  return clients;
}

Status Store::append_event(uint64_t id, const Json& event, size_t keep) {
  if (auto status = run("insert or replace into events values(?, ?)", number(id), text_of(event)); !status)
    return status;
  if (id % 64 != 0) return Ok{};
  return run("delete from events where id <= ?", number(id) - static_cast<int64_t>(keep));
}

Result<std::vector<Json>> Store::load_events(size_t keep) {
  return load("select record from (select id, record from events order by id desc limit ?) order by id",
              static_cast<int64_t>(keep));
}

}  // namespace berth::daemon
