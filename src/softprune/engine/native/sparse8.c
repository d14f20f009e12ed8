// Sparse convolution in int8. An entry is a kept block of 4 input channels: the byte offset of their vectors in the panel
// and 4 weights. One entry costs one load and, for each vector of the panel, one dot product with memory. Loads are what
// the processor has too few of: so both halves of an entry come in one, and fetching ahead, which is one too, is for two.
#include "pack.h"
#include "requantize.h"

INLINE void block(const int P, Vec *sum, const uint32_t *e, const uint8_t *x) {
  uint64_t entry;
  memcpy(&entry, e, sizeof entry);
  const uint8_t *v = x + (uint32_t)entry;
  const Vec w = v_set32((int32_t)(entry >> 32));
  UNROLL for (int p = 0; p < P; p++) sum[p] = v_dot(sum[p], v_load(v + BYTES * p), w);
}

INLINE const uint32_t *blocks(const int P, Vec *sum, uint32_t n, const uint32_t *e, const uint8_t *x) {
  for (; n >= 2; n -= 2, e += 4) {
    __builtin_prefetch(e + AHEAD);
    block(P, sum, e, x);
    block(P, sum, e + 2, x);
  }
  if (n) {
    block(P, sum, e, x);
    e += 2;
  }
  return e;
}

// One row: the sums of P vectors. Few vectors would wait for one another, so then entries take turns over several sums.
INLINE const uint32_t *single(const int P, Vec *a, int32_t bias, uint32_t n, const uint32_t *e, const uint8_t *x) {
  const int K = P >= 4 ? 1 : P >= 2 ? 2 : 4;
  Vec sum[4][MOST];
  UNROLL for (int k = 0; k < K; k++) {
    UNROLL for (int p = 0; p < P; p++) sum[k][p] = k ? v_zero() : v_set32(bias);
  }
  for (; K > 1 && n >= (uint32_t)K; n -= K, e += 2 * K) {
    __builtin_prefetch(e + AHEAD);
    UNROLL for (int k = 0; k < K; k++) block(P, sum[k], e + 2 * k, x);
  }
  e = blocks(P, sum[0], n, e, x);
  UNROLL for (int p = 0; p < P; p++) {
    a[p] = sum[0][p];
    UNROLL for (int k = 1; k < K; k++) a[p] = v_add32(a[p], sum[k][p]);
  }
  return e;
}

// Two rows: blocks that both keep are loaded once. n: how many both keep, the first alone, the second alone.
INLINE const uint32_t *pair(const int P, Vec *a, Vec *b, const int32_t *bias, const uint32_t *n, const uint32_t *e,
                            const uint8_t *x) {
  UNROLL for (int p = 0; p < P; p++) { a[p] = v_set32(bias[0]); b[p] = v_set32(bias[1]); }
  for (uint32_t i = n[0]; i > 0; i--, e += 3) {
    __builtin_prefetch(e + AHEAD);
    const uint8_t *v = x + e[0];
    Vec w0 = v_set32((int32_t)e[1]), w1 = v_set32((int32_t)e[2]);
    UNROLL for (int p = 0; p < P; p++) {
      Vec q = v_load(v + BYTES * p);
      a[p] = v_dot(a[p], q, w0);
      b[p] = v_dot(b[p], q, w1);
    }
  }
  e = blocks(P, a, n[1], e, x);
  return blocks(P, b, n[2], e, x);
}

// All rows of a part for P vectors of a panel; y and r are those of the part's first row.
INLINE void rows(const int P, const int PAIRED, const Step *s, const Part *part, const uint8_t *x, uint8_t *y,
                 const uint8_t *r) {
  const uint32_t *e = s->entries + part->entry, *n = s->lengths + part->length;
  const size_t step = (size_t)s->y.vectors * BYTES;
  const Finish f = finish_of(s);
  for (int row = part->first; row < part->last; row += 4) {
    Vec h[2][MOST];
    UNROLL for (int half = 0; half < 2; half++) {
      Vec a[MOST], b[MOST];
      const int first = row + 2 * half;
      if (PAIRED) {
        e = pair(P, a, b, s->bias + first, n, e, x);
        n += 3;
      } else {
        e = single(P, a, s->bias[first], n[0], e, x);
        e = single(P, b, s->bias[first + 1], n[1], e, x);
        n += 2;
      }
      UNROLL for (int p = 0; p < P; p++) h[half][p] = requantized(s, first, a[p], b[p]);
    }
    if (r) {
      UNROLL for (int p = 0; p < P; p++)
        v_store(y + BYTES * p, bytes_with(&f, h[0][p], h[1][p], v_load(r + BYTES * p)));
      r += (size_t)s->r.vectors * BYTES;
    } else {
      UNROLL for (int p = 0; p < P; p++) v_store(y + BYTES * p, bytes(&f, h[0][p], h[1][p]));
    }
    y += step;
  }
}

// The same for an output in floats: 4 bytes for each channel of a pixel.
INLINE void float_rows(const int P, const Step *s, const Part *part, const uint8_t *x, uint8_t *y) {
  const uint32_t *e = s->entries + part->entry, *n = s->lengths + part->length;
  for (int row = part->first; row < part->last; row++, y += (size_t)s->y.vectors * BYTES) {
    Vec a[MOST];
    e = single(P, a, s->bias[row], *n++, e, x);
    UNROLL for (int p = 0; p < P; p++) f_store(y + BYTES * p, f_mul(f_of32(a[p]), f_set(s->real[row])));
  }
}

typedef void Rows(const Step *, const Part *, const uint8_t *, uint8_t *, const uint8_t *);
#define ROWS(P)                                                                                                         \
  static void rows_##P##_1(const Step *s, const Part *t, const uint8_t *x, uint8_t *y, const uint8_t *r) {              \
    rows(P, 0, s, t, x, y, r);                                                                                          \
  }                                                                                                                     \
  static void rows_##P##_2(const Step *s, const Part *t, const uint8_t *x, uint8_t *y, const uint8_t *r) {              \
    rows(P, 1, s, t, x, y, r);                                                                                          \
  }                                                                                                                     \
  static void rows_##P##_f(const Step *s, const Part *t, const uint8_t *x, uint8_t *y, const uint8_t *r) {              \
    (void)r;                                                                                                            \
    float_rows(P, s, t, x, y);                                                                                          \
  }
EACH_WIDTH(ROWS)
static Rows *const kernel[3][MOST + 1] = {{0, WIDTHS(rows_, _1)}, {0, WIDTHS(rows_, _2)}, {0, WIDTHS(rows_, _f)}};

void sparse8(const Step *s, const Job *j, int panel, int part) {
  size_t stride;
  const Part *t = s->rows + part;
  const uint8_t *x = panel_of(s, j, panel, part, 4, &stride);
  const size_t channels = (size_t)t->first / (s->real ? 1 : 4);
  uint8_t *y = at(&s->y, j, panel) + channels * s->y.vectors * BYTES;
  const uint8_t *r = s->r.vectors ? at(&s->r, j, panel) + channels * s->r.vectors * BYTES : 0;
  for (const uint8_t *piece = s->walk[s->counts[panel]]; *piece; piece++) {
    kernel[s->real ? 2 : s->paired][*piece](s, t, x, y, r);
    x += BYTES * *piece;
    y += BYTES * *piece;
    if (r) r += BYTES * *piece;
  }
}
