#include "sim/pages.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>

namespace berth::sim {
namespace {

constexpr uint64_t kShareMagic = 0x6572616873'6d6973;

struct ShareFile {
  uint64_t magic;
  ShareName name;
};

UniqueFd open_card(int card) { return open_folder_file("card" + std::to_string(card), O_RDWR); }

void punch(int fd, uint32_t first, uint32_t count) {
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first * kPageBytes),
            static_cast<off_t>(count * kPageBytes));
}

bool is_free(const Page& page) { return page.owner == 0 && page.share == 0; }

// Frees every page of the card for which `mine` is true: content first, then the entry.
template <class Mine>
void free_where(int card, Mine mine) {
  Page* pages = pages_of(card);
  const uint32_t count = state().card[card].pages;
  UniqueFd fd;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t end = i;
    while (end < count && mine(pages[end])) ++end;
    if (end == i) continue;
    if (!fd) fd = open_card(card);
    punch(fd.get(), i, end - i);
    for (uint32_t k = i; k < end; ++k) pages[k].owner = 0, pages[k].share = 0;
    state().card[card].free_pages += end - i;
    i = end;
  }
}

std::string share_file(const ShareName& name) {
  return "share-" + std::to_string(name.index) + "-" + std::to_string(name.generation);
}

bool has_holder(const Share& share) {
  return std::any_of(std::begin(share.holders), std::end(share.holders), [](uint64_t word) { return word != 0; });
}

int first_holder(const Share& share) {
  for (int word = 0; word < kMaxProcesses / 64; ++word)
    if (share.holders[word]) return word * 64 + __builtin_ctzll(share.holders[word]);
  return -1;
}

// Without living holders a share lives on only while somebody keeps a descriptor of its file open.
void drop_if_unheld(int index) {
  Share& share = state().shares[index];
  if (!share.used || has_holder(share)) return;
  ShareName name{index, share.generation};
  UniqueFd fd = open_folder_file(share_file(name), O_RDWR);
  if (fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return;
  unlink(folder_file(share_file(name)).c_str());
  free_where(share.card, [index](const Page& page) { return page.share == index + 1; });
  share.used = 0;
}

void remove_holder(int index, int slot) {
  Share& share = state().shares[index];
  share.holders[slot / 64] &= ~(1ull << (slot % 64));
  if (share.charged == slot) share.charged = first_holder(share);
  drop_if_unheld(index);
}

}  // namespace

bool take_pages(int card, uint32_t count, PageKind kind, Runs* runs) {
  StateLock lock;
  Card& c = state().card[card];
  if (own_slot() < 0) return false;
  if (c.free_pages < count)  // a share that only a closed descriptor held may still be on the card
    for (uint32_t i = 0; i < state().shares_used; ++i) drop_if_unheld(static_cast<int>(i));
  if (c.free_pages < count) return false;
  Page* pages = pages_of(card);
  uint32_t at = c.cursor % c.pages, taken = 0;
  runs->clear();
  while (taken < count) {
    if (is_free(pages[at])) {
      pages[at].kind = static_cast<uint8_t>(kind);
      pages[at].index = taken & 0xffffff;
      pages[at].owner = static_cast<uint16_t>(own_slot() + 1);
      --c.free_pages;
      ++taken;
      if (!runs->empty() && runs->back().first + runs->back().count == at)
        ++runs->back().count;
      else
        runs->push_back({at, 1});
    }
    at = (at + 1) % c.pages;
  }
  c.cursor = at;
  return true;
}

void give_pages(int card, const Runs& runs) {
  UniqueFd fd = open_card(card);
  for (const Run& run : runs) punch(fd.get(), run.first, run.count);
  StateLock lock;
  Page* pages = pages_of(card);
  for (const Run& run : runs)
    for (uint32_t i = run.first; i < run.first + run.count; ++i) {
      if (pages[i].share || pages[i].owner != own_slot() + 1) continue;
      pages[i].owner = 0;
      ++state().card[card].free_pages;
    }
}

uint64_t free_bytes(int card) {
  StateLock lock;
  for (uint32_t i = 0; i < state().shares_used; ++i) drop_if_unheld(static_cast<int>(i));
  return state().card[card].free_pages * kPageBytes;
}

bool claim_contexts(int card) {
  StateLock lock;
  Card& c = state().card[card];
  if (c.compute_mode == kModeProhibited || own_slot() < 0) return false;
  if (c.compute_mode == kModeDefault) return true;
  auto self = static_cast<uint32_t>(own_slot()) + 1;
  if (c.exclusive_holder && c.exclusive_holder != self) return false;
  c.exclusive_holder = self;
  return true;
}

void give_up_contexts(int card) {
  StateLock lock;
  Card& c = state().card[card];
  if (c.exclusive_holder == static_cast<uint32_t>(own_slot()) + 1) c.exclusive_holder = 0;
}

