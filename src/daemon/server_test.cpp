// The daemon as a server: its socket, its life, hostile peers, the system service, containers.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <fstream>

#include "daemon/testing/bench.h"
#include "daemon/users.h"
#include "wire/control.h"

namespace berth::daemon {

using ServerTest = DaemonTest;

namespace {

UniqueFd plain_connection(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
  return fd;
}

template <class Message>
Message exchange(const std::string& path, const void* packet, size_t size) {
  UniqueFd fd = plain_connection(path);
  ::send(fd.get(), packet, size, MSG_NOSIGNAL);
  Message answer{};
  ::recv(fd.get(), &answer, sizeof answer, 0);
  return answer;
}

}  // namespace

TEST_F(ServerTest, OneDaemonASocketAndAStaleOneIsReplaced) {
  start();
  asio::io_context loop;
  {
    Daemon second(loop, settings_, make_fake_source(gpus_));
    auto status = second.open();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, "refused");
    EXPECT_NE(status.error().message.find("already listening on " + socket_), std::string::npos);
  }
  EXPECT_TRUE(ps().contains("jobs"));  // the first one is untouched
  stop();
  EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
  // A socket that nobody listens on any more.
  UniqueFd stale(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(socket_.begin(), socket_.end(), address.sun_path);
  ASSERT_EQ(::bind(stale.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  stale.reset();
  start();
  EXPECT_TRUE(ps().contains("jobs"));
}

TEST_F(ServerTest, APlaceThatWontDoIsNamed) {
  auto error_of = [&](const std::string& path) {
    asio::io_context loop;
    Settings settings = settings_;
    settings.socket = path;
    Daemon daemon(loop, settings, make_fake_source(gpus_));
    auto status = daemon.open();
    return status ? std::string() : status.error().message;
  };
  EXPECT_NE(error_of(folder_ + "/" + std::string(120, 'x')).find("shorter"), std::string::npos);
  EXPECT_NE(error_of(folder_ + "/missing/berth.sock").find("the folder " + folder_ + "/missing does not exist"),
            std::string::npos);
  std::ofstream(folder_ + "/file") << "x";
  EXPECT_NE(error_of(folder_ + "/file").find("no socket"), std::string::npos);
  std::ifstream kept(folder_ + "/file");
  EXPECT_EQ(kept.get(), 'x');
}

TEST_F(ServerTest, AnotherMajorIsToldSo) {
  start();
  auto hello = wire::make_message<wire::Hello>();
  hello.header.major = 9;
  auto refused = exchange<wire::Refused>(socket_, &hello, sizeof hello);
  EXPECT_EQ(refused.header.type, wire::MessageType::refused);
  EXPECT_EQ(refused.why, wire::RefusedWhy::version);
  std::string request = wire::control_packet(wire::MessageType::control_request, "{}");
  request[4] = 9;
  UniqueFd fd = plain_connection(socket_);
  ::send(fd.get(), request.data(), request.size(), 0);
  char buffer[4096];
  ssize_t size = ::recv(fd.get(), buffer, sizeof buffer, 0);
  ASSERT_GT(size, 0);
  EXPECT_NE(std::string(buffer, static_cast<size_t>(size)).find("\"version\""), std::string::npos);
}

TEST_F(ServerTest, NoiseAndFloodsHarmNobody) {
  start();
  Job a = job({{"memory", "1G"}});
  a.root.say("attach client " + device_uuid());
  for (size_t size : {size_t{0}, size_t{1}, size_t{16}, size_t{700}, size_t{61440}}) {
    UniqueFd fd = plain_connection(socket_);
    std::string noise(size, '\xff');
    ::send(fd.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    char c[600];
    while (::recv(fd.get(), c, sizeof c, 0) > 0) {
    }
  }
  std::string deep(50000, '[');
  for (const std::string& text :
       {deep, std::string("{\"op\":"), std::string("{\"op\":\"ps\",\"all\":1e999}"), std::string("\xff\xfe")}) {
    UniqueFd fd = plain_connection(socket_);
    std::string packet = wire::control_packet(wire::MessageType::control_request, text);
    ::send(fd.get(), packet.data(), packet.size(), MSG_NOSIGNAL);
    char buffer[4096];
    EXPECT_GT(::recv(fd.get(), buffer, sizeof buffer, 0), 0) << text.substr(0, 30);
  }
  // One that asks and never listens is cut off before it costs much memory.
  UniqueFd deaf = plain_connection(socket_);
  std::string request = wire::control_packet(wire::MessageType::control_request, R"({"op":"ps"})");
  ::fcntl(deaf.get(), F_SETFL, O_NONBLOCK);
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 1000; ++i)
      if (::send(deaf.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN) return true;
    return false;
  }));
  // Many that say nothing don't keep others out.
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(plain_connection(socket_));
  EXPECT_EQ(a.root.say("reserve 0 0 4096").substr(0, 12), "granted 4096");
}

TEST_F(ServerTest, AUsersOwnDaemonEndsAfterItsLastJob) {
  settings_.idle_seconds = 0.05;
  start();
  thread_.join();
  thread_ = std::thread([] {});
  EXPECT_NE(::access(socket_.c_str(), F_OK), 0);
  stop();
  settings_.idle_seconds = 0.3;
  start();
  Job a = job();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(ps()["jobs"].size(), 1u);  // not while a job lives
  a.root.end();
  a.command->ask({{"op", "finish"}, {"job", a.admitted["job"]}, {"exit_code", 0}});
  EXPECT_TRUE(eventually([&] { return ::access(socket_.c_str(), F_OK) != 0; }));
}

TEST_F(ServerTest, AnIdleDaemonReadsNothing) {
  start();
  int before = gpus_->count_readings();
  ps();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(gpus_->count_readings(), before);
}

TEST_F(ServerTest, WhatReadingNeedsIsPutAwayWithTheLastJob) {
  start();
  std::optional<Job> a = job();
  auto read_anew = [&] {
    int before = gpus_->count_readings();
    on_loop([&] { return daemon_->gpus.request(), 0; });
    return eventually([&] { return gpus_->count_readings() > before; });
  };
  EXPECT_TRUE(read_anew());
  int before = gpus_->count_rests();  // once, before there was a job
  EXPECT_TRUE(read_anew());
  EXPECT_EQ(gpus_->count_rests(), before);
  EXPECT_EQ(a->command->ask({{"op", "finish"}, {"job", a->admitted["job"]}, {"exit_code", 0}}), Json::object());
  a.reset();  // its program, too
  EXPECT_TRUE(eventually([&] { return gpus_->count_rests() > before; }));
}

TEST(GpusPace, ReadingsBecomeRareWhileNothingChangesAndOnlyThen) {
  policy::Time pace = kUsual;
  for (int i = 0; i < 10; ++i) {
    policy::Time next = next_pace(pace, false);
    EXPECT_TRUE(next > pace || next == kCalm);
    pace = next;
  }
  EXPECT_EQ(pace, kCalm);
  EXPECT_EQ(next_pace(pace, true), kUsual);
}

TEST_F(ServerTest, StopIsRefusedWhileJobsRun) {
  start();
  Job a = job();
  EXPECT_EQ(Command(socket_).ask({{"op", "stop"}})["error"]["code"], "refused");
  EXPECT_EQ(Command(socket_).ask({{"op", "stop"}, {"force", true}}), Json::object());
  EXPECT_TRUE(eventually([&] { return ::access(socket_.c_str(), F_OK) != 0; }));
}

TEST_F(ServerTest, WithoutADeviceAdmissionSaysWhy) {
  gpus_->devices.clear();
  start();
  Command command(socket_);
  Json reply = admit(command, {{"memory", "1G"}});
  EXPECT_EQ(reply["error"]["code"], "no_device");
  EXPECT_EQ(reply["error"]["message"], "no fake device");
  EXPECT_EQ(command.ask({{"op", "status"}})["no_device"], "no fake device");
  EXPECT_TRUE(command.ask({{"op", "gpus"}})["devices"].empty());
  // The driver may be loaded later.
  {
    std::lock_guard lock(gpus_->mutex);
    gpus_->devices.resize(1);
  }
  EXPECT_TRUE(admit(command, {{"memory", "1G"}}).contains("job"));
  EXPECT_EQ(command.ask({{"op", "status"}})["no_device"], nullptr);
}

TEST_F(ServerTest, FiguresAreReadAgainBeforeAnAdmission) {
  start();
  std::this_thread::sleep_for(std::chrono::milliseconds(1050));  // older than what counts as fresh
  gpus_->set(1, 10 * kGiB);
  Command command(socket_);
  EXPECT_EQ(admit(command, {{"memory", "8G"}})["error"]["code"], "refused");
  EXPECT_EQ(command.ask({{"op", "gpus"}})["devices"][0]["used_bytes"], 10 * kGiB);
}

TEST_F(ServerTest, UnreadableDevicesAreToldOnce) {
  start();
  Job a = job();
  gpus_->fails = true;
  for (int i = 0; i < 3; ++i) {
    int before = gpus_->count_readings();
    on_loop([&] { return daemon_->gpus.request(), 0; });
    EXPECT_TRUE(eventually([&] { return gpus_->count_readings() > before; }));
  }
  EXPECT_TRUE(eventually([&] { return events("devices_unreadable").size() == 1; }));
}

TEST_F(ServerTest, ASecondDaemonOnADeviceSaysWhoHoldsIt) {
  start();
  Settings settings = settings_;
  settings.socket = folder_ + "/second.sock";
  settings.state_file = folder_ + "/second.db";
  asio::io_context loop;
  Daemon second(loop, settings, make_fake_source(gpus_));
  ASSERT_TRUE(second.open().ok());
  ASSERT_TRUE(second.gpus.locked_by(0).has_value());
  EXPECT_EQ(second.gpus.locked_by(0)->pid, ::getpid());
  std::thread thread([&] { loop.run(); });
  Command command(settings.socket);
  Json reply = admit(command, {{"memory", "1G"}});
  std::string text = "another berth daemon, that of " + user_name(::getuid()) + " (process " +
                     std::to_string(::getpid()) + "), shares out GPU 0 too; what its jobs hold counts as unmanaged here";
  EXPECT_EQ(reply["notes"], Json::array({text}));
  EXPECT_TRUE(admit(command, {{"memory", "1G"}})["notes"].empty());  // said once
  Json told = Json::array(), all = command.ask({{"op", "events"}});
  for (const Json& event : all["events"])
    if (event["kind"] == "shared_device") told.push_back(event["message"]);
  EXPECT_EQ(told, Json::array({text}));
  EXPECT_TRUE(Command(settings.socket).ask({{"op", "status"}})["devices"][0]["held_by"].is_string());
  const std::string uuid = on_loop([&] { return daemon_->state.devices[0].uuid_text; });
  // More daemons than fit the backlog of the lock may look whose it is.
  for (int i = 0; i < 200; ++i) {
    LockHolder holder;
    EXPECT_FALSE(lock_device(uuid, &holder));
    EXPECT_EQ(holder.pid, ::getpid());
    on_loop([&] { return daemon_->gpus.lock_devices(), 0; });
  }
  stop();  // the first one lets go, and the next admission sees it
  EXPECT_TRUE(admit(command, {{"memory", "1G"}})["notes"].empty());
  asio::post(loop, [&] { second.stop(); });
  thread.join();
}

TEST_F(ServerTest, InTheSystemServiceProgramsBelongToTheirUsersDefaultJob) {
  settings_.system = true;
  settings_.config.default_limits.max_memory = "4G";
  start();
  struct stat info;
  ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0666u);
  Program first(socket_), second(socket_);
  EXPECT_EQ(first.say("attach client " + device_uuid()), "welcome fresh");
  EXPECT_EQ(second.say("attach client " + device_uuid()), "welcome fresh");
  EXPECT_EQ(first.say("reserve 0 0 " + std::to_string(3 * kGiB)).substr(0, 7), "granted");
  EXPECT_EQ(second.say("reserve 0 0 " + std::to_string(2 * kGiB)), "over_quota 0 " + std::to_string(kGiB));
  Json shown = job_in_ps("default");
  EXPECT_EQ(shown["user"], user_name(::getuid()));
  EXPECT_EQ(shown["clients"].size(), 2u);
  first.end();
  second.end();
  EXPECT_TRUE(eventually([&] { return job_in_ps("default").is_null(); }));
}

