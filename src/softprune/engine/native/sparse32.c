// Sparse convolution in fp32 without any pattern: an entry is one weight. A lane is one channel of one pixel.
#include "curves.h"
#include "pack.h"

INLINE float float_of(int32_t bits) { float f; memcpy(&f, &bits, 4); return f; }

INLINE void rows(const int P, const Step *s, const Part *part, const uint8_t *x, uint8_t *y, const uint8_t *r, int begins,
                 int ends) {
  const uint32_t *e = s->entries + part->entry, *n = s->lengths + part->length;
  const int K = P >= 4 ? 1 : P >= 2 ? 2 : 4; // sums that take turns, as in int8
  const VecF low = f_set(float_of(s->low)), high = f_set(float_of(s->high));
  for (int row = part->first; row < part->last; row++) {
    VecF a[4][MOST];
    UNROLL for (int k = 0; k < K; k++) {
      UNROLL for (int p = 0; p < P; p++) a[k][p] = k ? f_set(0) : begins ? f_set(s->real[row]) : f_load(y + BYTES * p);
    }
    uint32_t i = *n++;
    for (; i >= (uint32_t)K; i -= K, e += 2 * K) {
      __builtin_prefetch(e + AHEAD);
      UNROLL for (int k = 0; k < K; k++) {
        VecF w = f_set(float_of((int32_t)e[2 * k + 1]));
        UNROLL for (int p = 0; p < P; p++) a[k][p] = f_fma(f_load(x + e[2 * k] + BYTES * p), w, a[k][p]);
      }
    }
    for (; i > 0; i--, e += 2) {
      VecF w = f_set(float_of((int32_t)e[1]));
      UNROLL for (int p = 0; p < P; p++) a[0][p] = f_fma(f_load(x + e[0] + BYTES * p), w, a[0][p]);
    }
    UNROLL for (int p = 0; p < P; p++) {
      UNROLL for (int k = 1; k < K; k++) a[0][p] = f_add(a[0][p], a[k][p]);
      if (ends) {
        if (r) a[0][p] = f_add(a[0][p], f_load(r + BYTES * p));
        a[0][p] = f_min(f_max(a[0][p], low), high);
      }
      f_store(y + BYTES * p, a[0][p]);
    }
    if (ends && s->other) bend(s->other, y, P);
    y += (size_t)s->y.vectors * BYTES;
    if (r) r += (size_t)s->r.vectors * BYTES;
  }
}

typedef void Rows(const Step *, const Part *, const uint8_t *, uint8_t *, const uint8_t *, int, int);
#define ROWS(P)                                                                                                         \
  static void rows_##P(const Step *s, const Part *t, const uint8_t *x, uint8_t *y, const uint8_t *r, int begins,        \
                       int ends) {                                                                                      \
    rows(P, s, t, x, y, r, begins, ends);                                                                               \
  }
EACH_WIDTH(ROWS)
static Rows *const kernel[MOST + 1] = {0, WIDTHS(rows_, )};

void sparse32(const Step *s, const Job *j, int panel, int part) {
  size_t stride;
  const Part *t = s->rows + part * s->slices;
  const uint8_t *x = panel_of(s, j, panel, part, 4, &stride);
  uint8_t *y = at(&s->y, j, panel) + (size_t)t->first * s->y.vectors * BYTES;
  const uint8_t *r = s->r.vectors ? at(&s->r, j, panel) + (size_t)t->first * s->r.vectors * BYTES : 0;
  for (const uint8_t *piece = s->walk[s->counts[panel]]; *piece; piece++) {
    for (int i = 0; i < s->slices; i++) kernel[*piece](s, t + i, x, y, r, i == 0, i == s->slices - 1);
    x += BYTES * *piece;
    y += BYTES * *piece;
    if (r) r += BYTES * *piece;
  }
}
