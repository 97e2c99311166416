#pragma once
#include "contract.h"

namespace contract {
void before_init();
void linear();
void managed();
void pools();
void vmm();
void arrays();
void contexts();
void streams();
void captures();
void graphs();
void graph_memory();
void graph_parts();
void launches();
void copies();
void lookups();
}  // namespace contract
