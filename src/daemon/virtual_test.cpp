// Jobs with virtual devices, and their programs.
#include <csignal>
#include <set>
#include <sstream>

#include "daemon/testing/bench.h"
#include "wire/virtual_device.h"

namespace berth::daemon {

using VirtualTest = DaemonTest;

namespace {

const std::string kAttach = "attach client " + device_uuid();

std::string number(uint64_t value) { return std::to_string(value); }
std::string reserve(uint32_t v, uint64_t bytes) { return "reserve " + number(v) + " 0 " + number(bytes); }
std::string granted(uint64_t bytes, uint64_t left) { return "granted " + number(bytes) + " " + number(left); }

// The figures of a page's device: total, free, used, leaving.
std::vector<uint64_t> page_of(Program& program, uint32_t v) {
  std::istringstream text(program.say("page " + number(v)));
  std::vector<uint64_t> figures(4);
  for (uint64_t& figure : figures) text >> figure;
  return figures;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) result.push_back(word);
  return result;
}

// "GPU-0011..." -> "0011..."
std::string hex(const Json& uuid) {
  std::string text;
  for (char c : uuid.get<std::string>().substr(4))
    if (c != '-') text += c;
  return text;
}

bool has(const Json& text, const std::string& part) { return text.get<std::string>().find(part) != std::string::npos; }

}  // namespace

TEST_F(VirtualTest, BusIdsAreOfADomainOfTheirOwn) {
  char text[wire::kBusIdText];
  wire::virtual_bus_id(0, text);
  EXPECT_STREQ(text, "0000BE00:01:00.0");
  wire::virtual_bus_id(31, text);
  EXPECT_STREQ(text, "0000BE00:20:00.0");
}

TEST_F(VirtualTest, APageHasThemAllWhateverTheProgramLists) {
  start();
  Job a = job({{"memory", "3G"}, {"gpus", 4}});
  ASSERT_EQ(a.admitted["virtual_devices"].size(), 4u) << a.admitted;
  EXPECT_EQ(a.admitted["devices"][0]["quota_bytes"], 12 * kGiB);
  EXPECT_EQ(a.admitted["visible_devices"], "0,1,2,3");
  Program viewer = a.root.spawn();
  EXPECT_EQ(a.root.say(kAttach), "welcome fresh");
  EXPECT_EQ(viewer.say("attach viewer"), "welcome fresh");
  std::vector<std::string> shown = words(a.root.say("devices"));
  EXPECT_EQ(words(viewer.say("devices")), shown);
  ASSERT_EQ(shown.size(), 5u);
  EXPECT_EQ(shown[0], "4");
  std::set<std::string> different;
  for (uint32_t v = 0; v < 4; ++v) {
    const Json& told = a.admitted["virtual_devices"][v];
    EXPECT_EQ(shown[v + 1], hex(told["uuid"]) + ":" + device_uuid());
    std::string uuid = told["uuid"];  // version and variant of RFC 4122
    EXPECT_EQ(uuid.size(), 40u);
    EXPECT_EQ(uuid[18], '4') << uuid;
    EXPECT_NE(std::string("89ab").find(uuid[23]), std::string::npos) << uuid;
    different.insert(uuid);
    EXPECT_EQ(told["bus_id"], "0000BE00:0" + number(v + 1) + ":00.0");
    EXPECT_EQ(told["device_index"], 0);
    EXPECT_EQ(page_of(viewer, v), (std::vector<uint64_t>{3 * kGiB, 3 * kGiB, 0, 0}));
  }
  EXPECT_EQ(different.size(), 4u);
  Job b = job({{"memory", "1G"}, {"gpus", 1}});
  EXPECT_FALSE(different.contains(b.admitted["virtual_devices"][0]["uuid"]));
  Json admitted = events("job_admitted").front();
  EXPECT_TRUE(has(admitted["message"], "GPU 0 4 virtual devices of 3 GiB (12 GiB in all)")) << admitted;
  EXPECT_EQ(admitted["fields"]["virtual_devices"].size(), 4u);
}

TEST_F(VirtualTest, AJobWithoutThemSeesItsDevicesAsBefore) {
  start();
  Job a = job({{"memory", "3G"}});
  a.root.say(kAttach);
  EXPECT_EQ(a.root.say("devices"), "0 " + device_uuid() + ":" + device_uuid());
  Json shown = job_in_ps("python3-1");
  EXPECT_EQ(shown["gpus"], nullptr);
  EXPECT_EQ(shown["virtual_devices"], Json::array());
}

