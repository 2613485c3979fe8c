/* AMX's tiles in plain C++, for a CPU that lacks them. Included by tiles.h.
   Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS: even and odd
   elements are summed apart, each sum rounded to the nearest, subnormal numbers count as zero. */

struct Tile {
  uint32_t row[tile_rows][tile_bytes / 4];
};
static __thread Tile tile_registers[8];
static __thread bool tiles_are_configured;

INLINED float without_subnormal(float x) { return __builtin_fabsf(x) < 0x1p-126f ? 0 * x : x; }

INLINED void configure_tiles() { tiles_are_configured = true; }
INLINED void release_tiles() { tiles_are_configured = false; }

/* Without a configuration the instructions are illegal. */
INLINED Tile &tile_register(int number) {
  if (!tiles_are_configured) __builtin_trap();
  return tile_registers[number];
}

template <int tile>
INLINED void zero_tile() {
  tile_register(tile) = Tile{};
}

template <int tile>
INLINED void load_tile(const void *at, int64_t stride) {
  for (int i = 0; i < tile_rows; i++)
    memcpy(tile_register(tile).row[i], (const char *)at + i * stride, tile_bytes);
}

template <int tile>
INLINED void store_tile(void *at, int64_t stride) {
  for (int i = 0; i < tile_rows; i++) memcpy((char *)at + i * stride, tile_register(tile).row[i], tile_bytes);
}

static __attribute__((noinline)) void multiply_registers(Tile &sum, const Tile &first, const Tile &second) {
  for (int m = 0; m < tile_rows; m++) {
    float parts[2][tile_bytes / 4] = {};
    for (int k = 0; k < tile_rows; k++)
      for (int n = 0; n < tile_bytes / 4; n++)
        for (int odd = 0; odd < 2; odd++) {
          const uint32_t mask = 0xffff0000;
          const float a =
              without_subnormal(bits_to_float(odd ? first.row[m][k] & mask : first.row[m][k] << 16));
          const float b =
              without_subnormal(bits_to_float(odd ? second.row[k][n] & mask : second.row[k][n] << 16));
          parts[odd][n] = without_subnormal(__builtin_fmaf(a, b, parts[odd][n]));
        }
    for (int n = 0; n < tile_bytes / 4; n++) {
      const float both = without_subnormal(parts[0][n] + parts[1][n]);
      sum.row[m][n] =
          float_to_bits(without_subnormal(without_subnormal(bits_to_float(sum.row[m][n])) + both));
    }
  }
}

template <int sum, int first, int second>
INLINED void multiply_tiles() {
  multiply_registers(tile_register(sum), tile_register(first), tile_register(second));
}
