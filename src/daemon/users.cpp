#include "daemon/users.h"

#include <grp.h>
#include <pwd.h>

namespace berth::daemon {

std::string user_name(uid_t uid) {
  std::vector<char> buffer(16384);
  passwd entry{}, *found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found) return entry.pw_name;
  return std::to_string(uid);
}

std::vector<std::string> group_names(const std::string& user) {
  std::vector<char> buffer(65536);
  passwd entry{}, *found = nullptr;
  if (::getpwnam_r(user.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || !found) return {};
  std::vector<gid_t> ids(64);
  int count = static_cast<int>(ids.size());
  if (::getgrouplist(user.c_str(), entry.pw_gid, ids.data(), &count) < 0) {
    ids.resize(static_cast<size_t>(count));
    ::getgrouplist(user.c_str(), entry.pw_gid, ids.data(), &count);
  }
  ids.resize(static_cast<size_t>(count));
  std::vector<std::string> names;
  for (gid_t id : ids) {
    group record{}, *known = nullptr;
    if (::getgrgid_r(id, &record, buffer.data(), buffer.size(), &known) == 0 && known) names.push_back(record.gr_name);
  }
  return names;
}

}  // namespace berth::daemon
