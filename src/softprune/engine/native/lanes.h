// Between arrays of floats in the user's order and lanes.
#ifndef SOFTPRUNE_LANES_H
#define SOFTPRUNE_LANES_H
#include "steps.h"

// The element of every lane of a panel; -1 for those that are no pixel, on the way out.
INLINE const int32_t *lanes_of(const Step *s, const Job *j, int panel, int lanes) {
  return (j->group == j->groups - 1 ? s->last : s->indices) + (size_t)panel * s->width * lanes;
}

// 4 channels of 16 tokens, which follow one another in the array: a vector for each channel.
INLINE void read_tokens(const float *x, const int32_t *lanes, Vec v[4]) {
  UNROLL for (int k = 0; k < 4; k++)
    v[k] = v_of_floats(f_load4(x + lanes[k], x + lanes[4 + k], x + lanes[8 + k], x + lanes[12 + k]));
  v_turn32(v);
}
INLINE void write_tokens(Vec v[4], const int32_t *lanes, float *y) {
  float f[4][4][4] __attribute__((aligned(64)));
  v_turn32(v);
  UNROLL for (int k = 0; k < 4; k++) v_store(f[k], v[k]);
  for (int l = 0; l < 16; l++) if (lanes[l] >= 0) memcpy(y + lanes[l], f[l % 4][l / 4], 16);
}
#endif