std::vector<Usage> usage_of(int card) {
  StateLock lock;
  struct Sum {
    uint64_t bytes;
    bool context;
  };
  std::map<int, Sum> sums;
  const Page* pages = pages_of(card);
  for (uint32_t i = 0; i < state().card[card].pages; ++i) {
    if (is_free(pages[i])) continue;
    int slot = pages[i].share ? state().shares[pages[i].share - 1].charged : pages[i].owner - 1;
    if (slot < 0) continue;
    Sum& sum = sums[slot];
    auto kind = static_cast<PageKind>(pages[i].kind);
    if (kind != PageKind::managed) sum.bytes += kPageBytes;
    if (kind == PageKind::context) sum.context = true;
  }
  std::vector<Usage> result;
  for (const auto& [slot, sum] : sums)
    if (sum.context) result.push_back({pid_seen_here(state().slots[slot]), sum.bytes});
  return result;
}

int share_pages(int card, const Runs& runs, ShareName* name) {
  StateLock lock;
  State& s = state();
  for (uint32_t i = 0; i < s.shares_used; ++i) drop_if_unheld(static_cast<int>(i));
  for (int index = 0; index < kMaxShares; ++index) {
    Share& share = s.shares[index];
    if (share.used) continue;
    uint32_t count = 0;
    for (const Run& run : runs) count += run.count;
    std::fill(std::begin(share.holders), std::end(share.holders), 0);
    share.holders[own_slot() / 64] = 1ull << (own_slot() % 64);
    share.card = card, share.pages = count, share.charged = own_slot();
    *name = {index, ++share.generation};
    if (s.shares_used < static_cast<uint32_t>(index) + 1) s.shares_used = static_cast<uint32_t>(index) + 1;
    share.used = 1;
    uint32_t position = 0;
    for (const Run& run : runs)
      for (uint32_t i = run.first; i < run.first + run.count; ++i) {
        pages_of(card)[i].index = position++ & 0xffffff;
        pages_of(card)[i].share = static_cast<uint16_t>(index + 1);
      }
    return index;
  }
  return -1;
}

bool join_share(const ShareName& name, int* card, Runs* runs) {
  StateLock lock;
  if (name.index < 0 || name.index >= kMaxShares || own_slot() < 0) return false;
  Share& share = state().shares[name.index];
  if (!share.used || share.generation != name.generation) return false;
  std::vector<uint32_t> order(share.pages);
  const Page* pages = pages_of(share.card);
  for (uint32_t i = 0; i < state().card[share.card].pages; ++i)
    if (pages[i].share == name.index + 1 && pages[i].index < share.pages) order[pages[i].index] = i;
  runs->clear();
  for (uint32_t page : order) {
    if (!runs->empty() && runs->back().first + runs->back().count == page)
      ++runs->back().count;
    else
      runs->push_back({page, 1});
  }
  share.holders[own_slot() / 64] |= 1ull << (own_slot() % 64);
  if (share.charged < 0) share.charged = own_slot();
  *card = share.card;
  return true;
}

void leave_share(const ShareName& name) {
  StateLock lock;
  const Share& share = state().shares[name.index];
  if (share.used && share.generation == name.generation) remove_holder(name.index, own_slot());
}

// flock belongs to the open file description, so it goes with the descriptor to whomever it is sent.
int open_share_file(const ShareName& name) {
  UniqueFd fd = open_folder_file(share_file(name), O_RDWR | O_CREAT);
  ShareFile content{kShareMagic, name};
  if (!fd || pwrite(fd.get(), &content, sizeof content, 0) != sizeof content || flock(fd.get(), LOCK_SH) != 0)
    return -1;
  return fd.release();
}

bool read_share_file(int fd, ShareName* name) {
  ShareFile content{};
  if (pread(fd, &content, sizeof content, 0) != sizeof content || content.magic != kShareMagic) return false;
  *name = content.name;
  return true;
}

void forget_process(int slot) {
  State& s = state();
  for (uint32_t card = 0; card < s.cards; ++card) {
    if (s.card[card].exclusive_holder == static_cast<uint32_t>(slot) + 1) s.card[card].exclusive_holder = 0;
    free_where(static_cast<int>(card), [slot](const Page& page) { return page.owner == slot + 1 && page.share == 0; });
  }
  for (uint32_t i = 0; i < s.shares_used; ++i)
    if (s.shares[i].used && (s.shares[i].holders[slot / 64] >> (slot % 64) & 1))
      remove_holder(static_cast<int>(i), slot);
  for (SharedEvent& event : s.events)
    if (event.owner == static_cast<uint32_t>(slot) + 1) event.owner = 0;
}

void recount_pages() {
  State& s = state();
  for (uint32_t card = 0; card < s.cards; ++card) {
    const Page* pages = pages_of(static_cast<int>(card));
    s.card[card].free_pages =
        static_cast<uint32_t>(std::count_if(pages, pages + s.card[card].pages, [](const Page& page) { return is_free(page); }));
  }
}

}  // namespace berth::sim
