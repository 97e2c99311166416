// Jobs as the store keeps them.
#pragma once
#include "daemon/jobs.h"

namespace berth::daemon {

Json job_record(const policy::State& state, const policy::Job& job, const JobInfo& info);

// False if the record makes no sense, or names devices that are not here any more.
bool read_job_record(const policy::State& state, const Json& record, policy::Job* job, JobInfo* info);

}  // namespace berth::daemon
