// Helpers of execute.cpp that other files of the executor use.
#pragma once
#include "sim/engine.h"

namespace berth::sim {

// A launch of an instantiated graph, graph_run.cpp.
Step advance_graph(GraphRun& run, Operation& operation, EngineView& view, Lane& lane);
void abandon_graph(GraphRun& run, Operation& operation, CUresult error);

}  // namespace berth::sim