TEST_F(VirtualTest, EachKeepsItsOwnQuotaAndIsShownSo) {
  start();
  Job a = job({{"memory", "3G"}, {"gpus", 2}});
  Program other = a.root.spawn();
  a.root.say(kAttach);
  other.say(kAttach);
  EXPECT_EQ(a.root.say(reserve(0, 2 * kGiB)), granted(2 * kGiB, kGiB));
  EXPECT_EQ(other.say(reserve(0, 2 * kGiB)), "over_quota 0 " + number(kGiB));
  EXPECT_EQ(other.say(reserve(1, 3 * kGiB)), granted(3 * kGiB, 0));
  EXPECT_EQ(page_of(other, 0), (std::vector<uint64_t>{3 * kGiB, kGiB, 2 * kGiB, 0}));
  EXPECT_EQ(page_of(a.root, 1), (std::vector<uint64_t>{3 * kGiB, 0, 3 * kGiB, 0}));
  Json told = events("over_quota").front();
  EXPECT_TRUE(has(told["message"],
                  "asked for 2 GiB on virtual GPU 0 (GPU 0) and was refused: python3-1 uses 2 GiB of its "
                  "quota of 3 GiB there"))
      << told;
  EXPECT_EQ(told["fields"]["device"], 0);
  EXPECT_EQ(told["fields"]["virtual_device"], 0);
  Json shown = job_in_ps("python3-1");
  EXPECT_EQ(shown["gpus"], 2);
  EXPECT_EQ(shown["devices"][0]["used_bytes"], 5 * kGiB);
  EXPECT_EQ(shown["devices"][0]["available_bytes"], kGiB);
  EXPECT_EQ(shown["virtual_devices"][0]["used_bytes"], 2 * kGiB);
  EXPECT_EQ(shown["virtual_devices"][1]["available_bytes"], 0);
  EXPECT_EQ(shown["clients"][0]["virtual_devices"],
            (Json{{{"index", 0}, {"used_bytes", 2 * kGiB}, {"overhead_bytes", 0}}}));
  EXPECT_EQ(shown["clients"][1]["virtual_devices"][0]["index"], 1);
  Json gpus = Command(socket_).ask({{"op", "gpus"}});
  EXPECT_EQ(gpus["devices"][0]["jobs"][0]["virtual_devices"], (Json{0, 1}));
  // What one has released another can have on the same virtual device only.
  EXPECT_EQ(other.say("release 1 0 " + number(kGiB)), "ok");
  EXPECT_EQ(a.root.say(reserve(0, 2 * kGiB)), "over_quota 0 " + number(kGiB));
  EXPECT_EQ(a.root.say(reserve(1, kGiB)), granted(kGiB, 0));
}

TEST_F(VirtualTest, WhatADeadProgramHeldIsFreeOnItsVirtualDeviceOnly) {
  start();
  Job a = job({{"memory", "3G"}, {"gpus", 2}});
  Program victim = a.root.spawn();
  a.root.say(kAttach);
  victim.say(kAttach);
  victim.say(reserve(0, kGiB));
  victim.say(reserve(1, 3 * kGiB));
  gpus_->set(victim.pid, 4 * kGiB);
  pid_t pid = victim.pid;
  victim.end();
  EXPECT_TRUE(eventually([&] {
    return page_of(a.root, 1) == std::vector<uint64_t>({3 * kGiB, 3 * kGiB, 0, 3 * kGiB});
  }));
  EXPECT_EQ(page_of(a.root, 0), (std::vector<uint64_t>{3 * kGiB, 3 * kGiB, 0, kGiB}));
  EXPECT_EQ(job_in_ps("python3-1")["virtual_devices"][1]["leaving_bytes"], 3 * kGiB);
  a.root.tell(reserve(1, 3 * kGiB));  // waits for what leaves
  gpus_->remove(pid);
  EXPECT_EQ(a.root.hear(), granted(3 * kGiB, 0));
}