TEST_F(ServerTest, AContainerIsKnownByItsCgroup) {
  start();
  Command command(socket_);
  EXPECT_EQ(command.ask({{"op", "register_container"}, {"cgroup", "relative"}})["error"]["code"], "usage");
  EXPECT_EQ(command.ask({{"op", "register_container"}, {"cgroup", "/a/../b"}})["error"]["code"], "usage");
  EXPECT_EQ(command.ask({{"op", "register_container"}, {"cgroup", "/"}})["error"]["code"], "usage");
  Json reply =
      command.ask({{"op", "register_container"}, {"name", "box"}, {"cgroup", "/berth.test/box/"}, {"memory", "2G"}});
  ASSERT_EQ(reply["name"], "box");
  EXPECT_EQ(reply["devices"][0]["quota_bytes"], 2 * kGiB);
  auto job_at = [&](const std::string& cgroup) {
    return on_loop([&] { return daemon_->job_of({}, {"/user.slice", cgroup}); });
  };
  EXPECT_EQ(job_at("/berth.test/box"), reply["job"].get<uint64_t>());
  EXPECT_EQ(job_at("/berth.test/box/inner"), reply["job"].get<uint64_t>());
  EXPECT_FALSE(job_at("/berth.test/box2"));
  EXPECT_FALSE(job_at("/berth.test"));
  // It may be registered before it starts, and outlives the command that registered it.
  command.close();
  on_loop([&] { return daemon_->jobs.tick(), 0; });
  EXPECT_EQ(job_in_ps("box")["cgroup"], "/berth.test/box");
  EXPECT_EQ(Command(socket_).ask({{"op", "kill"}, {"name", "box"}})["signalled"], 0);
  EXPECT_TRUE(job_in_ps("box").is_null());  // given up before it started
  // A container that this process is in.
  std::vector<std::string> groups = cgroups_of(::getpid());
  std::string own = groups.empty() ? "" : groups.front();
  if (own.size() < 2) return;
  Command second(socket_);
  second.ask({{"op", "register_container"}, {"name", "own"}, {"cgroup", own}, {"memory", "1G"}});
  Program program(socket_);
  EXPECT_EQ(program.say("attach client " + device_uuid()), "welcome fresh");
  EXPECT_EQ(program.say("reserve 0 0 4096"), "granted 4096 " + std::to_string(kGiB - 4096));
}

}  // namespace berth::daemon
