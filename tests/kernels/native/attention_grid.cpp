/* Calls the attention library with a table of problems, and holds each result against a plain computation in
   double. Every tensor lies in memory of its own that ends where it ends, so that a sanitizer sees what is
   read beyond it.

   attention_grid [address | thread | bits | cramped | levels] [every | table | small [LEVEL]]
     address: all problems at every level that runs, one caller. thread: the same by several callers at once.
     bits: name each result of bfloat16 by a number made from its bits, and compare with nothing.
     cramped: as address, in a process whose stack for signals is too small for more registers than AVX-512's.
     levels: name those that were compiled and run here, the least first; the system must not have been asked
   for any. every: more sizes with every kind of mask; left out, the table, which takes every path once.
     small: of the table what an emulator computes soon, one batch of each; at one level alone where it is
   named. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <memory>
#include <vector>

#if defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "problem.h"
#include "tolerance.h"

namespace {

typedef mlbackends_attention_problem Problem;

enum Masking { NO_MASK, CAUSAL, LOWER_RIGHT, BOOLEAN, ADDITIVE };
enum Layout { HEADS_FIRST, ROWS_FIRST, APART, BACKWARDS, ONE_BATCH };
/* Which mask: (B, H, L, S), or broadcast (L, S), (1, S), (L, 1), or of columns that lie in memory as rows do;
   or one that hides the first 300 keys and shows the others. */
enum Spread { EVERYWHERE, ROWS_AND_KEYS, KEYS, ROWS, TRANSPOSED, FAR_KEYS };

constexpr int64_t every_key = (int64_t)1 << 60; /* to the left or right */

/* A problem of the table. What a line leaves out is as here. */
struct Case {
  const char *name;
  int64_t length, keys, width = 16, value_width = 16;
  int64_t batch = 2, heads = 2, key_heads = 2, value_heads = 2;
  Masking masking = NO_MASK;
  Spread spread = ROWS_AND_KEYS;
  bool wide_mask = false; /* an additive mask of float32 for 16-bit elements */
  Layout layout = HEADS_FIRST;
  double scale = 0.5;
  int threads = 1;
  int64_t milliseconds = 0; /* after which the call comes back; 0: when all is done */
  bool sums = true;         /* whether log-sum-exp is wanted */
  double dropout = 0;
  int64_t left = every_key, right = every_key; /* the window; a causal mask has nothing to the right */
  double softcap = 0;
  bool sinks = false, slopes = false;
  bool packed = false;   /* the rows of all batches are three sequences, of the keys of all; rows lie first */
  int64_t page_size = 0; /* of keys, of which a batch has five fewer than the one before; 0: no pages */

  double sink_of(int64_t head) const { return sinks ? 0.5 - (double)head : -INFINITY; }
  double slope_of(int64_t head) const { return slopes ? 0.25 / (double)(1 + head) : 0; }
};

/* Where the sequences of a packed case begin, and where the last one ends; the second has no row. */
std::vector<int64_t> query_offsets(const Case &c) {
  const int64_t rows = c.batch * c.length;
  return {0, rows / 5, rows / 5, rows};
}
std::vector<int64_t> key_offsets(const Case &c) {
  const int64_t keys = c.batch * c.keys;
  std::vector<int64_t> offsets = {0, keys / 3, keys / 2, keys};
  if (!c.packed) offsets.resize(1);
  for (int64_t batch = 0; !c.packed && batch < c.batch; batch++)
    offsets.push_back(offsets.back() + c.keys - 5 * batch);
  return offsets;
}

/* A row of a tensor in its sequence: its place, and the rows and keys of that, the first key counted through
   all batches. */
struct Own {
  int64_t batch, row, rows, first_key, keys;

  Own(const Case &c, int64_t batch_, int64_t row_)
      : batch(batch_), row(row_), rows(c.length), first_key(batch * c.keys), keys(c.keys) {
    if (c.page_size) keys -= 5 * batch;
    if (!c.packed) return;
    const std::vector<int64_t> of_rows = query_offsets(c), of_keys = key_offsets(c);
    const int64_t place = batch * c.length + row;
    size_t s = 0;
    while (place >= of_rows[s + 1]) s++;
    batch = (int64_t)s, row = place - of_rows[s], rows = of_rows[s + 1] - of_rows[s];
    first_key = of_keys[s], keys = of_keys[s + 1] - first_key;
  }
  int64_t position(const Case &c) const { return c.masking == LOWER_RIGHT ? row + keys - rows : row; }
};

bool sees(const Case &c, const Own &own, int64_t key) {
  const int64_t position = own.position(c),
                right = c.masking == CAUSAL || c.masking == LOWER_RIGHT ? 0 : c.right;
  return key >= position - c.left && key <= position + right;
}

/* ---- what is tried -------------------------------------------------------------------------- */