TEST_F(VirtualTest, SeveralDevicesCarryThem) {
  gpus_->devices.resize(2);
  start();
  Job a = job({{"memory", "2G"}, {"gpus", 3}});
  for (uint32_t v : {0u, 1u, 2u}) EXPECT_EQ(a.admitted["virtual_devices"][v]["device_index"], v % 2);
  // It lists one device only, and all are there all the same; time is by its own ordinals.
  EXPECT_EQ(a.root.say("attach client " + device_uuid(1)), "welcome fresh");
  std::vector<std::string> shown = words(a.root.say("devices"));
  ASSERT_EQ(shown.size(), 4u);
  EXPECT_TRUE(shown[1].ends_with(":" + device_uuid(0)) && shown[2].ends_with(":" + device_uuid(1)));
  EXPECT_EQ(words(a.root.say("gate"))[1], "1");
  EXPECT_EQ(a.root.say(reserve(2, 2 * kGiB)), granted(2 * kGiB, 0));
  EXPECT_EQ(a.root.say(reserve(1, kGiB)), granted(kGiB, kGiB));
  Json job = job_in_ps("python3-1");
  EXPECT_EQ(job["devices"][0]["used_bytes"], 2 * kGiB);
  EXPECT_EQ(job["devices"][1]["used_bytes"], kGiB);
  EXPECT_EQ(job["virtual_devices"][2]["device_uuid"], job["devices"][0]["uuid"]);
}

TEST_F(VirtualTest, WhatNvmlAddsIsOfTheFirstContexts) {
  start();
  Job a = job({{"memory", "3G"}, {"gpus", 3}});
  a.root.say(kAttach);
  EXPECT_TRUE(a.root.say("reserve 2 7 0 1").starts_with("granted "));  // a context
  uint64_t context = job_in_ps("python3-1")["virtual_devices"][2]["overhead_bytes"];
  EXPECT_EQ(a.root.say(reserve(0, kGiB)), granted(kGiB, 2 * kGiB));
  gpus_->set(a.root.pid, kGiB + context + 100 * kMiB);
  EXPECT_EQ(a.root.say("refresh 2"), "ok");
  EXPECT_TRUE(eventually(
      [&] { return job_in_ps("python3-1")["virtual_devices"][2]["overhead_bytes"] == context + 100 * kMiB; }));
  EXPECT_EQ(job_in_ps("python3-1")["virtual_devices"][0]["used_bytes"], kGiB);
}

TEST_F(VirtualTest, NumbersThatAreNone) {
  start();
  Job a = job({{"memory", "1G"}, {"gpus", 2}});
  for (const char* line : {"ask 2 0 1", "release 4294967295 0 1", "holdings 32 0 1 1", "refresh 2", "ask 0 8 1"}) {
    Program stranger = a.root.spawn();
    EXPECT_EQ(stranger.say(kAttach), "welcome fresh");
    EXPECT_EQ(stranger.say(line), "ok");
    EXPECT_EQ(stranger.say("noise 100"), "lost") << line;
    stranger.end();
  }
  // A notice names a device for people only.
  a.root.say(kAttach);
  a.root.say("notice 3 4096 x 1");
  a.root.say("notice 2 4096 x 77");
  EXPECT_TRUE(eventually([&] { return !events("driver_full").empty(); }));
  EXPECT_TRUE(has(events("over_quota").front()["message"], "4 KiB on virtual GPU 1 (GPU 0)"));
  EXPECT_FALSE(has(events("driver_full").front()["message"], "virtual"));
}

TEST_F(VirtualTest, WhatIsNoNumberOfThemIsRefused) {
  start();
  Command command(socket_);
  for (const Json& count : {Json(0), Json(-1), Json(33), Json(1000), Json(1.5), Json("2"), Json(1e300), Json(true)}) {
    Json reply = admit(command, {{"gpus", count}, {"memory", "1M"}});
    ASSERT_TRUE(reply.contains("error")) << count;
    EXPECT_EQ(reply["error"]["code"], "usage") << reply;
  }
  Json never = admit(command, {{"gpus", 4}, {"memory", "4G"}, {"wait_seconds", -1}});
  EXPECT_EQ(never["error"]["code"], "usage");
  EXPECT_TRUE(has(never["error"]["message"], "16 GiB in all")) << never;
  EXPECT_TRUE(ps()["jobs"].empty());
}

