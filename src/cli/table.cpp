#include "cli/table.h"

#include <algorithm>

namespace berth::cli {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

size_t display_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

std::string cut(const std::string& text, size_t width) {
  if (display_width(text) <= width) return text;
  size_t seen = 0, end = 0;
  for (; end < text.size(); ++end)
    if (!continues(text[end]) && ++seen > width) break;
  return text.substr(0, end);
}

std::string pad(const std::string& text, size_t width, Align align) {
  size_t have = display_width(text);
  std::string blanks(width > have ? width - have : 0, ' ');
  return align == Align::left ? text + blanks : blanks + text;
}

std::string Table::text(size_t width, bool bold_header) const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    size_t at = 0;
    for (const Cell& cell : row) {
      if (cell.span == 1 && at < widths.size()) widths[at] = std::max(widths[at], display_width(cell.text));
      at += cell.span;
    }
  }
  auto line_of = [&](const std::vector<Cell>& row) {
    std::string line;
    size_t at = 0;
    for (const Cell& cell : row) {
      size_t room = 0;
      bool last = at + cell.span >= columns_.size();
      for (size_t i = at; i < std::min(at + cell.span, columns_.size()); ++i) room += widths[i] + (i > at ? 2 : 0);
      std::string fitted = cell.span > 1 && !last ? cut(cell.text, room) : cell.text;
      Align align = cell.span == 1 && at < columns_.size() ? columns_[at].align : Align::left;
      line += (at ? "  " : "") + pad(fitted, room, align);
      at += cell.span;
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    return width ? cut(line, width) : line;
  };
  std::vector<Cell> titles;
  for (const Column& column : columns_) titles.emplace_back(column.title);
  std::string result = bold_header ? "\033[1m" + line_of(titles) + "\033[0m\n" : line_of(titles) + "\n";
  for (const auto& row : rows_) result += line_of(row) + "\n";
  return result;
}

}  // namespace berth::cli
