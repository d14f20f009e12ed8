// Everything in int16 but sparse layers. A lane is one channel of one pixel, a vector 32 pixels.
#include <math.h>
#include "lanes.h"
#include "pools.h"

MAXPOOL(maxpool16, 2, Vec, v_load, v_store, v_max16)

INLINE int16_t whole16(float x) {
  x = x > -32768.0f ? x : -32768.0f;
  return (int16_t)lrintf(x < 32767.0f ? x : 32767.0f);
}

void globalmean16(const Step *s, const Job *j, int share, int part) {
  (void)part;
  int16_t t[32] __attribute__((aligned(64)));
  for (int l = 0; l < 32; l++) t[l] = (int16_t)l;
  const Vec same = v_load(t);
  for (int c = first_of(s, share); c < first_of(s, share + 1); c++) {
    int32_t sums[32] = {0};
    const uint32_t *mask = s->lengths;
    for (int b = 0; b < s->other; b++) {
      const uint8_t *x = at(&s->x, j, b) + (size_t)c * s->x.vectors * BYTES;
      for (int p = 0; p < s->x.vectors; p++, mask++) {
        if (!*mask) continue;
        v_store(t, v_permute16(v_zero(), *mask, same, v_load(x + BYTES * p)));
        for (int l = 0; l < 32; l++) sums[l] += t[l];
      }
    }
    for (int n = 0; n < s->images; n++) {
      int32_t sum = 0;
      for (int l = 0; l < s->width; l++) sum += sums[n * s->width + l];
      *(int16_t *)mean_of(s, j, c, n, 2) = whole16((float)sum * s->real[0]);
    }
  }
}

// y = clamp(x·factor + r·factor), factors in Q14.
void add16(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel), *r = at(&s->r, j, panel);
  uint8_t *y = at(&s->y, j, panel);
  const Vec low = v_set16((int16_t)s->low), high = v_set16((int16_t)s->high);
  const Vec factor = v_set16((int16_t)s->other), factor_r = v_set16((int16_t)s->residual);
  for (int c = 0; c < s->inputs; c++)
    for (int p = 0; p < s->counts[panel]; p++) {
      const size_t there = ((size_t)c * s->y.vectors + p) * BYTES;
      Vec a = v_mulhrs16(v_load(x + there), factor), b = v_mulhrs16(v_load(r + there), factor_r);
      a = v_adds16(v_adds16(a, a), v_adds16(b, b));
      v_store(y + there, v_min16(v_max16(a, low), high));
    }
}

// 16 floats -> 16 whole numbers; what is no number becomes the smallest.
INLINE void put16(VecF x, VecF scale, int16_t *y) {
  int32_t w[16] __attribute__((aligned(64)));
  v_store(w, v_round(f_min(f_max(f_mul(x, scale), f_set(-32768.0f)), f_set(32767.0f))));
  for (int l = 0; l < 16; l++) y[l] = (int16_t)w[l];
}

// Of tokens, 4 channels at once; all of some tokens before the next ones, whose places may be those of the same cache lines.
void input16(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const float *x = (const float *)at(&s->x, j, 0) + s->image * j->group;
  const int32_t *lanes = lanes_of(s, j, panel, 32);
  const size_t step = (size_t)s->y.vectors * 32;
  const VecF scale = f_set(s->real[0]);
  for (int i = 0; i < 32 * s->counts[panel]; i += 16) {
    const int32_t *l = lanes + i;
    int16_t *y = (int16_t *)at(&s->y, j, panel) + i;
    int c = 0;
    for (; s->channel == 1 && c + 4 <= s->inputs; c += 4) {
      Vec v[4];
      read_tokens(x + c, l, v);
      UNROLL for (int k = 0; k < 4; k++) put16(f_of_bits(v[k]), scale, y + (c + k) * step);
    }
    for (; c < s->inputs; c++) put16(f_gather(x + s->channel * c, l), scale, y + c * step);
  }
}

void output16(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  float *y = (float *)at(&s->y, j, 0) + s->image * j->group;
  const int32_t *lanes = lanes_of(s, j, panel, 32);
  const size_t step = (size_t)s->x.vectors * 32;
  for (int i = 0; i < 32 * s->counts[panel]; i += 16) {
    const int32_t *to = lanes + i;
    const int16_t *x = (const int16_t *)at(&s->x, j, panel) + i;
    int c = 0;
    for (; s->channel == 1 && c + 4 <= s->inputs; c += 4) {
      float f[4][16] __attribute__((aligned(64)));
      Vec v[4];
      for (int k = 0; k < 4; k++) for (int l = 0; l < 16; l++) f[k][l] = (float)x[(c + k) * step + l] * s->real[0];
      UNROLL for (int k = 0; k < 4; k++) v[k] = v_load(f[k]);
      write_tokens(v, to, y + c);
    }
    for (; c < s->inputs; c++)
      for (int l = 0; l < 16; l++) if (to[l] >= 0) y[to[l] + s->channel * c] = (float)x[c * step + l] * s->real[0];
  }
}
