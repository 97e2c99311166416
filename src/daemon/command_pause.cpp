// `pause` and `resume`: a paused job uses no GPU time; what it holds of memory it keeps.
#include "daemon/daemon.h"
#include "daemon/views.h"

namespace berth::daemon {

void Commands::pause(const SessionPtr& session, const Json& request) {
  bool inside = false;
  auto id = own_job(session, request, &inside);
  if (!id) return fail(session, id.error());
  change_state(session, *id, policy::JobState::paused);
}

void Commands::resume(const SessionPtr& session, const Json& request) {
  bool inside = false;
  auto id = own_job(session, request, &inside);
  if (!id) return fail(session, id.error());
  if (inside)
    return fail(session,
                {"not_permitted", "from inside the job it can be paused but not resumed; resume it from outside"});
  change_state(session, *id, policy::JobState::running);
}

// On disk before the reply, as all that outlives the daemon.
void Commands::change_state(const SessionPtr& session, JobId id, policy::JobState state) {
  policy::Job& job = daemon_.state.jobs.at(id);
  const char* word = state == policy::JobState::paused ? "paused" : "resumed";
  if (job.state == policy::JobState::ended)
    return fail(session, {"unknown_job", "the job " + job.name + " has ended already"});
  if (job.state == policy::JobState::waiting)
    return fail(session, {"refused", "the job " + job.name + " still waits for room and cannot be " + word +
                                         "; end it with berth kill, or wait until it runs"});
  if (job.state == state) return reply(session, job_json(daemon_, job));
  job.state = state;
  daemon_.time.changed();
  daemon_.jobs.save(id, [this, session, id, state, word](Status saved) {
    auto it = daemon_.state.jobs.find(id);
    if (it == daemon_.state.jobs.end() || it->second.state == policy::JobState::ended)
      return fail(session, {"unknown_job", "the job has ended meanwhile"});
    policy::Job& kept = it->second;
    if (saved) {
      daemon_.events.add(
          {std::string("job_") + word, kept.name, kept.user, kept.name + " was " + word, Json::object()});
      return reply(session, job_json(daemon_, kept));
    }
    if (kept.state == state)
      kept.state = state == policy::JobState::paused ? policy::JobState::running : policy::JobState::paused;
    daemon_.time.changed();
    fail(session, saved.error());
    daemon_.settle();
  });
}

}  // namespace berth::daemon
