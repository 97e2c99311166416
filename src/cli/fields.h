// Reading the daemon's JSON. Nothing here fails: a key that is missing, null or of another kind is "unknown".
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace berth::cli {

using Json = nlohmann::json;

const Json& field(const Json& object, const char* key);  // null if there is none
const Json& list(const Json& object, const char* key);   // an empty array if there is none
std::optional<double> number(const Json& object, const char* key);
std::optional<uint64_t> size_of(const Json& object, const char* key);
uint64_t sum_of(const Json& objects, const char* key);  // of what is known

// As people read it; "-" if it is unknown.
std::string text_cell(const Json& object, const char* key);
std::string size_cell(const Json& object, const char* key);
std::string ratio_cell(const Json& object, const char* key);
std::string seconds_cell(const Json& object, const char* key);

// "45%"
std::string format_ratio(double ratio);
// "200 us", "12.5 s", "3.4 min"; at most 8 characters.
std::string format_seconds(double seconds);

}  // namespace berth::cli
