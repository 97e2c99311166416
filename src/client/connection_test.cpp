#include "client/connection.h"

#include <gtest/gtest.h>

#include <fstream>

#include "client/fake_daemon.h"
#include "client/job.h"

namespace berth::client {
namespace {

using Packets = std::vector<std::string>;

struct ConnectionTest : ::testing::Test {
  TestFolder folder;
  std::string socket = folder.file("s");
};

}  // namespace

TEST_F(ConnectionTest, RequestAndReply) {
  FakeDaemon daemon(socket, [](const std::string& text) { return Packets{FakeDaemon::reply(text)}; });
  auto connection = Connection::open(socket);
  ASSERT_TRUE(connection.ok());
  EXPECT_EQ(connection->daemon_pid(), ::getpid());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(connection->request({{"op", "status"}, {"i", i}}).value()["i"], i);
}

TEST_F(ConnectionTest, RepliesInPiecesAndEventsBefore) {
  std::string big(150000, 'x');
  FakeDaemon daemon(socket, [&](const std::string&) {
    Packets packets{FakeDaemon::event(R"({"event":"queued","position":1})")};
    for (auto& piece : wire::control_reply_packets(Json{{"text", big}}.dump())) packets.push_back(piece);
    packets.push_back(FakeDaemon::event(R"({"event":"message"})"));
    return packets;
  });
  auto connection = Connection::open(socket);
  ASSERT_TRUE(connection.ok());
  std::vector<std::string> events;
  connection->on_event([&](const Json& event) { events.push_back(event["event"]); });
  EXPECT_EQ(connection->request({{"op", "ps"}}).value()["text"], big);
  EXPECT_EQ(events, (Packets{"queued"}));
  EXPECT_TRUE(connection->wait_event(std::chrono::seconds(10)).ok());
  EXPECT_EQ(events.back(), "message");
}

TEST_F(ConnectionTest, ErrorsOfTheDaemonKeepTheirCode) {
  FakeDaemon daemon(socket, [](const std::string&) {
    return Packets{FakeDaemon::reply(R"({"error":{"code":"unknown_job","message":"there is no job x"}})")};
  });
  auto reply = Connection::open(socket)->request({{"op", "set"}});
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, "unknown_job");
  EXPECT_EQ(reply.error().message, "there is no job x");
}

TEST_F(ConnectionTest, NobodyThere) {
  EXPECT_EQ(Connection::open(socket).error().code, "unreachable");
  { FakeDaemon gone(socket, [](const std::string&) { return Packets{}; }); }
  EXPECT_EQ(Connection::open(socket).error().code, "unreachable");  // a stale socket
}

TEST_F(ConnectionTest, WhatIsNotOurSocketIsLeftAlone) {
  std::ofstream(socket) << "text";
  auto connection = Connection::open(socket);
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().code, "internal");
  EXPECT_NE(connection.error().message.find("is not berth's socket"), std::string::npos);
}

TEST_F(ConnectionTest, TooLongAPath) {
  auto connection = Connection::open(folder.file(std::string(120, 'x')));
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.error().code, "internal");
}

TEST_F(ConnectionTest, HangsUpOrTalksNonsense) {
  for (const std::string& answer : {std::string(), std::string("noise"), wire::control_packet(wire::MessageType::control_request, "{}"), FakeDaemon::reply("{\"cut"), FakeDaemon::reply("[1]"),
                                    FakeDaemon::reply("{}").substr(0, 17)}) {
    ::unlink(socket.c_str());
    FakeDaemon daemon(socket, [&](const std::string&) { return answer.empty() ? Packets{} : Packets{answer}; });
    auto reply = Connection::open(socket)->request({{"op", "status"}});
    ASSERT_FALSE(reply.ok()) << answer;
    EXPECT_EQ(reply.error().code, answer.empty() ? "lost" : "version") << answer;
    EXPECT_EQ(reply.error().message.find("is no berth daemon") == std::string::npos, answer.empty()) << answer;
  }
}

TEST_F(ConnectionTest, AnotherMajorIsNamed) {
  FakeDaemon daemon(socket, [](const std::string&) {
    wire::Header header{wire::kMagic, wire::kMajor + 1, wire::MessageType::control_reply, sizeof header, 0};
    return Packets{std::string(reinterpret_cast<char*>(&header), sizeof header)};
  });
  auto reply = Connection::open(socket)->request({{"op", "status"}});
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, "version");
  EXPECT_NE(reply.error().message.find("speaks protocol 2 and this command 1"), std::string::npos);
}

TEST_F(ConnectionTest, SilenceEndsInATimeout) {
  FakeDaemon daemon(socket, [](const std::string&) { return Packets{FakeDaemon::event("{}")}; });
  auto reply = Connection::open(socket)->request({{"op", "status"}}, std::chrono::milliseconds(20));
  ASSERT_FALSE(reply.ok());
  EXPECT_EQ(reply.error().code, "timeout");
}

TEST_F(ConnectionTest, AdmissionPassesTheQueueOn) {
  FakeDaemon daemon(socket, [](const std::string& text) {
    EXPECT_EQ(Json::parse(text)["wait_seconds"], -1);
    return Packets{FakeDaemon::event(R"({"event":"queued","position":2,"waiting_for":"x"})"),
                   FakeDaemon::reply(R"({"job":7,"name":"a-1","notes":["bob's daemon"]})")};
  });
  auto connection = Connection::open(socket);
  JobRequest request;
  request.command = {"a"};
  request.wait_seconds = -1;
  int position = 0;
  pid_t daemon_started = 0;
  auto admission = admit(&*connection, request, [&](const Json& event) { position = event["position"]; },
                         &daemon_started);
  ASSERT_TRUE(admission.ok());
  EXPECT_EQ(admission->job, 7);
  EXPECT_EQ(admission->name, "a-1");
  EXPECT_EQ(admission->notes, (Packets{"bob's daemon"}));
  EXPECT_EQ(position, 2);
}

}  // namespace berth::client
