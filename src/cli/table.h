// A plain table: a header, aligned columns two blanks apart, nothing else.
#pragma once
#include <string>
#include <vector>

namespace berth::cli {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

struct Cell {
  Cell(std::string text_, size_t span_ = 1) : text(std::move(text_)), span(span_) {}
  Cell(const char* text_) : text(text_) {}
  std::string text;
  size_t span = 1;  // columns it takes; one of more than 1 makes no column wider and is cut if it doesn't fit
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }

  // Lines longer than `width` are cut (0: none is). `bold_header` uses terminal codes.
  std::string text(size_t width = 0, bool bold_header = false) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

// Characters on a terminal, counting UTF-8 sequences as one.
size_t display_width(const std::string& text);
std::string cut(const std::string& text, size_t width);
std::string pad(const std::string& text, size_t width, Align align);

}  // namespace berth::cli