const Case table[] = {
    /* Few rows: lanes hold elements of a row. */
    {.name = "one of everything", .length = 1, .keys = 1, .width = 1, .value_width = 1},
    {.name = "two rows", .length = 2, .keys = 150, .width = 33, .value_width = 70},
    {.name = "three rows", .length = 3, .keys = 40, .width = 64, .value_width = 64},
    {.name = "grouped rows", .length = 2, .keys = 30, .heads = 8, .masking = BOOLEAN, .layout = ROWS_FIRST},
    {.name = "keys shared by more than values",
     .length = 1,
     .keys = 30,
     .heads = 8,
     .key_heads = 1,
     .masking = CAUSAL},
    {.name = "few rows backwards",
     .length = 3,
     .keys = 200,
     .width = 17,
     .masking = ADDITIVE,
     .layout = BACKWARDS,
     .scale = -0.7},
    {.name = "few rows, mask of keys",
     .length = 3,
     .keys = 20,
     .masking = ADDITIVE,
     .spread = KEYS,
     .wide_mask = true},
    {.name = "few rows, mask across", .length = 2, .keys = 20, .masking = BOOLEAN, .spread = TRANSPOSED},
    /* Few rows against many keys: these are split, and joined again. */
    {.name = "split", .length = 1, .keys = 1100, .width = 40, .value_width = 33, .layout = APART},
    {.name = "split lower right", .length = 4, .keys = 1030, .masking = LOWER_RIGHT, .threads = 2},
    {.name = "split by steps",
     .length = 1,
     .keys = 2100,
     .masking = ADDITIVE,
     .threads = 2,
     .milliseconds = 1},
    {.name = "split with nothing seen", .length = 5, .keys = 1100, .masking = BOOLEAN, .spread = ROWS},
    {.name = "split of many rows", .length = 20, .keys = 1100, .batch = 1, .masking = ADDITIVE},
    /* Many rows: they lie across lanes. Vectors of 2 to 16 rows, taken by one, two and three. */
    {.name = "many rows", .length = 70, .keys = 300, .width = 40, .value_width = 33},
    {.name = "one key more than a step",
     .length = 17,
     .keys = 257,
     .width = 3,
     .value_width = 5,
     .sums = false},
    {.name = "more rows than a block", .length = 261, .keys = 20, .width = 9, .batch = 1, .threads = 3},
    {.name = "causal", .length = 100, .keys = 90, .masking = CAUSAL, .layout = ROWS_FIRST, .threads = 2},
    {.name = "lower right, rows without a key",
     .length = 50,
     .keys = 31,
     .masking = LOWER_RIGHT,
     .scale = -0.5},
    {.name = "lower right, more keys",
     .length = 33,
     .keys = 290,
     .batch = 1,
     .masking = LOWER_RIGHT,
     .layout = BACKWARDS},
    {.name = "boolean", .length = 40, .keys = 270, .masking = BOOLEAN, .spread = EVERYWHERE},
    {.name = "boolean of keys", .length = 40, .keys = 50, .masking = BOOLEAN, .spread = KEYS},
    {.name = "boolean of rows", .length = 40, .keys = 50, .masking = BOOLEAN, .spread = ROWS},
    {.name = "boolean across", .length = 20, .keys = 50, .masking = BOOLEAN, .spread = TRANSPOSED},
    {.name = "boolean of a whole step",
     .length = 40,
     .keys = 600,
     .batch = 1,
     .masking = BOOLEAN,
     .spread = FAR_KEYS},
    {.name = "additive", .length = 40, .keys = 61, .masking = ADDITIVE, .spread = EVERYWHERE, .scale = -0.5},
    {.name = "additive, float32", .length = 33, .keys = 61, .masking = ADDITIVE, .wide_mask = true},
    {.name = "additive of keys", .length = 33, .keys = 61, .masking = ADDITIVE, .spread = KEYS},
    {.name = "additive of rows", .length = 33, .keys = 20, .masking = ADDITIVE, .spread = ROWS},
    {.name = "additive across",
     .length = 33,
     .keys = 20,
     .masking = ADDITIVE,
     .spread = TRANSPOSED,
     .scale = 0},
    {.name = "grouped", .length = 30, .keys = 41, .heads = 6, .masking = CAUSAL},
    {.name = "grouped, keys and values apart",
     .length = 65,
     .keys = 20,
     .heads = 6,
     .key_heads = 3,
     .value_heads = 2,
     .threads = 2},
    {.name = "wide", .length = 34, .keys = 70, .width = 264, .value_width = 200, .batch = 1, .heads = 2},
    {.name = "one batch for all", .length = 20, .keys = 30, .layout = ONE_BATCH},
    {.name = "by steps",
     .length = 130,
     .keys = 300,
     .width = 32,
     .masking = CAUSAL,
     .threads = 2,
     .milliseconds = 1},
    {.name = "no scale", .length = 20, .keys = 9, .scale = 0},
    {.name = "large scores", .length = 40, .keys = 300, .batch = 1, .scale = 1e13},
    {.name = "large scores, few rows",
     .length = 3,
     .keys = 300,
     .batch = 1,
     .masking = CAUSAL,
     .scale = -1e13},
    /* Weights that are dropped. */
    {.name = "dropout", .length = 40, .keys = 270, .heads = 4, .masking = BOOLEAN, .dropout = 0.3},
    {.name = "dropout, few rows", .length = 3, .keys = 131, .masking = CAUSAL, .dropout = 0.5},
    {.name = "dropout, split", .length = 2, .keys = 1101, .heads = 4, .dropout = 0.3},
    {.name = "everything dropped", .length = 20, .keys = 9, .dropout = 1},
    /* Windows. */
    {.name = "window of few rows", .length = 3, .keys = 700, .masking = LOWER_RIGHT, .left = 200},
    {.name = "window, split", .length = 1, .keys = 4100, .masking = LOWER_RIGHT, .left = 2049},
    {.name = "window of few rows with a mask",
     .length = 4,
     .keys = 60,
     .masking = ADDITIVE,
     .left = 1,
     .right = 20},
    {.name = "window", .length = 300, .keys = 300, .width = 33, .batch = 1, .masking = CAUSAL, .left = 40},
    {.name = "window to both sides", .length = 90, .keys = 700, .value_width = 33, .left = 3, .right = 401},
    {.name = "window of one key", .length = 70, .keys = 50, .threads = 2, .left = 0, .right = 0},
    {.name = "window with a mask", .length = 50, .keys = 330, .masking = BOOLEAN, .left = 20, .right = 290},
    {.name = "window of heads that share keys",
     .length = 20,
     .keys = 400,
     .heads = 4,
     .key_heads = 1,
     .value_heads = 1,
     .masking = LOWER_RIGHT,
     .dropout = 0.3,
     .left = 70},
    /* Caps, slopes and sinks. */
    {.name = "cap", .length = 40, .keys = 300, .masking = CAUSAL, .scale = 2, .softcap = 1.5},
    {.name = "cap, slopes and sinks of few rows",
     .length = 3,
     .keys = 150,
     .masking = LOWER_RIGHT,
     .scale = -2,
     .softcap = 0.5,
     .sinks = true,
     .slopes = true},
    {.name = "slopes", .length = 90, .keys = 70, .value_width = 33, .slopes = true},
    {.name = "slopes in a window with a mask",
     .length = 50,
     .keys = 330,
     .masking = ADDITIVE,
     .left = 20,
     .right = 290,
     .softcap = 2,
     .slopes = true},
    {.name = "slopes of heads that share keys",
     .length = 9,
     .keys = 70,
     .heads = 8,
     .masking = LOWER_RIGHT,
     .slopes = true},
    {.name = "sinks, split", .length = 2, .keys = 1101, .masking = BOOLEAN, .spread = ROWS, .sinks = true},
    {.name = "sinks, rows without a key",
     .length = 50,
     .keys = 31,
     .masking = LOWER_RIGHT,
     .dropout = 0.3,
     .sinks = true},
    /* Sequences of several lengths, and keys in pages. */
    {.name = "packed", .length = 60, .keys = 150, .masking = LOWER_RIGHT, .layout = ROWS_FIRST, .packed = true},
    {.name = "packed few rows",
     .length = 4,
     .keys = 700,
     .heads = 4,
     .layout = ROWS_FIRST,
     .threads = 2,
     .left = 90,
     .sinks = true,
     .packed = true},
    {.name = "packed, dropout", .length = 40, .keys = 60, .layout = ROWS_FIRST, .dropout = 0.3, .packed = true},
    {.name = "pages", .length = 70, .keys = 330, .width = 33, .value_width = 40, .masking = CAUSAL, .page_size = 4},
    {.name = "odd pages", .length = 20, .keys = 69, .key_heads = 1, .value_heads = 1, .page_size = 3},
    {.name = "pages of few rows",
     .length = 1,
     .keys = 1110,
     .masking = LOWER_RIGHT,
     .left = 800,
     .slopes = true,
     .page_size = 12},
    {.name = "large pages of few rows", .length = 3, .keys = 400, .page_size = 200},
    /* Nothing to do, or nearly. */
    {.name = "no key", .length = 20, .keys = 0},
    {.name = "no key for few rows", .length = 2, .keys = 0},
    {.name = "no width", .length = 20, .keys = 9, .width = 0},
    {.name = "no width for few rows", .length = 2, .keys = 9, .width = 0},
    {.name = "no row", .length = 0, .keys = 9},
    {.name = "no column", .length = 9, .keys = 9, .value_width = 0},
};

