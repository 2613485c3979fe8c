/* What dropout.h keeps, for test_dropout.py: the factors of a head's weights, rows across the lanes. */
#include "dropout.h"

namespace {

template <class T>
void factors_of(const mlbackends_attention_problem *p, int64_t batch, int64_t head,
                typename T::Real *factors) {
  const Dropout dropout(*p);
  for (int64_t row = 0; row < p->query_length; row += T::lanes)
    for (int64_t key = 0; key < p->key_length; key += 4) {
      typename T::Wholes rows;
      for (int lane = 0; lane < T::lanes; lane++) rows[lane] = (typename T::Whole)(row + lane);
      typename T::Vector found[4];
      dropout_factors<T>(dropout, typename T::Wholes{} + (typename T::Whole)(key / 4), rows,
                         typename T::Wholes{} + (typename T::Whole)head, batch, found);
      for (int i = 0; i < 4 && key + i < p->key_length; i++)
        for (int lane = 0; lane < T::lanes && row + lane < p->query_length; lane++)
          factors[(row + lane) * p->key_length + key + i] = found[i][lane];
    }
}

}  // namespace

extern "C" void dropout_factors(int64_t rows, int64_t keys, double probability, uint64_t seed, int64_t batch,
                                int64_t head, int wide, void *factors) {
  mlbackends_attention_problem p = {};
  p.query_length = rows, p.key_length = keys, p.dropout = probability, p.seed = seed;
  if (wide)
    factors_of<Double>(&p, batch, head, (double *)factors);
  else
    factors_of<Single>(&p, batch, head, (float *)factors);
}
