// The gradient of a mask of numbers, after the passes of attention.cu. It has not run on a GPU yet.
//
// Its argument begins with that of the other passes, which are handed the same structure: MaskCall of launches.py.

#include "attention.cu"

struct MaskCall {
  Call call;
  Operand grad_mask;  // packed: a stride of 0 is a size of 1
};

// A block adds up the gradient of a tile of a mask of numbers: over the batches and heads that share it, and where it has
// one row or one column, over all of them, in this order: batch, head, tile of rows, tile of keys, and then within the tile.
template <class T> static __device__ void differentiate_mask(const MaskCall& given) {
  const Call& call = given.call;
  typedef typename T::Stored Stored;
  Stored* queries = (Stored*)shared_memory;
  Stored* coming = queries + T::ROWS * T::HEAD_STEP;
  Stored* keys = coming + T::ROWS * T::VALUE_STEP;
  Stored* values = keys + T::COLUMNS * T::HEAD_STEP;
  const Operand& own = given.grad_mask;
  bool one_row = own.row == 0, one_column = own.column == 0;
  int down = one_row ? 1 : (call.rows + T::ROWS - 1) / T::ROWS, over_keys = one_column ? 1 : (call.keys + T::COLUMNS - 1) / T::COLUMNS;
  int row_0 = blockIdx.x / over_keys % down * T::ROWS, key_0 = blockIdx.x % over_keys * T::COLUMNS;
  int row_end = one_row ? call.rows : row_0 + 1, key_end = one_column ? call.keys : key_0 + 1;
  Sharers sharers(call, own, blockIdx.x / over_keys / down);

  float sums[T::R][T::N][4];
  FOR(r, T::R) FOR(n, T::N) FOR(i, 4) sums[r][n][i] = 0;
  for (int batch = sharers.batch; batch < sharers.batches; batch++)
    for (int head = sharers.head; head < sharers.heads; head++) {
      i64 offset = mask_offset(call, batch, head);
      for (int first = row_0; first < row_end; first += T::ROWS)
        for (int start = key_0; start < key_end; start += T::COLUMNS) {
          if (start + T::COLUMNS <= Range(call, first, call.shift, call.keys).first) continue;
          if (start >= Range(call, first + T::ROWS - 1, call.shift, call.keys).end) continue;
          float weights[T::R][T::N][4], slopes[T::R][T::N][4];
          T::template bring<T::ROWS, T::HEAD>(queries, call.query, batch, head, first, call.rows, call.head_dim);
          T::template bring<T::ROWS, T::VALUE>(coming, call.grad_out, batch, head, first, call.rows, call.value_dim);
          T::template bring<T::COLUMNS, T::HEAD>(keys, call.key, batch, head, start, call.keys, call.head_dim);
          T::template bring<T::COLUMNS, T::VALUE>(values, call.value, batch, head, start, call.keys, call.value_dim);
          arrive();
          T::template across<T::HEAD>(weights, queries, keys);
          T::template across<T::VALUE>(slopes, coming, values);
          make_scores(call, weights, (float(*)[T::N][4])0);
          FOR(r, T::R) FOR(i, 2) {
            float4 summary = summary_of(call, batch, head, first + T::row() + 16 * r + 8 * i);
            FOR(n, T::N) FOR(j, 2) {
              int row = first + T::row() + 16 * r + 8 * i, key = start + T::column() + 8 * n + j;
              float& weight = weights[r][n][2 * i + j];
              if (masked<typename T::Math>(call, offset, row, key, weight))
                sums[r][n][2 * i + j] += weight_of(weight, summary) * (slopes[r][n][2 * i + j] - summary.x);
            }
          }
          __syncthreads();
        }
    }
  float* all = (float*)shared_memory;
  FOR(r, T::R) FOR(n, T::N) FOR(i, 4) all[(T::row() + 16 * r + i / 2 * 8) * T::COLUMNS + T::column() + 8 * n + i % 2] = sums[r][n][i];
  __syncthreads();
  int rows = one_row ? 1 : min((int)T::ROWS, call.rows - row_0), columns = one_column ? 1 : min((int)T::COLUMNS, call.keys - key_0);
  for (int i = threadIdx.x; i < rows * columns; i += T::THREADS) {
    int row = i / columns, column = i % columns;
    float sum = 0;
    for (int r = row; r < (one_row ? T::ROWS : row + 1); r++)
      for (int c = column; c < (one_column ? T::COLUMNS : column + 1); c++) sum += all[r * T::COLUMNS + c];
    i64 index = sharers.batch * own.batch + sharers.head / own.group * own.head + (row_0 + row) * own.row + (key_0 + column) * own.column;
    if (call.mask_kind == FLOATS) ((float*)own.at)[index] = sum;
    else ((typename T::Element*)own.at)[index] = T::Math::narrow(sum);
  }
}

#ifdef MASK_TILE
extern "C" __global__ void __launch_bounds__(Tile<MASK_TILE>::THREADS) attention_differentiate_mask(const MaskCall given) {
  differentiate_mask<Tile<MASK_TILE> >(given);
}
#endif