/* What `every` adds: sizes, each with every kind of mask. */
std::vector<Case> more_cases() {
  struct Size {
    int64_t length, keys, width, value_width;
  };
  const Size sizes[] = {{1, 700, 33, 40}, {3, 1100, 64, 64}, {5, 17, 16, 3},
                        {20, 9, 8, 31},   {70, 300, 40, 33}, {130, 64, 64, 80}};
  std::vector<Case> made;
  for (const Size &size : sizes)
    for (int masking = NO_MASK; masking <= ADDITIVE; masking++)
      for (int spread = EVERYWHERE; spread <= (masking >= BOOLEAN ? TRANSPOSED : EVERYWHERE); spread++) {
        Case c = {.name = "one of many sizes",
                  .length = size.length,
                  .keys = size.keys,
                  .width = size.width,
                  .value_width = size.value_width};
        c.heads = 4, c.masking = (Masking)masking, c.spread = (Spread)spread, c.threads = 1 + spread % 3;
        made.push_back(c);
      }
  return made;
}

/* ---- tensors -------------------------------------------------------------------------------- */

int64_t bytes_of(int element) {
  return element == MLBACKENDS_ATTENTION_FLOAT32   ? 4
         : element == MLBACKENDS_ATTENTION_FLOAT64 ? 8
         : element == MLBACKENDS_ATTENTION_BOOL    ? 1
                                                   : 2;
}

/* Write a random number below one half in size, or a boolean. */
void write_random(int element, uint32_t &seed, char *at) {
  seed = seed * 1664525 + 1013904223;
  const double wide = (double)(int32_t)seed / 4294967296.0;
  const float number = (float)wide;
  const uint16_t half = (uint16_t)((seed >> 16 & 0x8000) | 0x3000 | (seed >> 12 & 0x7ff));
  switch (element) {
    case MLBACKENDS_ATTENTION_FLOAT64: memcpy(at, &wide, 8); break;
    case MLBACKENDS_ATTENTION_FLOAT32: memcpy(at, &number, 4); break;
    case MLBACKENDS_ATTENTION_FLOAT16: memcpy(at, &half, 2); break;
    case MLBACKENDS_ATTENTION_BFLOAT16: memcpy(at, (const char *)&number + 2, 2); break;
    case MLBACKENDS_ATTENTION_BOOL: *at = (char)(seed >> 30 & 1); break;
  }
}

double read(int element, const char *at) {
  uint32_t bits = 0;
  float number;
  double wide;
  switch (element) {
    case MLBACKENDS_ATTENTION_FLOAT64: return memcpy(&wide, at, 8), wide;
    case MLBACKENDS_ATTENTION_FLOAT32: return memcpy(&number, at, 4), number;
    case MLBACKENDS_ATTENTION_BFLOAT16:
      return memcpy((char *)&bits + 2, at, 2), memcpy(&number, &bits, 4), number;
    case MLBACKENDS_ATTENTION_BOOL: return *at;
  }
  memcpy(&bits, at, 2);
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                     : ldexp(fraction, -24);
  return bits & 0x8000 ? -size : size;
}

/* (batch, heads, rows, columns); the last is contiguous. */
struct Tensor {
  int element;
  std::unique_ptr<char[]> memory;
  char *first; /* where the element of index 0 lies */
  int64_t strides[3];

