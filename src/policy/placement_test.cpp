#include "policy/placement.h"

#include "policy/testing.h"

namespace berth::policy {
namespace {

std::vector<DeviceIndex> visible(const State& state, const std::string& list) { return visible_devices(state, list); }

DeviceIndex place_of(const State& state, JobId job) {
  for (DeviceIndex i = 0; i < state.devices.size(); ++i)
    if (state.jobs.at(job).devices[i].placed) return i;
  return 99;
}

}  // namespace

TEST(Placement, VisibleDevicesAreReadAsTheDriverReadsThem) {  // B48
  State state = make_state(3);
  using List = std::vector<DeviceIndex>;
  EXPECT_EQ(visible_devices(state, std::nullopt), (List{0, 1, 2}));
  EXPECT_EQ(visible(state, "1"), List{1});
  EXPECT_EQ(visible(state, "1,0"), (List{1, 0}));
  EXPECT_EQ(visible(state, " 2 , 0"), (List{2, 0}));
  EXPECT_EQ(visible(state, "GPU-00000001-0000-0000-0000-000000000000"), List{1});
  EXPECT_EQ(visible(state, "GPU-00000002"), List{2});
  EXPECT_EQ(visible(state, "GPU-0000"), List{});  // of several
  EXPECT_EQ(visible(state, "0,7,1"), List{0});    // ends at the first that is none
  EXPECT_EQ(visible(state, ""), List{});
  EXPECT_EQ(visible(state, "-1"), List{});
  EXPECT_EQ(visible(state, "NoDevFiles"), List{});
  EXPECT_EQ(visible(state, "1,1"), List{1});
}

TEST(Placement, ADeviceThatIsNoneIsNamed) {
  State state = make_state(2);
  for (const char* device : {"2", "-1", "GPU-", "GPU-0000", "first"}) {
    Request request = make_request("1G");
    request.device = device;
    EXPECT_EQ(refused(admit(state, request, Limits())).code, "no_device") << device;
  }
  Request hidden = make_request("1G");
  hidden.visible_devices = "";
  EXPECT_EQ(refused(admit(state, hidden, Limits())).code, "no_device");
  State none = make_state(0);
  EXPECT_EQ(refused(admit(none, "1G")).code, "no_device");
}

TEST(Placement, MostFreePromiseThenFewestJobs) {
  State state = make_state(3);
  Request request = make_request("4G");
  request.device = "0";
  admitted(admit(state, request, Limits()));
  EXPECT_EQ(place_of(state, admitted(admit(state, "2G"))), 1u);
  EXPECT_EQ(place_of(state, admitted(admit(state, "1G"))), 2u);
  EXPECT_EQ(place_of(state, admitted(admit(state, ""))), 2u);
  Request allowed = make_request("1G");
  allowed.visible_devices = "0,1";
  EXPECT_EQ(place_of(state, admitted(admit(state, allowed, Limits()))), 1u);
  State equal = make_state(2);
  admitted(admit(equal, ""));
  EXPECT_EQ(place_of(equal, admitted(admit(equal, ""))), 1u);
}

TEST(Placement, AShareMayMeanAnotherSizeOnEachDevice) {
  State state = make_state(2);
  state.devices[1].total = 32 * kG;
  JobId job = admitted(admit(state, "50%"));
  EXPECT_EQ(place_of(state, job), 1u);
  EXPECT_EQ(state.jobs.at(job).devices[1].quota, 16 * kG);
  EXPECT_EQ(place_of(state, admitted(admit(state, "50%"))), 0u);  // 8 GiB there; 16 no longer fit on the larger one
}

}  // namespace berth::policy
