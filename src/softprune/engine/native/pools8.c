// Pools of bytes.
#include "pools.h"

MAXPOOL(maxpool8, 4, Vec, v_load, v_store, v_max8)

static uint8_t requantized1(const Step *s, int32_t sum) {
  int32_t v = (sum + s->bias[0]) >> s->shift[0];
  v = v < -32768 ? -32768 : v > 32767 ? 32767 : v;
  v = (v * s->multiplier[0] + 16384) >> 15;
  return (uint8_t)(v < s->low ? s->low : v > s->high ? s->high : v);
}

void globalmean8(const Step *s, const Job *j, int share, int part) {
  (void)part;
  for (int c = first_of(s, share); c < first_of(s, share + 1); c++) {
    Vec a[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    const uint32_t *mask = s->lengths;
    for (int b = 0; b < s->other; b++) {
      const uint8_t *x = at(&s->x, j, b) + (size_t)c * s->x.vectors * BYTES;
      for (int p = 0; p < s->x.vectors; p++, mask++) {
        if (!*mask) continue;
        Vec q = v_mask32(*mask, v_load(x + BYTES * p));
        UNROLL for (int i = 0; i < 4; i++) a[i] = v_dot(a[i], q, v_set32(1 << 8 * i));
      }
    }
    int32_t lanes[4][16] __attribute__((aligned(64)));
    UNROLL for (int i = 0; i < 4; i++) v_store(lanes[i], a[i]);
    for (int n = 0; n < s->images; n++) {
      uint8_t *y = mean_of(s, j, c, n, 4);
      for (int i = 0; i < 4; i++) {
        int32_t sum = 0;
        for (int l = 0; l < s->width; l++) sum += lanes[i][n * s->width + l];
        y[i] = requantized1(s, sum);
      }
    }
  }
}
