/* A thread's memory, dealt out piece by piece; without memory it only counts. */
#pragma once
#include <stdint.h>

namespace {

struct Scratch {
  char *memory;
  int64_t taken;

  template <class Kind>
  Kind *take(int64_t count) {
    Kind *piece = memory ? (Kind *)(memory + taken) : nullptr;
    taken += (count * (int64_t)sizeof(Kind) + 63) / 64 * 64;
    return piece;
  }
};

} // namespace
