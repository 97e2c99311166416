// The daemon's JSON as tables for people. Plain functions; a key that is missing or null shows as "-".
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace berth::cli {

using Json = nlohmann::json;

struct Look {
  size_t width = 0;     // cut lines to it; 0: don't
  bool colour = false;
};

std::string ps_view(const Json& ps, const Look& look);
std::string gpus_view(const Json& gpus, const Look& look);
std::string event_line(const Json& event);

Look look_of_stdout();

}  // namespace berth::cli
