// Names of users and their groups, as the system knows them.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace berth::daemon {

std::string user_name(uid_t uid);  // the number as text where there is no name
std::vector<std::string> group_names(const std::string& user);

}  // namespace berth::daemon
