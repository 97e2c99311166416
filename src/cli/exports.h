// The functions that a shared library exports, read from its file without loading it.
#pragma once
#include <set>
#include <string>

#include "base/result.h"

namespace berth::cli {

// Names of the defined global functions (and indirect ones) of a 64-bit ELF library. Never reads outside the file.
Result<std::set<std::string>> exported_functions(const std::string& path);

}  // namespace berth::cli
