#include "cli/exports.h"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

namespace berth::cli {
namespace {

// A record of type T at `offset`, if it lies in the file.
template <class T>
std::optional<T> record(const std::string& file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::string text_at(const std::string& file, const Elf64_Shdr& strings, uint32_t name) {
  uint64_t from = strings.sh_offset + name, end = strings.sh_offset + strings.sh_size;
  if (name >= strings.sh_size || end > file.size() || end < strings.sh_offset) return "";
  return std::string(file.data() + from, strnlen(file.data() + from, end - from));
}

void add_functions(const std::string& file, const Elf64_Shdr& symbols, const Elf64_Shdr& strings, std::set<std::string>* names) {
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= symbols.sh_size; at += sizeof(Elf64_Sym)) {
    auto symbol = record<Elf64_Sym>(file, symbols.sh_offset + at);
    if (!symbol) return;
    auto type = ELF64_ST_TYPE(symbol->st_info), binding = ELF64_ST_BIND(symbol->st_info);
    if (symbol->st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC) || binding == STB_LOCAL) continue;
    if (std::string name = text_at(file, strings, symbol->st_name); !name.empty()) names->insert(name);
  }
}

}  // namespace

Result<std::set<std::string>> exported_functions(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto header = record<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64)
    return Error{"internal", path + " is not a 64-bit library"};
  std::set<std::string> names;
  for (uint32_t i = 0; i < header->e_shnum; ++i) {
    auto symbols = record<Elf64_Shdr>(file, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!symbols || symbols->sh_type != SHT_DYNSYM) continue;
    auto strings = record<Elf64_Shdr>(file, header->e_shoff + uint64_t{symbols->sh_link} * sizeof(Elf64_Shdr));
    if (strings) add_functions(file, *symbols, *strings, &names);
  }
  if (names.empty()) return Error{"internal", path + " has no table of exported functions"};
  return names;
}

}  // namespace berth::cli
