/* AMX's eight tiles, each of 16 rows of 64 bytes. Included by amx.h, in its namespace. With
   MLBACKENDS_EMULATED_PAIRS a header of the tests stands in for its instructions. */

constexpr int tile_rows = 16, tile_bytes = 64;

#if defined(MLBACKENDS_EMULATED_PAIRS)
#include "emulated_tiles.h"
#else

/* The compiler keeps nothing in tiles, so that each instruction finds what the one before left. */
struct TileShapes {
  uint8_t palette, first_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
static_assert(sizeof(TileShapes) == 64, "as the processor reads it");

INLINED void configure_tiles() {
  TileShapes shapes = {};
  shapes.palette = 1;
  for (int tile = 0; tile < 8; tile++) shapes.row_bytes[tile] = tile_bytes, shapes.rows[tile] = tile_rows;
  __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
}
INLINED void release_tiles() { __asm__ volatile("tilerelease"); }

template <int tile>
INLINED void zero_tile() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
}

template <int tile>
INLINED void load_tile(const void *at, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(at), "r"(stride), "i"(tile) : "memory");
}

template <int tile>
INLINED void store_tile(void *at, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(at), "r"(stride), "i"(tile) : "memory");
}

template <int sum, int first, int second>
INLINED void multiply_tiles() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(first), "i"(second));
}

#endif
