// What a simulated card says it is; the same for the driver and the management library.
#pragma once
#include <string>

namespace berth::sim {

inline constexpr int kCudaVersion = 13000;
inline constexpr const char* kDriverVersion = "580.159.04";
inline constexpr int kMultiprocessors = 132, kThreadsPerMultiprocessor = 2048;
inline constexpr int kFirstBus = 0x10;  // card N is on bus kFirstBus + N

std::string device_name(int card);                           // cards of different sizes are different models
std::string uuid_text(int card);                             // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
std::string pci_text(int card, bool wide_domain);            // "0000:10:00.0", or with 8 digits of domain
int card_of_pci_text(const char* text);                      // with or without domain and function; -1 none
bool device_attribute(int card, int attribute, int* value);  // false: no such attribute

}  // namespace berth::sim
