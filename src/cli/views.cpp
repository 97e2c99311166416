#include "cli/views.h"

#include <fmt/format.h>

#include "base/size.h"
#include "cli/output.h"
#include "cli/table.h"

namespace berth::cli {
namespace {

const Json& field(const Json& object, const char* key) {
  static const Json kNull;
  auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

const Json& list(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const Json& found = field(object, key);
  return found.is_array() ? found : kNone;
}

std::string command_text(const Json& client) {
  const Json& command = field(client, "command");
  if (!command.is_array()) return text_cell(client, "command");
  std::string text;
  for (const Json& word : command)
    if (word.is_string()) text += (text.empty() ? "" : " ") + printable(word.get<std::string>());
  return text;
}

// More than one user's jobs: then it matters whose they are.
bool several_users(const Json& jobs) {
  for (const Json& job : jobs)
    if (field(job, "user") != field(jobs[0], "user")) return true;
  return false;
}

void add_job(const Json& job, bool users, Table* table) {
  std::vector<Cell> left{text_cell(job, "name")};
  if (users) left.emplace_back(text_cell(job, "user"));
  left.emplace_back(text_cell(job, "state"));
  left.emplace_back(text_cell(job, "priority"));
  left.emplace_back(text_cell(job, "weight"));
  const Json none = Json::object();
  size_t count = std::max<size_t>(list(job, "devices").size(), 1);
  for (size_t i = 0; i < count; ++i) {
    const Json& device = i < list(job, "devices").size() ? list(job, "devices")[i] : none;
    std::vector<Cell> row = left;
    if (i > 0) row.assign(1, Cell("", left.size()));
    row.emplace_back(text_cell(device, "index"));
    row.emplace_back(size_cell(device, "used_bytes"));
    row.emplace_back(size_cell(device, "quota_bytes"));
    row.emplace_back(i == 0 ? ratio_cell(job, "gpu_share_ratio") : "");
    table->add(std::move(row));
  }
  if (std::string reason = text_cell(job, "waiting_for"); reason != "-") {
    std::string place = text_cell(job, "queue_position");
    table->add({Cell("  waits" + (place == "-" ? "" : ", place " + place) + ": " + reason, left.size() + 4)});
  }
  for (const Json& client : list(job, "clients"))
    table->add({Cell(fmt::format("  {:<7} {}", text_cell(client, "pid"), command_text(client)), left.size() + 1),
                Cell(size_cell(client, "used_bytes"))});
}

}  // namespace

std::string size_cell(const Json& object, const char* key) {
  const Json& value = field(object, key);
  return value.is_number() ? format_size(value.get<uint64_t>()) : "-";
}

std::string text_cell(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (value.is_null()) return "-";
  return printable(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string ratio_cell(const Json& object, const char* key) {
  const Json& value = field(object, key);
  return value.is_number() ? fmt::format("{:.0f}%", value.get<double>() * 100) : "-";
}

std::string ps_view(const Json& ps, const Look& look) {
  const Json& jobs = list(ps, "jobs");
  bool users = several_users(jobs);
  std::vector<Column> columns{{"NAME"}};
  if (users) columns.push_back({"USER"});
  for (Column column : {Column{"STATE"}, {"PRIORITY"}, {"WEIGHT", Align::right}, {"GPU", Align::right},
                        {"USED", Align::right}, {"QUOTA", Align::right}, {"SHARE", Align::right}})
    columns.push_back(column);
  Table table(columns);
  for (const Json& job : jobs) add_job(job, users, &table);
  return table.text(look.width, look.colour);
}

std::string gpus_view(const Json& gpus, const Look& look) {
  Table table({{"GPU", Align::right}, {"NAME"}, {"TOTAL", Align::right}, {"PROMISED", Align::right}, {"USED", Align::right},
               {"UNMANAGED", Align::right}, {"FREE", Align::right}, {"JOBS", Align::right}});
  for (const Json& gpu : list(gpus, "gpus")) {
    table.add({text_cell(gpu, "index"), text_cell(gpu, "name"), size_cell(gpu, "total_bytes"),
               size_cell(gpu, "promised_bytes"), size_cell(gpu, "used_bytes"), size_cell(gpu, "unmanaged_bytes"),
               size_cell(gpu, "free_bytes"), text_cell(gpu, "jobs")});
    table.add({"", Cell(text_cell(gpu, "uuid"), 7)});
  }
  return table.text(look.width, look.colour);
}

std::string event_line(const Json& event) {
  std::string job = text_cell(event, "job");
  return text_cell(event, "at") + "  " + text_cell(event, "event") + (job == "-" ? "" : "  " + job) +
         (field(event, "message").is_null() ? "" : "  " + text_cell(event, "message")) + "\n";
}

Look look_of_stdout() { return {terminal_width(), use_colour()}; }

}  // namespace berth::cli