  Tensor(int element_, int64_t batch, int64_t heads, int64_t rows, int64_t columns, Layout layout,
         uint32_t seed)
      : element(element_) {
    const int64_t row = layout == ROWS_FIRST ? heads * columns : layout == APART ? columns + 5 : columns;
    const int64_t head = layout == ROWS_FIRST ? columns : rows * row,
                  all = rows * heads * (layout == APART ? row : columns);
    const int64_t count = layout == ONE_BATCH ? all : batch * all, size = bytes_of(element);
    const int64_t unused = layout == APART && count ? 5 : 0; /* behind the last row nothing lies */
    memory.reset(new char[(count - unused) * size]);
    for (int64_t i = 0; i < count - unused; i++) write_random(element, seed, memory.get() + i * size);
    first = memory.get();
    strides[0] = layout == ONE_BATCH ? 0 : all, strides[1] = head, strides[2] = row;
    if (layout == BACKWARDS && rows) first += (rows - 1) * row * size, strides[2] = -row;
  }
  char *at(int64_t batch, int64_t head, int64_t row, int64_t column) const {
    return first + (batch * strides[0] + head * strides[1] + row * strides[2] + column) * bytes_of(element);
  }
};

struct Mask {
  int element = MLBACKENDS_ATTENTION_NONE;
  std::unique_ptr<char[]> memory;
  int64_t count = 0, strides[4] = {0, 0, 0, 0};

  Mask(const Case &c, int elements) {
    if (c.masking < BOOLEAN) return;
    element = c.masking == BOOLEAN                     ? (int)MLBACKENDS_ATTENTION_BOOL
              : c.wide_mask && bytes_of(elements) == 2 ? (int)MLBACKENDS_ATTENTION_FLOAT32
                                                       : elements;
    const bool of_rows = c.spread != KEYS, of_keys = c.spread != ROWS;
    count = (of_rows ? c.length : 1) * (of_keys ? c.keys : 1);
    strides[2] = of_rows ? (of_keys ? c.keys : 1) : 0, strides[3] = of_keys;
    if (c.spread == TRANSPOSED) strides[2] = 1, strides[3] = c.length;
    if (c.spread == EVERYWHERE) strides[1] = count, strides[0] = count * c.heads, count *= c.heads * c.batch;
    memory.reset(new char[count * bytes_of(element)]);
    uint32_t seed = 5;
    for (int64_t i = 0; i < count; i++) {
      char *at = memory.get() + i * bytes_of(element);
      write_random(element, seed, at);
      if (c.spread == FAR_KEYS) *at = i % c.keys >= 300;
    }
    if (c.masking == ADDITIVE) hide_some();
  }
  int64_t place(int64_t batch, int64_t head, int64_t row, int64_t key) const {
    return batch * strides[0] + head * strides[1] + row * strides[2] + key * strides[3];
  }
  double number(int64_t batch, int64_t head, int64_t row, int64_t key) const {
    return read(element, memory.get() + place(batch, head, row, key) * bytes_of(element));
  }

 private:
  void hide_some() { /* every seventh number becomes -inf */
    const double wide = -INFINITY;
    const float number = -INFINITY;
    const uint16_t half = 0xfc00;
    for (int64_t i = 3; i < count; i += 7) {
      char *at = memory.get() + i * bytes_of(element);
      if (element == MLBACKENDS_ATTENTION_FLOAT64) memcpy(at, &wide, 8);
      if (element == MLBACKENDS_ATTENTION_FLOAT32) memcpy(at, &number, 4);
      if (element == MLBACKENDS_ATTENTION_FLOAT16) memcpy(at, &half, 2);
      if (element == MLBACKENDS_ATTENTION_BFLOAT16) memcpy(at, (const char *)&number + 2, 2);
    }
  }
};

/* Where a tensor of its own for each batch lies. */
Layout of_each_batch(const Case &c) { return c.layout == ONE_BATCH ? HEADS_FIRST : c.layout; }

struct Inputs {
  Tensor query, key, value, of_output; /* of_output: the gradient of the output */
  Mask mask;

  Inputs(const Case &c, int element)
      : query(element, c.batch, c.heads, c.length, c.width, of_each_batch(c), 1),
        key(element, c.batch, c.key_heads, c.keys, c.width, c.layout, 2),
        value(element, c.batch, c.value_heads, c.keys, c.value_width, c.layout, 3),
        of_output(element, c.batch, c.heads, c.length, c.value_width, of_each_batch(c), 6),
        mask(c, element) {}
};

/* ---- the plain computation ------------------------------------------------------------------ */

constexpr uint64_t seed_of_dropout = 0x9e3779b97f4a7c15;

/* Tell whether dropout keeps a weight; see kernels/mlbackends_kernels/tensors/dropout.py, which says it in
   Python. */
bool is_kept(const Case &c, int64_t batch, int64_t head, int64_t row, int64_t key) {
  uint32_t word[4] = {(uint32_t)(key / 4), (uint32_t)row, (uint32_t)head, (uint32_t)batch};
  uint32_t low = (uint32_t)seed_of_dropout, high = (uint32_t)(seed_of_dropout >> 32);
  for (int round = 0; round < 10; round++) {
    const uint64_t first = (uint64_t)word[0] * 0xd2511f53, second = (uint64_t)word[2] * 0xcd9e8d57;
    const uint32_t next[4] = {(uint32_t)(second >> 32) ^ word[1] ^ low, (uint32_t)second,
                              (uint32_t)(first >> 32) ^ word[3] ^ high, (uint32_t)first};
    memcpy(word, next, sizeof word);
    low += 0x9e3779b9, high += 0xbb67ae85;
  }
  return (double)word[key % 4] >= floor(c.dropout * 4294967296.0);
}

/* Of one row: the share of each key, how much its value counts, the log of the sum of exponentials, the
   result. */
struct Row {
  std::vector<double> shares, weights, result;
  double sum = 0;

