// berth top: devices and jobs live, and keys to change them.
#include <signal.h>

#include <memory>

#include "cli/commands.h"
#include "cli/query.h"
#include "cli/text.h"
#include "cli/top_screen.h"
#include "cli/top_state.h"
#include "cli/top_view.h"

namespace berth::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTopPatience{2000};  // keys wait meanwhile

// A conversation that outlives the daemon: the next request finds another.
class Conversation {
 public:
  Result<Json> ask(const Json& request) {
    bool fresh = !connection_;
    auto reply = ask_once(request);
    return !reply && reply.error().code == "lost" && !fresh ? ask_once(request) : reply;
  }

 private:
  Result<Json> ask_once(const Json& request) {
    if (!connection_) {
      auto opened = client::connect_daemon();
      if (!opened) return opened.error();
      connection_ = std::make_unique<client::Connection>(std::move(*opened));
    }
    auto reply = connection_->request(request, kTopPatience);
    if (!reply && (reply.error().code == "lost" || reply.error().code == "timeout" || reply.error().code == "version"))
      connection_.reset();
    return reply;
  }

  std::unique_ptr<client::Connection> connection_;
};

TopData look(Conversation& daemon, TopSort sort) {
  auto ps = daemon.ask({{"op", "ps"}, {"all", false}});
  auto gpus = ps ? daemon.ask({{"op", "gpus"}}) : ps;
  TopData data;
  if (!gpus) {
    data.trouble = "trying again: " + gpus.error().message;
    return data;
  }
  data.jobs = ordered_jobs(*ps, sort);
  const Json& devices = list(*gpus, "devices");
  data.devices.assign(devices.begin(), devices.end());
  return data;
}

// Until q (0) or the number of the signal that ends it.
int show_live(TopScreen& screen, double interval) {
  Conversation daemon;
  TopState state;
  auto pause = std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(interval));
  for (;;) {
    TopData data = look(daemon, state.sort);
    keep_selection(data.jobs, &state);
    bool again = false;
    for (auto next = steady_clock::now() + pause; !again;) {
      screen.draw(top_lines(data, state, interval, screen.size()));
      TopScreen::Input input = screen.wait(next);
      if (input.kind == TopScreen::Input::Kind::ended) return input.signal;
      again = steady_clock::now() >= next;
      if (input.kind != TopScreen::Input::Kind::key) continue;
      TopStep step = press_key(input.key, data.jobs, &state);
      if (step.quit) return 0;
      if (step.request)
        if (auto reply = daemon.ask(*step.request); !reply) state.notice = reply.error().message;
      again |= step.request || input.key == 's';
    }
  }
}

int top(const std::string& delay) {
  auto interval = parse_interval(delay, "-d 2");
  if (!interval) return fail(interval.error());
  int ended_by = 0;
  {
    auto screen = TopScreen::open();
    if (!screen) return fail(screen.error());
    ended_by = show_live(**screen, *interval);
  }
  if (ended_by != 0) {            // whoever started us sees by what we ended
    ::signal(ended_by, SIG_DFL);  // ncurses has put its own handlers there
    ::raise(ended_by);
  }
  return kExitOk;
}

}  // namespace

void add_top(CLI::App& app, Outcome* outcome) {
  CLI::App* command = app.add_subcommand("top", "show devices and jobs live, with keys to pause and change them");
  auto delay = std::make_shared<std::string>("1");
  command->add_option("-d,--delay", *delay, "from one look to the next; 1 unless given")->type_name("SECONDS");
  command->callback([delay, outcome] { outcome->exit_code = top(*delay); });
}

}  // namespace berth::cli
