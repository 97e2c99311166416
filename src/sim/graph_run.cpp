// One launch of a graph on the engine: nodes run as their predecessors end, side by side where they may.
#include <algorithm>

#include "sim/event.h"
#include "sim/execute.h"
#include "sim/graph.h"
#include "sim/graph_memory.h"

namespace berth::sim {
namespace {

// What the run did to memory becomes final.
void close_run(GraphRun& run, const Operation& operation) {
  Lock lock(process().mutex);
  operation.context->device->graph_memory->end(run.exec->allocations);
}

void complete_node(GraphRun& run, size_t index) {
  GraphRun::Node& node = run.nodes[index];
  node.done = true;
  --run.left;
  std::erase(run.ready, index);
  for (size_t next : node.next) {
    run.nodes[next].lane = node.lane;
    if (--run.nodes[next].missing == 0) run.ready.push_back(next);
  }
}

}  // namespace

std::shared_ptr<GraphRun> make_run(const std::shared_ptr<GraphExec>& exec, Context& context) {
  auto run = std::make_shared<GraphRun>();
  run->exec = exec;
  run->nodes.resize(exec->nodes.size());
  run->left = exec->nodes.size();
  for (size_t i = 0; i < exec->nodes.size(); ++i) {
    GraphRun::Node& node = run->nodes[i];
    node.operation.context = &context;
    node.operation.work = exec->nodes[i].enabled ? exec->nodes[i].work : Work(EmptyWork{});
    if (auto* record = std::get_if<RecordWork>(&node.operation.work)) record->record = new_record(*record->event);
    node.missing = exec->nodes[i].after.size();
    for (size_t before : exec->nodes[i].after) run->nodes[before].next.push_back(i);
    if (!node.missing) run->ready.push_back(i);
  }
  return run;
}

Step advance_graph(GraphRun& run, Operation& operation, EngineView& view, Lane& lane) {
  Step waiting{Step::wait, INT64_MAX};
  bool moved = false;
  auto round = run.ready;
  for (size_t index : round) {
    GraphRun::Node& node = run.nodes[index];
    if (!operation.begun) node.lane = lane;
    Step step = advance(node.operation, view, node.lane);
    if (step.kind == Step::failed) return step;
    if (step.kind == Step::wait) {
      waiting.until = std::min(waiting.until, step.until ? step.until : now_ns() + 50'000);
      waiting.wants_card |= step.wants_card;
      continue;
    }
    moved = true;
    if (step.kind != Step::complete) continue;
    lane = node.lane;
    complete_node(run, index);
  }
  operation.begun = true;
  if (!run.left) {
    close_run(run, operation);
    return {Step::complete};
  }
  return moved ? Step{Step::more} : waiting;
}

void abandon_graph(GraphRun& run, Operation& operation, CUresult error) {
  for (auto& node : run.nodes)
    if (!node.done) abandon(node.operation, error);
  close_run(run, operation);
}

}  // namespace berth::sim