  Row(const Case &c, const Inputs &in, int64_t batch, int64_t head, int64_t row)
      : weights((size_t)c.keys), result((size_t)c.value_width) {
    const int64_t key_head = head * c.key_heads / c.heads, value_head = head * c.value_heads / c.heads;
    double largest = c.sink_of(head), total = 0;
    const Own own(c, batch, row);
    const auto key = [&](int64_t k) { return std::pair((own.first_key + k) / c.keys, (own.first_key + k) % c.keys); };
    weights.resize((size_t)own.keys);
    for (int64_t k = 0; k < own.keys; k++) {
      double score = 0;
      for (int64_t d = 0; d < c.width; d++)
        score += read(in.query.element, in.query.at(batch, head, row, d)) *
                 read(in.key.element, in.key.at(key(k).first, key_head, key(k).second, d));
      score *= c.scale;
      if (c.softcap > 0) score = c.softcap * tanh(score / c.softcap);
      score -= c.slope_of(head) * fabs((double)(own.position(c) - k));
      if (!sees(c, own, k)) score = -INFINITY;
      if (c.masking == BOOLEAN && !in.mask.number(batch, head, row, k)) score = -INFINITY;
      if (c.masking == ADDITIVE) score += in.mask.number(batch, head, row, k);
      weights[(size_t)k] = score;
      largest = fmax(largest, score);
    }
    if (c.sinks) total = exp(c.sink_of(head) - largest);
    for (double &weight : weights) total += weight = largest == -INFINITY ? 0 : exp(weight - largest);
    if (total == 0) return;
    sum = largest + log(total);
    for (int64_t k = 0; k < own.keys; k++) {
      weights[(size_t)k] /= total;
      shares.push_back(weights[(size_t)k]);
      if (c.dropout > 0) weights[(size_t)k] *= is_kept(c, own.batch, head, own.row, k) ? 1 / (1 - c.dropout) : 0;
      for (int64_t v = 0; v < c.value_width; v++)
        result[(size_t)v] +=
            weights[(size_t)k] * read(in.value.element, in.value.at(key(k).first, value_head, key(k).second, v));
    }
    shares.resize((size_t)c.keys), weights.resize((size_t)c.keys);
  }
};

/* All rows, in order of batch, head and row. */
std::vector<Row> computed(const Case &c, const Inputs &in) {
  std::vector<Row> rows;
  for (int64_t batch = 0; batch < c.batch; batch++)
    for (int64_t head = 0; head < c.heads; head++)
      for (int64_t row = 0; row < c.length; row++) rows.emplace_back(c, in, batch, head, row);
  return rows;
}

/* A gradient, and the sum of the sizes of all that it is the sum of. */
struct Slope {
  double number = 0, size = 0;

  void add(double by, double most) { number += by, size += fabs(most); }
};

/* The gradients, each in order of batch, head, row and column; that of the mask as it lies in memory. */
struct Slopes {
  std::vector<Slope> query, key, value, mask;

  Slopes(const Case &c, const Inputs &in, const std::vector<Row> &rows)
      : query((size_t)(c.batch * c.heads * c.length * c.width)),
        key((size_t)(c.batch * c.key_heads * c.keys * c.width)),
        value((size_t)(c.batch * c.value_heads * c.keys * c.value_width)),
        mask((size_t)in.mask.count) {
    for (int64_t i = 0; i < (int64_t)rows.size(); i++)
      if (!rows[(size_t)i].shares.empty())
        add(c, in, rows[(size_t)i], i / c.length / c.heads, i / c.length % c.heads, i % c.length);
  }

 private:
  void add(const Case &c, const Inputs &in, const Row &of, int64_t batch, int64_t head, int64_t row) {
    const int64_t key_head = head * c.key_heads / c.heads, value_head = head * c.value_heads / c.heads;
    const auto number = [&](const Tensor &tensor, int64_t h, int64_t r, int64_t column) {
      return read(tensor.element, tensor.at(batch, h, r, column));
    };
    Slope mean; /* of the gradients of the weights, as they count */
    for (int64_t v = 0; v < c.value_width; v++) {
      const double by = number(in.of_output, head, row, v) * of.result[(size_t)v];
      mean.add(by, by);
    }
    for (int64_t k = 0; k < c.keys; k++) {
      const double share = of.shares[(size_t)k], weight = of.weights[(size_t)k],
                   enlarged = share > 0 ? weight / share : 0;
      Slope of_weight;
      for (int64_t v = 0; v < c.value_width; v++) {
        const double coming = number(in.of_output, head, row, v),
                     by = coming * number(in.value, value_head, k, v) * enlarged;
        of_weight.add(by, by);
        value[(size_t)(((batch * c.value_heads + value_head) * c.keys + k) * c.value_width + v)].add(
            weight * coming, weight * coming);
      }
      const double of_score = share * (of_weight.number - mean.number),
                   most = share * (of_weight.size + mean.size);
      for (int64_t d = 0; d < c.width; d++) {
        const double of_query = c.scale * number(in.key, key_head, k, d),
                     of_key = c.scale * number(in.query, head, row, d);
        query[(size_t)(((batch * c.heads + head) * c.length + row) * c.width + d)].add(of_score * of_query,
                                                                                       most * of_query);
        key[(size_t)(((batch * c.key_heads + key_head) * c.keys + k) * c.width + d)].add(of_score * of_key,
                                                                                         most * of_key);
      }
      if (c.masking == ADDITIVE) mask[(size_t)in.mask.place(batch, head, row, k)].add(of_score, most);
    }
  }
};

/* How far a number of the element type may be from what double gives, all inputs being below one half and the
   weights that dropout keeps so many times larger. */
double allowed(int element, double number, double enlarged) {
  switch (element) {
    case MLBACKENDS_ATTENTION_FLOAT64: return 1e-13;
    case MLBACKENDS_ATTENTION_FLOAT32: return 2e-6;
    case MLBACKENDS_ATTENTION_FLOAT16: return 2e-5 + fabs(number) / 2048;
    default: return 5e-4 * enlarged + fabs(number) / 256; /* weights of bfloat16 are rounded too */
  }
}

/* ---- the library's -------------------------------------------------------------------------- */

void set_strides(int64_t *to, const Tensor &tensor) { memcpy(to, tensor.strides, sizeof tensor.strides); }

