/* The layout of rows for the products of gradients, and how results are written back.

   Groups of columns: (groups, rows, columns of a group). Groups of rows, transposed: (groups, width, rows of
   a group). */
#pragma once
#include "elements.h"
#include "gather.h"

namespace {

template <class E>
INLINED typename E::Inner::Vector elements(const char *at, int64_t left) {
  return left >= E::Inner::lanes ? load_elements(E{}, at) : load_some(E{}, at, left);
}

/* Widen rows, whose stride is in bytes. */
template <class E>
void widen_rows(const char *rows, int64_t stride, int64_t count, int64_t width, typename E::Inner::Real *to) {
  typedef typename E::Inner T;
  constexpr int64_t size = sizeof(typename E::Stored);
  for (int64_t k = 0; k < count; k++, rows += stride, to += width) {
    int64_t c = 0;
    for (; c + T::lanes <= width; c += T::lanes) store<T>(to + c, load_elements(E{}, rows + c * size));
    if (c < width) {
      const typename T::Vector rest = load_some(E{}, rows + c * size, width - c);
      memcpy(to + c, &rest, (size_t)(width - c) * sizeof(typename T::Real));
    }
  }
}

/* Lay out as many rows as there are lanes, and as many columns: as they are, and transposed and times `sign`.
   The strides of what is written are in numbers. */
template <class E, class T = typename E::Inner, class Real = typename T::Real>
INLINED void lay_square(const char *from, int64_t stride, Real *as_rows, int64_t row_stride, Real *as_lanes,
                        int64_t lane_stride, Real sign) {
  typename T::Vector square[T::lanes];
#pragma GCC unroll 16
  for (int i = 0; i < T::lanes; i++) {
    square[i] = load_elements(E{}, from + i * stride);
    store<T>(as_rows + i * row_stride, square[i]);
    square[i] *= sign;
  }
  transpose<T>(square);
#pragma GCC unroll 16
  for (int i = 0; i < T::lanes; i++) store<T>(as_lanes + i * lane_stride, square[i]);
}

/* The same for fewer rows or columns: the others are 0. */
template <class E, class T = typename E::Inner, class Real = typename T::Real>
static __attribute__((noinline)) void lay_some(const char *from, int64_t stride, int64_t rows,
                                               int64_t columns, Real *as_rows, int64_t row_stride,
                                               Real *as_lanes, int64_t lane_stride, Real sign) {
  typename T::Vector square[T::lanes] = {};
  for (int i = 0; i < T::lanes && i < rows; i++) {
    const typename T::Vector numbers = elements<E>(from + i * stride, columns);
    store<T>(as_rows + i * row_stride, numbers);
    square[i] = numbers * sign;
  }
  transpose<T>(square);
  for (int i = 0; i < T::lanes && i < columns; i++) store<T>(as_lanes + i * lane_stride, square[i]);
}

/* Lay out rows (rows, width) in groups of columns, of which each has room for `block_rows`, and in groups of
   rows. */
template <class E, class T = typename E::Inner, class Real = typename T::Real>
void lay_rows(const char *from, int64_t stride, int64_t rows, int64_t width, const Groups<T> &row_groups,
              const Groups<T> &columns, int64_t block_rows, Real sign, Real *as_rows, Real *as_lanes) {
  for (int64_t v = 0; v < row_groups.vectors; v++, from += T::lanes * stride) {
    const int64_t group = row_groups.of(v), lane_stride = row_groups.width(group), left = rows - v * T::lanes;
    Real *lanes = as_lanes + row_groups.first(group) * width + (v * T::lanes - row_groups.first(group));
    for (int64_t c = 0; c < columns.vectors; c++) {
      const int64_t column_group = columns.of(c), row_stride = columns.width(column_group),
                    first = columns.first(column_group);
      Real *to = as_rows + first * block_rows + (c * T::lanes - first) + v * T::lanes * row_stride;
      Real *to_lanes = lanes + c * T::lanes * lane_stride;
      const char *at = from + c * T::lanes * (int64_t)sizeof(typename E::Stored);
      const int64_t columns_left = width - c * T::lanes;
      if (left >= T::lanes && columns_left >= T::lanes)
        lay_square<E>(at, stride, to, row_stride, to_lanes, lane_stride, sign);
      else
        lay_some<E>(at, stride, left, columns_left, to, row_stride, to_lanes, lane_stride, sign);
    }
  }
}

/* products (rows up to whole vectors) = rows of `first` times rows of `second`, both (rows, width). */
template <class E, class T = typename E::Inner>
void multiply_rows(const char *first, int64_t first_stride, const char *second, int64_t second_stride,
                   int64_t rows, int64_t width, typename T::Real *products) {
  for (int64_t row = 0; row < rows; row += T::lanes) {
    typename T::Vector each[T::lanes] = {};
    for (int i = 0; i < T::lanes && row + i < rows; i++) {
      const char *a = first + (row + i) * first_stride, *b = second + (row + i) * second_stride;
      for (int64_t c = 0; c < width; c += T::lanes) {
        const int64_t at = c * (int64_t)sizeof(typename E::Stored);
        each[i] += elements<E>(a + at, width - c) * elements<E>(b + at, width - c);
      }
    }
    store<T>(products + row, sums<T>(each));
  }
}

/* Add a square, transposed and times `scale`, to rows (lanes, lanes) of numbers. */
template <class T, class Real = typename T::Real>
INLINED void add_square(const Real *from, int64_t from_stride, Real *to, int64_t stride, Real scale) {
  typename T::Vector square[T::lanes];
#pragma GCC unroll 16
  for (int j = 0; j < T::lanes; j++) square[j] = load<T>(from + j * from_stride) * scale;
  transpose<T>(square);
#pragma GCC unroll 16
  for (int i = 0; i < T::lanes; i++) store<T>(to + i * stride, load<T>(to + i * stride) + square[i]);
}

template <class T, class Real = typename T::Real>
static __attribute__((noinline)) void add_some(const Real *from, int64_t from_stride, Real *to,
                                               int64_t stride, Real scale, int64_t rows, int64_t columns) {
  typename T::Vector square[T::lanes] = {};
  for (int j = 0; j < T::lanes && j < columns; j++) square[j] = load<T>(from + j * from_stride) * scale;
  transpose<T>(square);
  for (int i = 0; i < T::lanes && i < rows; i++) {
    Real numbers[T::lanes];
    store<T>(numbers, square[i]);
    for (int j = 0; j < T::lanes && j < columns; j++) to[i * stride + j] += numbers[j];
  }
}

/* Add groups of rows, times `scale`, to rows (rows, width), whose stride is in numbers. */
template <class T, class Real = typename T::Real>
void add_groups_of_rows(const Real *groups, const Groups<T> &row_groups, int64_t rows, int64_t width,
                        Real scale, Real *to, int64_t stride) {
  for (int64_t v = 0; v < row_groups.vectors; v++, to += T::lanes * stride) {
    const int64_t group = row_groups.of(v), first = row_groups.first(group),
                  from_stride = row_groups.width(group);
    const Real *from = groups + first * width + (v * T::lanes - first);
    const int64_t left = rows - v * T::lanes;
    for (int64_t c = 0; c < width; c += T::lanes) {
      if (left >= T::lanes && width >= c + T::lanes)
        add_square<T>(from + c * from_stride, from_stride, to + c, stride, scale);
      else
        add_some<T>(from + c * from_stride, from_stride, to + c, stride, scale, left, width - c);
    }
  }
}

/* Store the first `left` of some numbers, at most as many as there are lanes. */
template <class E>
INLINED void store_up_to(char *to, typename E::Inner::Vector numbers, int64_t left) {
  if (left >= E::Inner::lanes)
    store_elements(E{}, to, numbers);
  else
    store_some(E{}, to, numbers, left);
}

template <class E, class T = typename E::Inner>
void write_row(const typename T::Real *numbers, int64_t width, char *to) {
  for (int64_t c = 0; c < width; c += T::lanes) {
    const int64_t left = width - c;
    store_up_to<E>(to + c * (int64_t)sizeof(typename E::Stored),
                   left < T::lanes ? load_rest<T>(numbers + c, left) : load<T>(numbers + c), left);
  }
}

/* Write groups of columns, of which each has room for `block_keys` rows, times `scale`, as rows; the stride
   in bytes. */
template <class E, class T = typename E::Inner>
void write_columns(const typename T::Real *groups, const Groups<T> &columns, int64_t width,
                   int64_t block_keys, int64_t count, typename T::Real scale, char *to, int64_t stride) {
  for (int64_t c = 0; c < columns.vectors; c++) {
    const int64_t group = columns.of(c);
    const typename T::Real *from =
        groups + columns.first(group) * block_keys + (c * T::lanes - columns.first(group));
    for (int64_t k = 0; k < count; k++) {
      char *at = to + k * stride + c * T::lanes * (int64_t)sizeof(typename E::Stored);
      store_up_to<E>(at, load<T>(from + k * columns.width(group)) * scale, width - c * T::lanes);
    }
  }
}

} // namespace
