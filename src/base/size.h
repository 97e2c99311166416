// Sizes as people write them: bytes, or K M G T with or without iB, any case, all binary; or a percentage of a device.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace berth {

// "8G", "512MiB", "1.5g", "123". Refuses signs, blanks inside, nan, anything over 2^63.
Result<uint64_t> parse_size(std::string_view text);

// A quota: a size, a percentage of `total` ("40%", above 0 and at most 100), or none ("", "0", "0m": nullopt).
Result<std::optional<uint64_t>> parse_quota(std::string_view text, uint64_t total);

// For people: "8.0 GiB", "512 MiB", "0 B". At most 9 characters.
std::string format_size(uint64_t bytes);

}  // namespace berth