bool complain(const char *what, int64_t place, double seen, double wanted) {
  fprintf(stderr, "%s %lld is %.9g, not %.9g\n", what, (long long)place, seen, wanted);
  return false;
}

int wide_of(int element) {
  return element == MLBACKENDS_ATTENTION_FLOAT64 ? element : (int)MLBACKENDS_ATTENTION_FLOAT32;
}

/* A tensor for results, of no numbers, so that one that is not written shows. */
struct Result : Tensor {
  const int64_t heads, rows, columns, count;

  Result(int element, int64_t batch, int64_t heads_, int64_t rows_, int64_t columns_, Layout layout)
      : Tensor(element, batch, heads_, rows_, columns_, layout, 4),
        heads(heads_),
        rows(rows_),
        columns(columns_),
        count(batch * heads * rows * columns) {
    for (int64_t i = 0; i < count; i++) memset(place(i), 0xff, (size_t)bytes_of(element));
  }
  char *place(int64_t i) const {
    return at(i / columns / rows / heads, i / columns / rows % heads, i / columns % rows, i % columns);
  }
  double number(int64_t i) const { return read(element, place(i)); }
};

/* What GOMP_parallel does: call `work(data)` in all threads of a team, here of four. */
void in_team(void (*work)(void *), void *data, unsigned, unsigned) {
  struct Task {
    void (*work)(void *);
    void *data;
  } task = {work, data};
  pthread_t others[3];
  for (pthread_t &other : others)
    if (pthread_create(
            &other, nullptr,
            [](void *given) -> void * { return ((Task *)given)->work(((Task *)given)->data), nullptr; }, &task))
      perror("pthread_create"), exit(2);
  work(data);
  for (pthread_t &other : others) pthread_join(other, nullptr);
}

/* The forward pass of one problem at one level. */
struct Forward {
  const Result out, sums;
  std::unique_ptr<char[]> workspace, sinks, slopes;
  std::vector<int64_t> of_rows, of_keys;
  std::vector<int32_t> pages;
  Problem p;
  int64_t next = 0;

  Forward(const Case &c, const Inputs &in, int level, bool wants_sums)
      : out(in.query.element, c.batch, c.heads, c.length, c.value_width, of_each_batch(c)),
        sums(wide_of(in.query.element), c.batch, c.heads, c.length, 1, HEADS_FIRST) {
    memset(&p, 0, sizeof p);
    p.query = in.query.first, p.key = in.key.first, p.value = in.value.first, p.output = out.first;
    p.mask = in.mask.memory.get(), p.logsumexp = wants_sums ? sums.first : nullptr;
    p.batch = c.batch, p.heads = c.heads, p.query_length = c.length, p.key_length = c.keys,
    p.head_dim = c.width, p.value_dim = c.value_width;
    p.key_group = c.heads / c.key_heads, p.value_group = c.heads / c.value_heads;
    set_strides(p.query_strides, in.query), set_strides(p.key_strides, in.key);
    set_strides(p.value_strides, in.value), set_strides(p.output_strides, out);
    memcpy(p.mask_strides, in.mask.strides, sizeof p.mask_strides);
    p.lower_right = c.masking == LOWER_RIGHT;
    p.window[0] = c.left, p.window[1] = c.masking == CAUSAL || c.masking == LOWER_RIGHT ? 0 : c.right;
    const auto of_heads = [&](std::unique_ptr<char[]> &memory, double (Case::*number)(int64_t) const) {
      const int element = sums.element, size = (int)bytes_of(element);
      memory.reset(new char[(size_t)(c.heads * size)]);
      for (int64_t head = 0; head < c.heads; head++) {
        const double wide = (c.*number)(head);
        const float narrow = (float)wide;
        memcpy(memory.get() + head * size, size == 8 ? (const void *)&wide : &narrow, (size_t)size);
      }
      return memory.get();
    };
    if (c.sinks) p.sinks = of_heads(sinks, &Case::sink_of);
    if (c.slopes) p.slopes = of_heads(slopes, &Case::slope_of);
    p.softcap = c.softcap;
    if (c.packed || c.page_size) of_keys = key_offsets(c), p.key_offsets = of_keys.data();
    if (c.packed) {
      of_rows = query_offsets(c), p.query_offsets = of_rows.data(), p.batch = 3;
      p.query_length = of_rows[3] - of_rows[2], p.key_length = of_keys[3] - of_keys[2];
      p.query_strides[0] = p.key_strides[0] = p.value_strides[0] = p.output_strides[0] = 0;
    }
    if (c.page_size) { /* a batch of so few keys, whose heads are as far apart as before */
      p.page_size = c.page_size, p.pages_stride = (c.keys + c.page_size - 1) / c.page_size;
      for (int64_t batch = 0; batch < c.batch; batch++)
        for (int64_t page = 0; page < p.pages_stride; page++)
          pages.push_back((int32_t)(batch * c.key_heads * c.keys / c.page_size + page));
      p.pages = pages.data();
      p.key_strides[0] = c.page_size * c.width, p.value_strides[0] = c.page_size * c.value_width;
    }
    p.dropout = c.dropout, p.seed = seed_of_dropout;
    p.scale = c.scale, p.element = in.query.element, p.mask_element = in.mask.element, p.level = level,
    p.threads = c.threads, p.parallel = c.threads == 2 ? (const void *)in_team : nullptr;
    workspace.reset(new char[mlbackends_attention_workspace(&p)]);
    p.workspace = workspace.get();
    while (next >= 0) next = mlbackends_attention_forward(&p, next, c.milliseconds);
  }
};

/* A problem of one element type, and what comes of it. */
struct Tried {
  const Case c;
  const Inputs in;
  const std::vector<Row> rows;
  const Slopes slopes;

  Tried(const Case &c_, int element) : c(c_), in(c_, element), rows(computed(c_, in)), slopes(c_, in, rows) {}
};

