#include "cli/views.h"

#include <fmt/format.h>

#include "base/size.h"
#include "cli/fields.h"
#include "cli/output.h"
#include "cli/table.h"

namespace berth::cli {
namespace {

// More than one user's jobs: then it matters whose they are.
bool several_users(const Json& jobs) {
  for (const Json& job : jobs)
    if (field(job, "user") != field(jobs[0], "user")) return true;
  return false;
}

// "" for a client like any other.
std::string what_is_special(const Json& client) {
  std::string text = text_cell(client, "state");
  if (text == "attached" || text == "-") text.clear();
  if (field(client, "partly_covered") == true) text += (text.empty() ? "" : ", ") + std::string("partly covered");
  return text;
}

// "0 and 2", "0 to 3"
std::string numbers_text(const Json& numbers) {
  std::string text;
  size_t last = numbers.size() - 1;
  if (last > 1 && numbers[last] == numbers[0].get<size_t>() + last)
    return numbers[0].dump() + " to " + numbers[last].dump();
  for (size_t i = 0; i <= last; ++i) text += (i == 0 ? "" : i == last ? " and " : ", ") + numbers[i].dump();
  return text;
}

// A line for each virtual device, with the device that it lies on.
void add_virtual_devices(const Json& job, size_t left_columns, Table* table) {
  for (const Json& device : list(job, "virtual_devices"))
    table->add({Cell("  virtual GPU " + text_cell(device, "index"), left_columns), text_cell(device, "device_index"),
                size_cell(device, "used_bytes"), size_cell(device, "overhead_bytes"),
                size_cell(device, "quota_bytes")});
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
    row.emplace_back(size_cell(device, "overhead_bytes"));
    row.emplace_back(size_cell(device, "quota_bytes"));
    row.emplace_back(ratio_cell(device, "gpu_share_ratio"));
    row.emplace_back(seconds_cell(device, "waited_seconds"));
    table->add(std::move(row));
  }
  add_virtual_devices(job, left.size(), table);
  if (std::string reason = text_cell(job, "waiting_for"); reason != "-") {
    std::string place = text_cell(job, "queue_position");
    table->add({Cell("  waits" + (place == "-" ? "" : ", place " + place) + ": " + reason, left.size() + 6)});
  }
  for (const Json& client : list(job, "clients")) {
    table->add({Cell(fmt::format("  {:<7} {}", text_cell(client, "pid"), text_cell(client, "command")), left.size() + 1),
                Cell(format_size(sum_of(list(client, "devices"), "used_bytes"))),
                Cell(format_size(sum_of(list(client, "devices"), "overhead_bytes")))});
    if (std::string special = what_is_special(client); !special.empty())
      table->add({Cell("          " + special, left.size() + 6)});
  }
}

}  // namespace

std::string ps_view(const Json& ps, const Look& look) {
  const Json& jobs = list(ps, "jobs");
  bool users = several_users(jobs);
  std::vector<Column> columns{{"NAME"}};
  if (users) columns.push_back({"USER"});
  for (Column column : {Column{"STATE"}, {"PRIORITY"}, {"WEIGHT", Align::right}, {"GPU", Align::right},
                        {"USED", Align::right}, {"OVERHEAD", Align::right}, {"QUOTA", Align::right},
                        {"SHARE", Align::right}, {"WAITED", Align::right}})
    columns.push_back(column);
  Table table(columns);
  for (const Json& job : jobs) add_job(job, users, &table);
  return table.text(look.width, look.colour);
}

std::string gpus_view(const Json& gpus, const Look& look) {
  Table table({{"GPU", Align::right}, {"NAME"}, {"TOTAL", Align::right}, {"USED", Align::right}, {"PROMISED", Align::right},
               {"UNMANAGED", Align::right}, {"ROOM", Align::right}, {"JOBS", Align::right}});
  for (const Json& gpu : list(gpus, "devices")) {
    table.add({text_cell(gpu, "index"), text_cell(gpu, "name"), size_cell(gpu, "total_bytes"), size_cell(gpu, "used_bytes"),
               size_cell(gpu, "promised_bytes"), size_cell(gpu, "unmanaged_bytes"), size_cell(gpu, "promisable_bytes"),
               std::to_string(list(gpu, "jobs").size())});
    table.add({"", Cell(text_cell(gpu, "uuid"), 7)});
    if (std::string mode = text_cell(gpu, "compute_mode"); mode != "default" && mode != "-") {
      std::string who = text_cell(gpu, "exclusive_to");
      table.add({"", Cell("compute mode " + mode + (mode == text_cell(gpu, "card_compute_mode") ? ", set on the card" : "") +
                              (who == "-" ? "" : ": " + who + " has it"),
                          7)});
    }
    for (const Json& job : list(gpu, "jobs"))
      if (const Json& numbers = list(job, "virtual_devices"); !numbers.empty())
        table.add({"", Cell(fmt::format("virtual GPU{} {} of {}", numbers.size() > 1 ? "s" : "", numbers_text(numbers),
                                        text_cell(job, "name")),
                            7)});
    if (std::string holder = text_cell(gpu, "held_by"); holder != "-")
      table.add({"", Cell("another daemon shares it out too: " + holder, 7)});
    for (const Json& process : list(gpu, "unmanaged"))
      table.add({"", Cell(fmt::format("unmanaged: {} {}, {}, {}", text_cell(process, "pid"), text_cell(process, "command"),
                                      text_cell(process, "user"), size_cell(process, "used_bytes")), 7)});
  }
  return table.text(look.width, look.colour);
}

std::string event_line(const Json& event) {
  std::string job = text_cell(event, "job");
  return text_cell(event, "at") + "  " + text_cell(event, "kind") + (job == "-" ? "" : "  " + job) +
         (field(event, "message").is_null() ? "" : "  " + text_cell(event, "message")) + "\n";
}

Look look_of_stdout() { return {terminal_width(), use_colour()}; }

}  // namespace berth::cli
