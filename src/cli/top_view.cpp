#include "cli/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/size.h"
#include "cli/table.h"

namespace berth::cli {
namespace {

constexpr const char* kFewKeys = "? keys   q quit";
constexpr const char* kAllKeys = "j k select  s sort  p pause/resume  + - weight  P priority  ? less  q quit";

// Widths of what stands beside the two bars of a job or a device.
constexpr size_t kRatio = 4, kSize = 9, kSeconds = 8, kThrottled = 9, kIndent = 2, kGap = 2;
constexpr size_t kMinBar = 6, kMaxBar = 24;

std::string left(const std::string& text, size_t width) { return pad(text, width, Align::left); }
std::string right(const std::string& text, size_t width) { return pad(text, width, Align::right); }

// Says where it cut: names often differ at their end only.
std::string fitted(const std::string& text, size_t width) {
  return display_width(text) <= width ? text : width ? cut(text, width - 1) + "~" : "";
}

void append(const TopLine& more, TopLine* line) { line->insert(line->end(), more.begin(), more.end()); }

TopLine cut_line(const TopLine& line, size_t width) {
  TopLine result;
  for (const TopText& text : line) {
    result.push_back({cut(text.text, width), text.style});
    width -= display_width(result.back().text);
  }
  return result;
}

double ratio_of(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string seconds_text(std::optional<double> seconds) { return seconds ? format_seconds(*seconds) : "-"; }

// --- devices ---

std::string ratio_text(std::optional<double> ratio) { return ratio ? format_ratio(*ratio) : "-"; }

std::optional<double> time_of_device(const std::vector<Json>& jobs, const Json& index) {
  std::optional<double> sum;
  for (const Json& job : jobs)
    for (const Json& device : list(job, "devices"))
      if (auto share = number(device, "gpu_share_ratio"); share && field(device, "index") == index)
        sum = sum.value_or(0) + *share;
  return sum;
}

TopLine device_line(const TopData& data, const Json& device, size_t bar_width) {
  auto time = time_of_device(data.jobs, field(device, "index"));
  uint64_t used = size_of(device, "used_bytes").value_or(0), total = size_of(device, "total_bytes").value_or(0);
  uint64_t spoken_for = size_of(device, "unmanaged_bytes").value_or(0) + size_of(device, "promised_bytes").value_or(0);
  std::string holder = text_cell(device, "held_by");
  std::string mode = text_cell(device, "compute_mode");  // in front: names are cut where there is no room
  mode = mode == "default" || mode == "-" ? "" : mode + ", ";
  TopLine line{{right(text_cell(device, "index"), 3) + "  "}};
  append(bar(bar_width, time.value_or(0), 0, TopStyle::time), &line);
  line.push_back({" " + right(ratio_text(time), kRatio) + "  "});
  append(bar(bar_width, ratio_of(used, total), ratio_of(spoken_for, total), TopStyle::memory), &line);
  line.push_back({" " + right(size_cell(device, "used_bytes"), kSize) + " " +
                  right(size_cell(device, "promised_bytes"), kSize) + " " +
                  right(size_cell(device, "total_bytes"), kSize) + "  " + mode + text_cell(device, "name")});
  if (holder != "-") line.push_back({", shared out by " + holder + " too", TopStyle::trouble});
  return line;
}

std::vector<TopLine> device_lines(const TopData& data, TopSize size) {
  std::vector<TopLine> lines;
  if (data.devices.empty()) return lines;
  size_t beside = 3 + kGap + 1 + kRatio + kGap + 3 * (1 + kSize) + kGap + 11;
  size_t bar_width = std::clamp(size.width > beside ? (size.width - beside) / 2 : 0, kMinBar, kMaxBar);
  lines.push_back(
      {{"GPU  " + left("TIME", bar_width) + right("1 S", 1 + kRatio) + "  " + left("MEMORY", bar_width) +
            right("USED", 1 + kSize) + right("PROMISED", 1 + kSize) + right("TOTAL", 1 + kSize) + "  DEVICE",
        TopStyle::heading}});
  size_t room = std::max<size_t>(1, size.height > 10 ? size.height / 2 - 4 : 1),
         shown = std::min(room, data.devices.size());
  for (size_t i = 0; i < shown; ++i)
    lines.push_back(device_line(data, data.devices[i], bar_width));
  if (shown < data.devices.size()) lines.push_back({{fmt::format("     and {} more", data.devices.size() - shown)}});
  return lines;
}

// --- jobs: who and how, then the figures ---

struct JobColumn {
  const char* title;
  Align align;
  size_t least;  // so far it may shrink
  size_t width;
};

std::string held_by_of(const Json& job) {
  std::string result = "-";
  for (const Json& device : list(job, "devices")) {
    std::string who = text_cell(device, "held_by");
    if (who != "-" && (result == "-" || field(device, "may_run") == false)) result = who;
  }
  return result;
}

bool any_virtual(const std::vector<Json>& jobs) {
  return std::any_of(jobs.begin(), jobs.end(), [](const Json& job) { return text_cell(job, "gpus") != "-"; });
}

// `gpus`: the number of virtual devices stands there, too.
std::vector<std::string> first_cells(const Json& job, bool gpus) {
  std::vector<std::string> cells{text_cell(job, "name"),
                                 text_cell(job, "user"),
                                 text_cell(job, "state"),
                                 text_cell(job, "priority"),
                                 text_cell(job, "weight"),
                                 std::to_string(list(job, "clients").size()),
                                 seconds_text(job_seconds(job, "window_seconds")),
                                 held_by_of(job)};
  if (gpus) cells.insert(cells.end() - 2, text_cell(job, "gpus"));
  return cells;
}

// As wide as the longest of all jobs' cells, so that paging moves nothing; shrunk to `width` where there is too little
// room.
std::vector<JobColumn> first_columns(const std::vector<Json>& jobs, size_t width) {
  std::vector<JobColumn> columns{{"NAME", Align::left, 10, 0},   {"USER", Align::left, 4, 0},
                                 {"STATE", Align::left, 7, 0},   {"PRIORITY", Align::left, 8, 0},
                                 {"WEIGHT", Align::right, 6, 0}, {"CLIENTS", Align::right, 7, 0},
                                 {"WINDOW", Align::right, 6, 0}, {"HELD BY", Align::left, 7, 0}};
  const bool gpus = any_virtual(jobs);
  if (gpus) columns.insert(columns.end() - 2, {"VIRTUAL", Align::right, 7, 0});
  for (JobColumn& column : columns) column.width = display_width(column.title);
  for (const Json& job : jobs) {
    auto cells = first_cells(job, gpus);
    for (size_t i = 0; i < cells.size(); ++i) columns[i].width = std::max(columns[i].width, display_width(cells[i]));
  }
  size_t all = kIndent + kGap * (columns.size() - 1);
  for (const JobColumn& column : columns) all += column.width;
  for (size_t i : {size_t{1}, columns.size() - 1, size_t{0}}) {  // user, held by, name
    size_t spare = columns[i].width - std::min(columns[i].width, columns[i].least),
           missing = all > width ? all - width : 0;
    columns[i].width -= std::min(spare, missing);
    all -= std::min(spare, missing);
  }
  return columns;
}

struct JobLayout {
  std::vector<JobColumn> columns;
  size_t first_width;  // of what stands before the figures
  size_t bar_width;
  bool one_line;
};

JobLayout job_layout(const std::vector<Json>& jobs, size_t width) {
  constexpr size_t kBeside = 2 * (1 + kRatio) + kGap + 2 * (1 + kSize) + kGap + kSeconds + kGap + kThrottled;
  constexpr size_t kUsualBar = 12;
  JobLayout layout{first_columns(jobs, width), kIndent, kMinBar, false};
  for (const JobColumn& column : layout.columns) layout.first_width += column.width + kGap;
  layout.one_line = layout.first_width + kBeside + 2 * kUsualBar <= width;
  size_t taken = (layout.one_line ? layout.first_width : kIndent) + kBeside;
  layout.bar_width = std::clamp(width > taken ? (width - taken) / 2 : 0, kMinBar, kMaxBar);
  return layout;
}

std::string first_text(const std::vector<std::string>& cells, const std::vector<JobColumn>& columns) {
  std::string text;
  for (size_t i = 0; i < columns.size(); ++i)
    text += (i ? "  " : "") + pad(fitted(cells[i], columns[i].width), columns[i].width, columns[i].align);
  return text;
}

// Without a quota the scale is the devices' size.
uint64_t memory_scale(const Json& job, const std::vector<Json>& devices) {
  if (auto quota = job_quota_bytes(job)) return *quota;
  uint64_t sum = 0;
  for (const Json& mine : list(job, "devices"))
    for (const Json& device : devices)
      if (field(device, "index") == field(mine, "index")) sum += size_of(device, "total_bytes").value_or(0);
  return sum;
}

TopLine figures(const Json& job, const std::vector<Json>& devices, size_t bar_width) {
  if (std::string reason = text_cell(job, "waiting_for"); reason != "-")
    return {{"waits, place " + text_cell(job, "queue_position") + ": " + reason}};
  auto quota = job_quota_bytes(job);
  TopLine line = bar(bar_width, number(job, "gpu_share_ratio").value_or(0), 0, TopStyle::time);
  line.push_back({" " + right(ratio_cell(job, "gpu_share_ratio"), kRatio) + " " +
                  right(ratio_cell(job, "gpu_share_60s_ratio"), kRatio) + "  "});
  append(bar(bar_width, ratio_of(job_used_bytes(job), memory_scale(job, devices)), 0, TopStyle::memory), &line);
  line.push_back({" " + right(format_size(job_used_bytes(job)), kSize) + " " +
                  right(quota ? format_size(*quota) : "-", kSize) + "  " +
                  right(seconds_text(job_seconds(job, "waited_seconds")), kSeconds) + "  " +
                  right(seconds_text(job_seconds(job, "throttled_seconds")), kThrottled)});
  return line;
}

std::string figure_titles(size_t bar_width) {
  return left("TIME", bar_width) + right("1 S", 1 + kRatio) + right("60 S", 1 + kRatio) + "  " +
         left("MEMORY", bar_width) + right("USED", 1 + kSize) + right("QUOTA", 1 + kSize) + "  " +
         right("WAITED", kSeconds) + "  " + right("THROTTLED", kThrottled);
}

void add_job_lines(TopText first, const TopLine& rest, bool one_line, std::vector<TopLine>* lines) {
  TopLine line{{first.text + (one_line ? "  " : ""), first.style}};
  if (!one_line) {
    lines->push_back(line);
    line = {{std::string(kIndent, ' ')}};
  }
  append(rest, &line);
  lines->push_back(line);
}

struct Page {
  size_t first, last;
};

std::vector<TopLine> job_lines(const TopData& data, const TopState& state, size_t width, size_t height, Page* page) {
  std::vector<TopLine> lines;
  *page = {0, 0};
  if (data.jobs.empty()) return lines;
  JobLayout layout = job_layout(data.jobs, width);
  std::vector<std::string> titles;
  for (const JobColumn& column : layout.columns) titles.emplace_back(column.title);
  add_job_lines({"  " + first_text(titles, layout.columns), TopStyle::heading},
                {{figure_titles(layout.bar_width), TopStyle::heading}}, layout.one_line, &lines);
  size_t each = layout.one_line ? 1 : 2,
         room = std::max<size_t>(1, height > lines.size() ? (height - lines.size()) / each : 0);
  page->first = state.place / room * room;
  page->last = std::min(page->first + room, data.jobs.size());
  const bool gpus = any_virtual(data.jobs);
  for (size_t i = page->first; i < page->last; ++i) {
    bool selected = i == state.place;
    add_job_lines({(selected ? "> " : "  ") + first_text(first_cells(data.jobs[i], gpus), layout.columns),
                   selected ? TopStyle::selected : TopStyle::plain},
                  figures(data.jobs[i], data.devices, layout.bar_width), layout.one_line, &lines);
  }
  return lines;
}

// --- the rest ---

std::string title_text(const TopData& data, const TopState& state, double interval, Page page) {
  std::string text = fmt::format("berth top  every {} s", interval);
  if (!data.trouble.empty()) return text;
  size_t count = data.jobs.size();
  text +=
      count == 0 ? "  no jobs" : fmt::format("  {} job{} by {}", count, count > 1 ? "s" : "", to_string(state.sort));
  if (page.last - page.first < count) text += fmt::format(", {} to {} shown", page.first + 1, page.last);
  return text;
}

// At most three lines, broken at blanks.
std::vector<TopLine> status_lines(std::string text, size_t width) {
  std::vector<TopLine> lines;
  while (!text.empty() && lines.size() < 3 && width > 0) {
    std::string line = cut(text, width);
    size_t blank = line.size() < text.size() ? line.rfind(' ') : std::string::npos;
    if (blank != std::string::npos && blank > 0) line.resize(blank);
    text.erase(0, line.size());
    text.erase(0, text.find_first_not_of(' '));
    lines.push_back({{line, TopStyle::trouble}});
  }
  return lines;
}

}  // namespace

TopLine bar(size_t width, double used, double marked, TopStyle style) {
  size_t inner = width > 2 ? width - 2 : 0;
  auto cells = [inner](double ratio) {
    double wanted = std::clamp(ratio, 0.0, 1.0) * static_cast<double>(inner);
    return wanted > 0 ? std::max<size_t>(1, static_cast<size_t>(std::lround(wanted))) : 0;
  };
  size_t full = std::min(cells(used), inner), up_to = std::clamp(cells(marked), full, inner);
  return {{"["},
          {std::string(full, '#'), style},
          {std::string(up_to - full, '-'), TopStyle::promised},
          {std::string(inner - up_to, ' ') + "]"}};
}

std::vector<TopLine> top_lines(const TopData& data, const TopState& state, double interval, TopSize size) {
  const std::string& said = data.trouble.empty() ? state.notice : data.trouble;
  std::vector<TopLine> above = device_lines(data, size), below = status_lines(said, size.width);
  below.push_back({{state.all_keys ? kAllKeys : kFewKeys, TopStyle::heading}});
  if (!above.empty()) above.push_back({});
  size_t taken = 1 + above.size() + below.size();
  Page page;
  std::vector<TopLine> jobs = job_lines(data, state, size.width, size.height > taken ? size.height - taken : 0, &page);

  std::vector<TopLine> lines{{{title_text(data, state, interval, page), TopStyle::heading}}};
  lines.insert(lines.end(), above.begin(), above.end());
  lines.insert(lines.end(), jobs.begin(), jobs.end());
  lines.resize(size.height > below.size() ? size.height - below.size() : 0);
  lines.insert(lines.end(), below.begin(), below.end());
  lines.resize(size.height);
  for (TopLine& line : lines) line = cut_line(line, size.width);
  return lines;
}

std::string plain_text(const TopLine& line) {
  std::string result;
  for (const TopText& text : line) result += text.text;
  return result;
}

}  // namespace berth::cli