/* Return whether the forward pass gives the rows. */
bool forward_is_right(const Tried &tried, int level) {
  const Case &c = tried.c;
  const Forward forward(c, tried.in, level, c.sums);
  if (forward.next != -1) return complain("what it returned,", 0, (double)forward.next, -1);
  const double enlarged = c.dropout < 1 ? 1 / (1 - c.dropout) : 1;
  for (int64_t i = 0; i < forward.out.count; i++) {
    const double seen = forward.out.number(i),
                 wanted = tried.rows[(size_t)(i / c.value_width)].result[(size_t)(i % c.value_width)];
    if (!(fabs(seen - wanted) <= allowed(forward.out.element, wanted, enlarged)))
      return complain("the result", i, seen, wanted);
  }
  for (int64_t i = 0; c.sums && c.value_width && i < forward.sums.count; i++) {
    const int64_t place = i % c.length + i / c.length / c.heads * c.length, head = i / c.length % c.heads;
    const double seen = forward.sums.number(c.packed ? head * c.batch * c.length + place : i),
                 wanted = tried.rows[(size_t)i].sum;
    const double tolerance =
        bytes_of(forward.sums.element) == 8 ? LOGSUMEXP_TOLERANCE_FLOAT64 : LOGSUMEXP_TOLERANCE;
    if (!(fabs(seen - wanted) <= tolerance * fmax(1, fabs(wanted))))
      return complain("the log-sum-exp", i, seen, wanted);
  }
  return true;
}

/* The instructions of these levels that multiply pairs of bfloat16 take subnormal numbers for zero. */
bool flushes_subnormals(int element, int level) {
  const std::string name = mlbackends_attention_level_name(level);
  return element == MLBACKENDS_ATTENTION_BFLOAT16 &&
         (name == "sve256" || name.find("_bf16") != std::string::npos);
}

/* Return whether every number of 16 bits is read and rounded right: with one key the result is the value. */
bool numbers_are_right(int element, int64_t length, int level) {
  const Case c = {.name = "every number",
                  .length = length,
                  .keys = 1,
                  .value_width = 1024,
                  .batch = 1,
                  .heads = 64,
                  .key_heads = 64,
                  .value_heads = 64};
  Inputs in(c, element);
  for (uint32_t bits = 0; bits < 1 << 16; bits++) memcpy(in.value.memory.get() + 2 * bits, &bits, 2);
  const Forward forward(c, in, level, false);
  for (int64_t i = 0; i < forward.out.count; i++) {
    const double seen = forward.out.number(i),
                 wanted = read(element, in.value.at(0, i / c.value_width / length, 0, i % c.value_width));
    const bool flushed = seen == 0 && fabs(wanted) < 0x1p-126 && flushes_subnormals(element, level);
    if (seen != wanted && !flushed && !(isnan(seen) && isnan(wanted)))
      return complain("the number", i, seen, wanted);
  }
  return true;
}

bool are_right(const char *what, const Result &found, const std::vector<Slope> &wanted,
               double allowed_of_size) {
  for (int64_t i = 0; i < found.count; i++) {
    const double seen = found.number(i);
    const Slope &slope = wanted[(size_t)i];
    if (!(fabs(seen - slope.number) <= allowed_of_size * slope.size + 1e-7))
      return complain(what, i, seen, slope.number);
  }
  return true;
}