TEST_F(VirtualTest, SetChangesEach) {
  start();
  Job a = job({{"memory", "3G"}, {"gpus", 2}, {"name", "mine"}});
  a.root.say(kAttach);
  a.root.say(reserve(1, 2 * kGiB));
  Json reply = Command(socket_).ask({{"op", "set"}, {"name", "mine"}, {"memory", "1G"}});
  EXPECT_EQ(reply["devices"][0]["quota_bytes"], 2 * kGiB);
  EXPECT_EQ(reply["virtual_devices"][0]["quota_bytes"], kGiB);
  EXPECT_EQ(a.root.say(reserve(1, 1)), "over_quota 0 0");
  EXPECT_EQ(a.root.say(reserve(0, kGiB)), granted(kGiB, 0));
  EXPECT_TRUE(has(events("job_changed").front()["message"], "quota of each virtual GPU on GPU 0 3 GiB -> 1 GiB"));
  Json refused = Command(socket_).ask({{"op", "set"}, {"name", "mine"}, {"memory", "8G"}});
  EXPECT_EQ(refused["error"]["code"], "usage");
  EXPECT_TRUE(has(refused["error"]["message"], "2 virtual devices of 8 GiB (16 GiB in all)")) << refused;
  // All or nothing.
  Command(socket_).ask({{"op", "set"}, {"name", "mine"}, {"memory", "2G"}, {"weight", 0}});
  EXPECT_EQ(job_in_ps("mine")["virtual_devices"][1]["quota_bytes"], kGiB);
  EXPECT_EQ(job_in_ps("mine")["devices"][0]["quota_bytes"], 2 * kGiB);
}

TEST_F(VirtualTest, OnesThatWaitGetTheirPlaceLater) {
  start();
  Job a = job({{"memory", "10G"}, {"name", "first"}});
  Command waiting(socket_);
  waiting.send(
      {{"op", "admit"}, {"command", {"x"}}, {"gpus", 2}, {"memory", "4G"}, {"wait_seconds", -1}, {"name", "second"}});
  Json event = waiting.event();
  EXPECT_TRUE(has(event["waiting_for"], "asked for 2 virtual devices of 4 GiB")) << event;
  EXPECT_EQ(job_in_ps("second")["gpus"], 2);
  EXPECT_EQ(job_in_ps("second")["virtual_devices"], Json::array());
  a.root.end();
  a.command->ask({{"op", "finish"}, {"job", a.admitted["job"]}, {"exit_code", 0}});
  Json admitted = waiting.reply();
  EXPECT_EQ(admitted["virtual_devices"].size(), 2u) << admitted;
  EXPECT_NE(admitted["virtual_devices"][0]["uuid"], "");
}

TEST_F(VirtualTest, ARestartBringsThemAllBack) {
  gpus_->devices.resize(2);
  start();
  Job a = job({{"memory", "4G"}, {"gpus", 3}, {"name", "mine"}});
  a.root.say(kAttach);
  a.root.say(reserve(0, kGiB));
  a.root.say(reserve(2, 2 * kGiB));
  std::string before = a.root.say("devices");
  Json shown = job_in_ps("mine")["virtual_devices"];
  stop();
  start();
  Json back = job_in_ps("mine");
  EXPECT_EQ(back["gpus"], 3);
  ASSERT_EQ(back["virtual_devices"].size(), 3u);
  for (size_t v = 0; v < 3; ++v)
    for (const char* key : {"index", "uuid", "bus_id", "device_index", "quota_bytes"})
      EXPECT_EQ(back["virtual_devices"][v][key], shown[v][key]) << key;
  EXPECT_EQ(a.root.say(kAttach), "welcome restarted");
  EXPECT_EQ(a.root.say("devices"), before);
  a.root.say("holdings 0 0 " + number(kGiB) + " 0");
  a.root.say("holdings 2 0 " + number(2 * kGiB) + " 1");
  EXPECT_EQ(a.root.say(reserve(2, 3 * kGiB)), "over_quota 0 " + number(2 * kGiB));
  EXPECT_EQ(a.root.say(reserve(0, 3 * kGiB)), granted(3 * kGiB, 0));
  EXPECT_EQ(page_of(a.root, 1), (std::vector<uint64_t>{4 * kGiB, 4 * kGiB, 0, 0}));
  Job b = job({{"memory", "1G"}, {"gpus", 1}});
  for (const Json& device : back["virtual_devices"])
    EXPECT_NE(device["uuid"], b.admitted["virtual_devices"][0]["uuid"]);
  // A device that is gone takes the job with it: what its programs see can't be kept up.
  stop();
  gpus_->devices.resize(1);
  start();
  EXPECT_TRUE(job_in_ps("mine").is_null());
}

}  // namespace berth::daemon
