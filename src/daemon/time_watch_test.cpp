// Watch lists as differences, and pages as whoever means harm may write them.
#include "daemon/time_watch.h"

#include <gtest/gtest.h>

#include <random>

#include "daemon/time_pages.h"

namespace berth::daemon {
namespace {

using policy::Priority;

Watchable watchable(policy::ClientId client, policy::JobId job, Priority priority, std::vector<int> devices = {0}) {
  return {client, job, priority, std::move(devices), true, true, client};
}

// "1<-2:higher" = client 1 is told to watch client 2 as a higher one.
std::string told(WatchLists& lists, const std::vector<Watchable>& clients) {
  std::string text;
  lists.update(clients, [&](policy::ClientId to, const wire::Watch& message) {
    const char* relations[] = {"none", "higher", "peer"};
    text += (text.empty() ? "" : " ") + std::to_string(to) + "<-" + std::to_string(message.client_id) + ":" +
            relations[static_cast<size_t>(message.relation)];
  });
  return text;
}

// A page in ordinary memory, zero as the daemon makes it.
struct TestPage {
  alignas(wire::ActivityPage) unsigned char bytes[sizeof(wire::ActivityPage)] = {};
  wire::ActivityPage& operator*() { return *reinterpret_cast<wire::ActivityPage*>(bytes); }
  wire::ActivityPage* operator->() { return &**this; }
};

}  // namespace

TEST(WatchLists, LowerOnesWatchHigherOnesAndPeersEachOther) {
  WatchLists lists;
  std::vector<Watchable> all{watchable(1, 1, Priority::low), watchable(2, 2, Priority::high),
                             watchable(3, 1, Priority::low)};
  EXPECT_EQ(told(lists, all), "1<-2:higher 1<-3:peer 3<-1:peer 3<-2:higher");
  EXPECT_EQ(told(lists, all), "");
  all[1].priority = Priority::low;
  EXPECT_EQ(told(lists, all), "1<-2:none 3<-2:none");
  all[1].priority = Priority::normal;
  EXPECT_EQ(told(lists, all), "1<-2:higher 3<-2:higher");
  all[1].page = 77;  // it has attached anew
  EXPECT_EQ(told(lists, all), "1<-2:higher 3<-2:higher");
  lists.forget(3);  // so has this one
  EXPECT_EQ(told(lists, all), "3<-1:peer 3<-2:higher");
  all.erase(all.begin() + 1);
  EXPECT_EQ(told(lists, all), "1<-2:none 3<-2:none");
}

TEST(WatchLists, OnlyThoseWhoMeet) {
  WatchLists lists;
  std::vector<Watchable> all{watchable(1, 1, Priority::low, {0, 1}), watchable(2, 2, Priority::high, {2}),
                             watchable(3, 3, Priority::high, {-1, 2, 1})};
  std::vector<int8_t> places;
  lists.update(all, [&](policy::ClientId to, const wire::Watch& message) {
    EXPECT_EQ(to, 1u);
    EXPECT_EQ(message.client_id, 3u);
    places.assign(message.devices, message.devices + 4);
  });
  EXPECT_EQ(places, (std::vector<int8_t>{-1, -1, 1, -1}));
}

TEST(WatchLists, ThoseNeverHeldLookAtNobodyAndUnsealedPagesAreNotShown) {
  WatchLists lists;
  std::vector<Watchable> all{watchable(1, 1, Priority::low), watchable(2, 2, Priority::high)};
  all[1].shown = false;
  EXPECT_EQ(told(lists, all), "");
  all[1].shown = true;
  all[0].looks = false;
  EXPECT_EQ(told(lists, all), "");
}

TEST(WatchLists, HigherOnesComeFirstWhereThereAreTooMany) {
  WatchLists lists;
  std::vector<Watchable> all;
  for (policy::ClientId id = 1; id <= 100; ++id) all.push_back(watchable(id, 1, Priority::low));
  all.push_back(watchable(101, 2, Priority::high));
  size_t count = 0, higher = 0;
  lists.update(all, [&](policy::ClientId to, const wire::Watch& message) {
    if (to != 1) return;
    ++count;
    higher += message.relation == wire::Relation::higher;
  });
  EXPECT_EQ(count, kMostWatched);
  EXPECT_EQ(higher, 1u);
}

TEST(PageReader, CountsSinceTheLastLook) {
  TestPage page;
  PageReader reader;
  page->slot_count = 2;
  page->slots[1].device = 1;
  page->slots[1].submitted = 9;  // another device's
  policy::Time now = std::chrono::seconds(5);
  page->devices[0].service_ns = 12345;
  EXPECT_EQ(reader.read(*page, 0, now).sighting.service, policy::Time(0));  // what was before is not ours
  page->slots[0].submitted = 5;
  page->slots[0].completed = 2;
  page->devices[0].service_ns = 12345 + 700;
  page->devices[0].submissions = 40;
  page->devices[0].held_ns = 3'000'000;
  page->devices[0].batch_ns = ~0ull;
  Look look = reader.read(*page, 0, now += std::chrono::milliseconds(1));
  EXPECT_EQ(look.sighting.outstanding, 3u);
  EXPECT_EQ(look.sighting.streams, 1u);
  EXPECT_EQ(look.sighting.completed, 2u);
  EXPECT_EQ(look.sighting.submitted, 40u);
  EXPECT_EQ(look.sighting.service, policy::Time(700));
  EXPECT_TRUE(look.sighting.busy);
  EXPECT_EQ(look.waited, std::chrono::milliseconds(1));  // no longer than it can have been
  EXPECT_LE(look.sighting.batch, std::chrono::seconds(10));
  page->slots[0].completed = 6;  // the device was quicker than the client's count
  look = reader.read(*page, 0, now += std::chrono::milliseconds(1));
  EXPECT_EQ(look.sighting.outstanding, 0u);
  EXPECT_EQ(reader.read(*page, 1, now).sighting.outstanding, 9u);
  EXPECT_EQ(reader.implausible(), "");
}

TEST(PageReader, CountersMayWrapAround) {
  TestPage page;
  PageReader reader;
  page->slot_count = 1;
  page->slots[0].submitted = page->slots[0].completed = ~0u - 1;
  reader.read(*page, 0, std::chrono::seconds(1));
  page->slots[0].submitted = 4;
  page->slots[0].completed = 1;
  Look look = reader.read(*page, 0, std::chrono::seconds(2));
  EXPECT_EQ(look.sighting.outstanding, 3u);
  EXPECT_EQ(look.sighting.completed, 3u);
  EXPECT_EQ(reader.implausible(), "");
}

TEST(PageReader, WhatCannotBeIsNotTaken) {
  auto reason = [](auto change) {
    TestPage page;
    PageReader reader;
    page->slot_count = 1;
    page->devices[0].service_ns = 1000;
    reader.read(*page, 0, std::chrono::seconds(1));
    change(*page);
    Look look = reader.read(*page, 0, std::chrono::seconds(2));
    if (!reader.implausible().empty()) {
      EXPECT_EQ(look.sighting.outstanding, 0u);
      EXPECT_EQ(look.sighting.service, policy::Time(0));
      EXPECT_FALSE(look.sighting.busy);
      EXPECT_TRUE(look.goes);
    }
    return reader.implausible();
  };
  EXPECT_EQ(reason([](wire::ActivityPage&) {}), "");
  EXPECT_EQ(reason([](wire::ActivityPage& page) { page.slot_count = 257; }), "it has 257 streams");
  EXPECT_EQ(reason([](wire::ActivityPage& page) { page.devices[0].service_ns = 10; }), "its service went back");
  EXPECT_EQ(reason([](wire::ActivityPage& page) { page.devices[0].service_ns = 1ull << 60; }), "its service jumped");
  EXPECT_NE(reason([](wire::ActivityPage& page) { page.slots[0].submitted = 1u << 30; }), "");
  EXPECT_NE(reason([](wire::ActivityPage& page) { page.slots[0].completed = page.slots[0].submitted = 1u << 30; }), "");
}

TEST(PageReader, NoiseNeverYieldsMoreThanCanBe) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    TestPage page;
    PageReader reader;
    policy::Time now = std::chrono::seconds(1);
    for (int look = 0; look < 5; ++look) {
      for (int i = 0; i < (round % 2 ? 3 : 1000); ++i)
        page.bytes[random() % sizeof page.bytes] = static_cast<unsigned char>(random());
      for (uint32_t ordinal : {0u, 31u}) {
        Look seen = reader.read(*page, ordinal, now += std::chrono::milliseconds(1));
        ASSERT_LE(seen.sighting.outstanding, 64u << 20);
        ASSERT_LE(seen.sighting.service, std::chrono::minutes(10));
        ASSERT_GE(seen.sighting.service, policy::Time(0));
        ASSERT_LE(seen.waited, std::chrono::milliseconds(2));
        ASSERT_GE(seen.waited, policy::Time(0));
      }
    }
  }
}