/* Return whether the backward pass gives the gradients. */
bool gradients_are_right(const Tried &tried, int level) {
  const Case &c = tried.c;
  const Inputs &in = tried.in;
  const int element = in.query.element;
  /* Without keys or columns nobody calls it, and where scores are large a gradient is a difference of
     nothing. */
  if (!c.keys || !c.length || !c.value_width || fabs(c.scale) > 1e6) return true;
  if (c.softcap > 0 || c.sinks || c.slopes || c.packed || c.page_size) return true; /* these have none */
  const Forward forward(c, in, level, true);
  const Layout layout = of_each_batch(c);
  const Result query(element, c.batch, c.heads, c.length, c.width, layout),
      key(element, c.batch, c.key_heads, c.keys, c.width, layout);
  const Result value(element, c.batch, c.value_heads, c.keys, c.value_width, layout);
  const bool masked = c.masking == ADDITIVE;
  const Result mask(wide_of(element), 1, 1, 1, masked ? in.mask.count : 0, HEADS_FIRST);
  memset(mask.first, 0, (size_t)(mask.count * bytes_of(mask.element))); /* it is added to */
  mlbackends_attention_gradients g;
  memset(&g, 0, sizeof g);
  g.forward = forward.p, g.of_output = in.of_output.first;
  g.query = query.first, g.key = key.first, g.value = value.first, g.mask = masked ? mask.first : nullptr;
  set_strides(g.of_output_strides, in.of_output), set_strides(g.query_strides, query);
  set_strides(g.key_strides, key), set_strides(g.value_strides, value);
  if (masked) memcpy(g.mask_strides, in.mask.strides, sizeof g.mask_strides);
  std::unique_ptr<char[]> workspace(new char[mlbackends_attention_gradients_workspace(&g)]);
  g.forward.workspace = workspace.get();
  const size_t rows = (size_t)(c.batch * c.heads * c.length);
  std::unique_ptr<char[]> refined(new char[3 * rows * (size_t)bytes_of(wide_of(element))]);
  int64_t next = 0;
  if (c.width % 2) { /* the log-sum-exp is fine enough here: with what is refined the result is the same */
    g.refined = refined.get();
    do next = mlbackends_attention_refine(&g, next, c.milliseconds);
    while (next >= 0);
    if (next != -1) return complain("what refining returned,", 0, (double)next, -1);
  }
  next = 0;
  do next = mlbackends_attention_backward(&g, next, c.milliseconds);
  while (next >= 0);
  if (next != -1) return complain("what it returned,", 0, (double)next, -1);
  const double of_size = element == MLBACKENDS_ATTENTION_FLOAT64   ? 1e-12
                         : element == MLBACKENDS_ATTENTION_FLOAT32 ? 1e-5
                         : element == MLBACKENDS_ATTENTION_FLOAT16 ? 2e-3
                                                                   : 2e-2;
  return are_right("the gradient of query", query, tried.slopes.query, of_size) &&
         are_right("the gradient of key", key, tried.slopes.key, of_size) &&
         are_right("the gradient of value", value, tried.slopes.value, of_size) &&
         are_right("the gradient of the mask", mask, tried.slopes.mask, of_size);
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* What is computed for each problem, element type and level. */
typedef bool (*Check)(const Tried &, int level);
const Check checks[] = {forward_is_right, gradients_are_right};

std::vector<std::unique_ptr<const Tried>> tried;
std::string only; /* a level's name; empty for all that run */

int highest_level() {
  int level = 0;
  for (int next = 1; mlbackends_attention_level_name(next); next++)
    if (mlbackends_attention_level_runs(next)) level = next;
  return level;
}

bool is_asked_for(int level) {
  return mlbackends_attention_level_runs(level) &&
         (only.empty() || only == mlbackends_attention_level_name(level));
}

/* Try every problem at every so many of the levels that run, the highest first, and return how many were
   wrong. */
int wrong_results(int step) {
  int wrong = 0;
  for (const std::unique_ptr<const Tried> &each : tried)
    for (int level = highest_level(); level >= 0; level -= step)
      for (const Check check : checks)
        if (is_asked_for(level) && !check(*each, level)) {
          fprintf(stderr, "%s: %s, element type %d\n", each->c.name, mlbackends_attention_level_name(level),
                  each->in.query.element);
          wrong++;
        }
  return wrong;
}

/* Try every number of 16 bits at every level that runs, for few rows and for many, and return how many were
   wrong. */
int wrong_numbers() {
  int wrong = 0;
  for (int level = highest_level(); level >= 0; level--)
    for (int element : {MLBACKENDS_ATTENTION_FLOAT16, MLBACKENDS_ATTENTION_BFLOAT16})
      for (int64_t length : {1, 10})
        if (is_asked_for(level) && !numbers_are_right(element, length, level)) {
          fprintf(stderr, "every number: %s, element type %d\n", mlbackends_attention_level_name(level),
                  element);
          wrong++;
        }
  return wrong;
}

/* Leave the problems of up to 300,000 products, and one batch of each. */
std::vector<Case> small_ones(const std::vector<Case> &cases) {
  std::vector<Case> small;
  for (Case c : cases) {
    c.batch = 1;
    if (c.heads * c.length * c.keys * (c.width + c.value_width) <= 300000) small.push_back(c);
  }
  return small;
}

/* Print what each problem gives in bfloat16: FNV-1a of the numbers in their order. */
void tell_bits(const std::vector<Case> &cases) {
  for (const Case &c : cases)
    for (int level = 0; level <= highest_level(); level++) {
      if (!is_asked_for(level)) continue;
      const Inputs in(c, MLBACKENDS_ATTENTION_BFLOAT16);
      const Forward forward(c, in, level, true);
      uint64_t bits = 0xcbf29ce484222325;
      const Result *const results[] = {&forward.out, &forward.sums};
      for (const Result *result : results)
        for (int64_t i = 0; i < result->count * bytes_of(result->element); i++) {
          const int64_t size = bytes_of(result->element);
          bits = (bits ^ (uint8_t)result->place(i / size)[i % size]) * 0x100000001b3;
        }
      printf("%016llx %s: %s\n", (unsigned long long)bits, c.name, mlbackends_attention_level_name(level));
    }
}

/* Tell whether this process has been given the tiles of AMX. */
bool has_tiles() {
#if defined(__x86_64__)
  constexpr long given_states = 0x1022, tile_data = 18; /* Linux's numbers, which older headers do not name */
  uint64_t states = 0;
  return syscall(SYS_arch_prctl, given_states, &states) == 0 && states >> tile_data & 1;
#else
  return false;
#endif
}

/* Take a stack for signals that holds what AVX-512 needs, and not the tiles of AMX. */
void be_cramped() {
  static char stack[6144];
  const stack_t small = {.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
  if (sigaltstack(&small, nullptr)) perror("sigaltstack"), exit(2);
}

/* Threads meet in what all levels and element types have in common. */
void *call(void *wrong) {
  __atomic_add_fetch((int *)wrong, wrong_results(highest_level() + 1), __ATOMIC_RELAXED);
  return nullptr;
}

}  // namespace

int main(int count, char **words) {
  const std::string kind = count > 1 ? words[1] : "address", which = count > 2 ? words[2] : "";
  if (kind == "levels") {
    for (int level = 0; level <= highest_level(); level++)
      if (mlbackends_attention_level_runs(level)) puts(mlbackends_attention_level_name(level));
    return has_tiles();
  }
  const bool threads = kind == "thread", every = which == "every";
  only = count > 3 ? words[3] : "";
  std::vector<Case> cases(table, table + sizeof table / sizeof *table);
  if (every)
    for (const Case &c : more_cases()) cases.push_back(c);
  if (which == "small") cases = small_ones(cases);
  if (kind == "bits") return tell_bits(cases), 0;
  if (kind == "cramped") be_cramped();
  for (const Case &c : cases)
    for (int element = MLBACKENDS_ATTENTION_FLOAT32; element <= MLBACKENDS_ATTENTION_FLOAT64; element++) {
      const bool apart = element == MLBACKENDS_ATTENTION_FLOAT16 || element == MLBACKENDS_ATTENTION_FLOAT64;
      if (every || !threads || !apart) tried.emplace_back(new Tried(c, element));
    }
  int wrong = 0;
  std::vector<pthread_t> callers(threads ? 3 : 0);
  for (pthread_t &caller : callers) pthread_create(&caller, nullptr, call, &wrong);
  for (pthread_t &caller : callers) pthread_join(caller, nullptr);
  if (!threads) wrong = wrong_results(1) + wrong_numbers();
  printf("%zu problems, %d wrong%s\n", tried.size(), wrong, has_tiles() ? ", with tiles" : "");
  return wrong != 0;
}
