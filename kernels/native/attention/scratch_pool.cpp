/* A few slots that are exchanged as a whole: there is no lock that a fork could leave behind. */
#include "scratch_pool.h"

#include <stdlib.h>

namespace {

constexpr int64_t slots = 64, head = 64, largest_kept = 4 << 20;
char *kept[slots];

int64_t &size_of(char *piece) { return *(int64_t *)piece; }

}  // namespace

char *take_scratch(int64_t bytes) {
  for (char *&slot : kept) {
    if (!__atomic_load_n(&slot, __ATOMIC_RELAXED)) continue;
    char *piece = __atomic_exchange_n(&slot, (char *)nullptr, __ATOMIC_ACQUIRE);
    if (!piece) continue;
    if (size_of(piece) >= bytes) return piece + head;
    free(piece);
  }
  void *piece = nullptr;
  if (bytes < 0 || posix_memalign(&piece, 64, (size_t)(bytes + head))) return nullptr;
  size_of((char *)piece) = bytes;
  return (char *)piece + head;
}

void give_scratch(char *memory) {
  if (!memory) return;
  char *piece = memory - head;
  if (size_of(piece) <= largest_kept)
    for (char *&slot : kept) {
      char *empty = nullptr;
      if (__atomic_compare_exchange_n(&slot, &empty, piece, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
  free(piece);
}