TEST(Progress, WorkThatDoesNotGetOnIsAConcernOnceAMinute) {
  Progress progress;
  Look look;
  look.sighting.outstanding = 2;
  policy::Time now = std::chrono::seconds(100);
  auto after = [&](int seconds) {
    return note(progress, look, now += std::chrono::seconds(seconds), std::chrono::seconds(10));
  };
  EXPECT_EQ(after(0), Concern::none);
  EXPECT_EQ(after(9), Concern::none);
  EXPECT_EQ(after(1), Concern::no_progress);
  EXPECT_TRUE(progress.stuck);
  EXPECT_EQ(after(5), Concern::none);
  look.sighting.completed = 1;
  EXPECT_EQ(after(1), Concern::none);
  EXPECT_FALSE(progress.stuck);
  look.sighting.completed = 0;
  EXPECT_EQ(after(12), Concern::none);  // too soon to be told again
  EXPECT_TRUE(progress.stuck);
  look.goes = false;  // held work need not get on
  EXPECT_EQ(after(100), Concern::none);
  look.goes = true;
  EXPECT_EQ(after(12), Concern::no_progress);
}

TEST(Progress, AnExceptionForAStarvedClientIsTold) {
  Progress progress;
  Look look;
  look.goes = false;
  look.by_higher = true;
  policy::Time now = std::chrono::seconds(100);
  auto after = [&](int seconds) {
    return note(progress, look, now += std::chrono::seconds(seconds), std::chrono::seconds(10));
  };
  EXPECT_EQ(after(0), Concern::none);
  EXPECT_EQ(after(11), Concern::none);
  look.goes = true;
  EXPECT_EQ(after(1), Concern::starvation_pass);
  look.by_higher = false;
  EXPECT_EQ(after(1), Concern::none);
  look.by_higher = true;
  EXPECT_EQ(after(70), Concern::none);
  EXPECT_EQ(after(5), Concern::none);  // let go early, by a peer that waits for it
}

TEST(ActivityPage, OnlyWhatWasMappedBeforeCanBeWritten) {
  auto page = ActivityPage::create();
  ASSERT_TRUE(page.ok());
  EXPECT_EQ((**page).devices[3].go.load(), 1u);
  EXPECT_EQ(page->reader(), -1);
  page->seal();
  EXPECT_EQ(page->writer(), -1);
  EXPECT_GE(page->reader(), 0);
}

}  // namespace berth::daemon
