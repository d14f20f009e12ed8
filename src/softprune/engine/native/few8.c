// Sparse layers in int8 for few pixels: lanes are rows. 16 rows go together, a lane each, and 32 places (blocks of 4 input
// channels at one tap) after the other. In every step each row takes one of its blocks there: an index picks the bytes of
// the place, and a dot product adds them. Rows with fewer blocks than others of the 16 take blocks of zeros.
#include "pack.h"

#define ROWS 16
#define PLACES 32
#define TOGETHER 4 // groups of places with sums of their own, which need not wait for one another

// The bytes of one lane, place after place.
static void gather(const Step *s, const uint8_t *x, size_t stride, int lane, int32_t *dense) {
  for (int c = 0; c < s->inputs; c++, x += stride)
    for (int t = 0; t < s->taps; t++) memcpy(dense++, x + BYTES * s->tap[t] + 4 * lane, 4);
}

// Sums of 16 rows for T lanes, whose places are `width` apart.
typedef struct { const uint8_t *weights, *indices; } Entry;
INLINE Entry some(const int T, uint32_t n, Entry e, const int32_t *places, size_t width, Vec *a) {
  for (; n > 0; n--, e.weights += BYTES, e.indices += ROWS) {
    __builtin_prefetch(e.weights + 4 * AHEAD);
    const Vec w = v_load(e.weights), index = v_widen8(e.indices);
    UNROLL for (int t = 0; t < T; t++) a[t] = v_dot(a[t], v_pick32(places + t * width, index), w);
  }
  return e;
}
INLINE void sums(const int T, const uint32_t *n, Entry *e, const int32_t *places, size_t width,
                 int32_t (*out)[ROWS]) {
  const int groups = (int)(width / PLACES), K = T == 1 ? TOGETHER : T == 2 ? 2 : 1;
  Vec a[TOGETHER][4];
  UNROLL for (int k = 0; k < K; k++) { UNROLL for (int t = 0; t < T; t++) a[k][t] = v_zero(); }
  int g = 0;
  for (; g + K <= groups; g += K) {
    UNROLL for (int k = 0; k < K; k++) *e = some(T, n[g + k], *e, places + PLACES * (g + k), width, a[k]);
  }
  for (; g < groups; g++) *e = some(T, n[g], *e, places + PLACES * g, width, a[0]);
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int k = 1; k < K; k++) a[0][t] = v_add32(a[0][t], a[k][t]);
    v_store(out[t], a[0][t]);
  }
}

INLINE int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }
INLINE int32_t mulhrs(int32_t x, int32_t y) { return (x * y + 16384) >> 15; }

// Bytes of `rows` rows from row `first` on, into one lane of y; as requantize.h does it for vectors.
static void finish(const Step *s, const int32_t *a, int first, int rows, uint8_t *y, const uint8_t *r) {
  const size_t step = (size_t)s->y.vectors * BYTES, step_r = (size_t)s->r.vectors * BYTES;
  if (s->real) {
    for (int i = 0; i < rows; i++, y += step) {
      const float f = (float)(a[i] + s->bias[first + i]) * s->real[first + i];
      memcpy(y, &f, 4);
    }
    return;
  }
  uint8_t q[ROWS];
  for (int i = 0; i < rows; i++) {
    int32_t v = clamp((a[i] + s->bias[first + i]) >> s->shift[first + i], -32768, 32767);
    v = mulhrs(v, s->multiplier[4 * (first + i)]);
    if (r) v = mulhrs(clamp(v + (r[i / 4 * step_r + i % 4] * s->residual >> 8), -32768, 32767), 1 << 11);
    q[i] = (uint8_t)clamp(clamp(v, 0, 255), s->low, s->high);
  }
  for (int i = 0; s->table && i < rows; i++) q[i] = s->table[q[i]];
  for (int i = 0; i < rows; i += 4, y += step) memcpy(y, q + i, 4);
}

typedef void Sums(const uint32_t *, Entry *, const int32_t *, size_t, int32_t (*)[ROWS]);
#define SUMS(T)                                                                                                         \
  static void sums_##T(const uint32_t *n, Entry *e, const int32_t *places, size_t width,                 \
                       int32_t (*out)[ROWS]) {                                                                          \
    sums(T, n, e, places, width, out);                                                                               \
  }
SUMS(1) SUMS(2) SUMS(3) SUMS(4)
static Sums *const kernel[5] = {0, sums_1, sums_2, sums_3, sums_4};

// other: a bit for each lane that is a pixel, at most 4 of the first vector; steps: those of all rows, whose weights come
// before all indices; width: places, a multiple of 32; image: bytes of what is packed.
void few8(const Step *s, const Job *j, int panel, int part) {
  size_t stride;
  const Part *p = s->rows + part;
  const uint8_t *x = panel_of(s, j, panel, part, 4, &stride);
  int32_t *dense = (int32_t *)(at(&s->scratch, j, 0) + s->image);
  const size_t width = (size_t)s->width;
  int lanes[4], count = 0;
  for (int l = 0; l < 16 && count < 4; l++) if (s->other >> l & 1) lanes[count++] = l;
  for (int t = 0; t < count; t++) gather(s, x, stride, lanes[t], dense + t * width);
  const uint8_t *base = (const uint8_t *)s->entries;
  Entry e = {base + BYTES * p->entry, base + (size_t)BYTES * s->steps + ROWS * p->entry};
  const uint32_t *n = s->lengths + p->length;
  const int depth = s->real ? 1 : 4;
  for (int row = p->first; row < p->last; row += ROWS, n += width / PLACES) {
    int32_t a[4][ROWS] __attribute__((aligned(64)));
    kernel[count](n, &e, dense, width, a);
    const int rows = p->last - row < ROWS ? p->last - row : ROWS;
    for (int t = 0; t < count; t++) {
      const size_t lane = (size_t)4 * lanes[t];
      uint8_t *y = at(&s->y, j, panel) + (size_t)(row / depth) * s->y.vectors * BYTES + lane;
      const uint8_t *r = s->r.vectors ? at(&s->r, j, panel) + (size_t)(row / 4) * s->r.vectors * BYTES + lane : 0;
      finish(s, a[t], row, rows, y, r);
    }
  }
}
