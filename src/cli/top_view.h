// The screen of `berth top` as lines of styled text. Plain functions: what the terminal makes of it is top_screen's
// business.
#pragma once
#include <string>
#include <vector>

#include "cli/top_state.h"

namespace berth::cli {

enum class TopStyle { plain, heading, selected, time, memory, promised, trouble };

struct TopText {
  std::string text;
  TopStyle style = TopStyle::plain;
};
using TopLine = std::vector<TopText>;

struct TopSize {
  size_t width = 80, height = 24;
};

// "[####--   ]", `width` characters wide: `used` of it filled, and up to `marked` marked. Ratios; what is not 0 shows.
TopLine bar(size_t width, double used, double marked, TopStyle style);

// Exactly size.height lines of at most size.width characters. A job takes one line, or two where one is too narrow for
// it; the page that has the selected job is shown.
std::vector<TopLine> top_lines(const TopData& data, const TopState& state, double interval, TopSize size);

// Without styles.
std::string plain_text(const TopLine& line);

}  // namespace berth::cli
