// What our driver library tells the runtime alias library of this process's virtual devices: two libraries of ours in one
// process, of one release, with no other way to meet than an exported name.
#pragma once
#include "abi/driver_types.h"

namespace berth::shim {

inline constexpr unsigned kRuntimeView = 2;

// Every function may be called by any thread, after `start` has succeeded.
struct RuntimeView {
  unsigned version;  // kRuntimeView
  // Attaches if that has not happened (cuInit). The number of virtual devices; 0: the process sees its cards themselves;
  // -1: cuInit has failed, so that is not known yet.
  int (*start)();
  int (*card_of)(int device);                   // the number by which the CUDA runtime knows it
  int (*current)();                             // of the calling thread; -1: it has made none current
  void (*make_current)(int device);             // of the calling thread; -1: none
  int (*exchange)(int device);                  // the same, but it is not what the process last made current; returns what was
  int (*of_memory)(CUdeviceptr address, int card);
  int (*of_stream)(CUstream stream, int card);  // null: the current one
  int (*of_node)(CUgraphNode node, int card);   // of an allocation node
  void (*uuid)(int device, unsigned char* bytes);
  void (*bus)(int device, int* domain, int* bus, int* slot);
  // Frees what the device holds; other devices of the process lose nothing. False: nobody else holds anything on its card.
  bool (*reset)(int device);
};

}  // namespace berth::shim

// Null if `version` is not ours.
extern "C" const berth::shim::RuntimeView* berth_shim_devices(unsigned version);
