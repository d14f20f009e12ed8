// Sparse convolution in int16 without any pattern: an entry is one Q15 weight, written twice. A vector is 32 pixels.
// Sums wrap at 16 bits, so scales must leave room.
#include "pack.h"

INLINE void rows(const int P, const Step *s, const Part *part, const uint8_t *x, uint8_t *y, const uint8_t *r, int begins,
                 int ends) {
  const uint32_t *e = s->entries + part->entry, *n = s->lengths + part->length;
  const Vec low = v_set16((int16_t)s->low), high = v_set16((int16_t)s->high), factor = v_set16((int16_t)s->residual);
  for (int row = part->first; row < part->last; row++) {
    Vec a[MOST];
    UNROLL for (int p = 0; p < P; p++) a[p] = begins ? v_set16((int16_t)s->bias[row]) : v_load(y + BYTES * p);
    for (uint32_t i = *n++; i > 0; i--, e += 2) {
      __builtin_prefetch(e + AHEAD);
      Vec w = v_set32((int32_t)e[1]);
      UNROLL for (int p = 0; p < P; p++) a[p] = v_add16(a[p], v_mulhrs16(v_load(x + e[0] + BYTES * p), w));
    }
    UNROLL for (int p = 0; p < P; p++) {
      if (ends) {
        if (r) { // the factor is in Q14
          Vec t = v_mulhrs16(v_load(r + BYTES * p), factor);
          a[p] = v_adds16(a[p], v_adds16(t, t));
        }
        a[p] = v_min16(v_max16(a[p], low), high);
      }
      v_store(y + BYTES * p, a[p]);
    }
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

void sparse16(const Step *s, const Job *j, int panel, int part) {
  size_t stride;
  const Part *t = s->rows + part * s->slices;
  const uint8_t *x = panel_of(s, j, panel, part, 2, &stride);
  uint8_t *y = at(&s->y, j, panel) + (size_t)t->first * s->y.vectors * BYTES;
  const uint8_t *r = s->r.vectors ? at(&s->r, j, panel) + (size_t)t->first * s->r.vectors * BYTES : 0;
  for (const uint8_t *piece = s->walk[s->counts[panel]]; *piece; piece++) {
    for (int i = 0; i < s->slices; i++) kernel[*piece](s, t + i, x, y, r, i == 0, i == s->slices - 1);
    x += BYTES * *piece;
    y += BYTES * *piece;
    if (r) r += BYTES * *piece;
  }
}
