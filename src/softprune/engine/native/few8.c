// Sparse layers in int8 for few pixels: lanes are rows. 16 rows go together, a lane each. A step is about 32 places (a
// place is a block of 4 input channels at one tap): each row takes one of its blocks there, an index picks the bytes of
// its place, and a dot product adds them. Rows with fewer blocks there than others of the 16 take blocks of zeros.
#include "pack.h"

#define ROWS 16
#define PLACES 32
#define TOGETHER 4 // steps, with sums of their own, which need not wait for one another
#define CHUNK 256  // rows whose sums become bytes at one go

// The bytes of one lane, place after place.
static void gather(const Step *s, const uint8_t *x, size_t stride, int lane, int32_t *dense) {
  for (int c = 0; c < s->inputs; c++, x += stride)
    for (int t = 0; t < s->taps; t++) memcpy(dense++, x + BYTES * s->tap[t] + 4 * lane, 4);
}

// Sums of 16 rows, for T lanes whose places are `width` apart; `far` numbers lie between the sums of two lanes. An index is
// a byte: those of 4 steps share 32 bits.
typedef struct { const uint8_t *weights, *indices; const uint16_t *first; } Entry;
INLINE void sums(const int T, uint32_t n, const Entry *e, const int32_t *places, size_t width, int32_t *out, size_t far) {
  Vec a[TOGETHER][4];
  UNROLL for (int k = 0; k < TOGETHER; k++) { UNROLL for (int t = 0; t < T; t++) a[k][t] = v_zero(); }
  for (size_t i = 0; i < n; i += TOGETHER) {
    const Vec indices = v_load(e->indices + ROWS * i);
    UNROLL for (int k = 0; k < TOGETHER; k++) {
      const Vec w = v_load(e->weights + BYTES * (i + k)), index = v_srl32(indices, 8 * k);
      const int32_t *from = places + e->first[i + k];
      UNROLL for (int t = 0; t < T; t++) a[k][t] = v_dot(a[k][t], v_pick32(from + t * width, index), w);
    }
  }
  UNROLL for (int t = 0; t < T; t++) {
    UNROLL for (int k = 1; k < TOGETHER; k++) a[0][t] = v_add32(a[0][t], a[k][t]);
    v_store(out + far * t, a[0][t]);
  }
}
typedef void Sums(uint32_t, const Entry *, const int32_t *, size_t, int32_t *, size_t);
#define SUMS(T)                                                                                                         \
  static void sums_##T(uint32_t n, const Entry *e, const int32_t *places, size_t width, int32_t *out, size_t far) {     \
    sums(T, n, e, places, width, out, far);                                                                             \
  }
SUMS(1) SUMS(2) SUMS(3) SUMS(4)
static Sums *const kernel[5] = {0, sums_1, sums_2, sums_3, sums_4};

INLINE int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }
INLINE int32_t mulhrs(int32_t x, int32_t y) { return (x * y + 16384) >> 15; }

// Rows from `first` on into one lane of y, which is at the first of them; as requantize.h does it for vectors of pixels.
static void finish(const Step *s, const int32_t *restrict a, int first, int rows, uint8_t *restrict y, const uint8_t *r) {
  const size_t step = (size_t)s->y.vectors * BYTES, step_r = (size_t)s->r.vectors * BYTES;
  const int32_t *bias = s->bias + first, *shift = s->shift + first, low = s->low, high = s->high;
  const int16_t *multiplier = s->multiplier + 4 * first;
  if (s->real) {
    for (int i = 0; i < rows; i++) {
      const float f = (float)(a[i] + bias[i]) * s->real[first + i];
      memcpy(y + i * step, &f, 4);
    }
    return;
  }
  int16_t v[CHUNK];
  uint8_t q[CHUNK];
  for (int i = 0; i < rows; i++) v[i] = (int16_t)mulhrs(clamp((a[i] + bias[i]) >> shift[i], -32768, 32767), multiplier[4 * i]);
  for (int i = 0; r && i < rows; i++)
    v[i] = (int16_t)mulhrs(clamp(v[i] + (r[i / 4 * step_r + i % 4] * s->residual >> 8), -32768, 32767), 1 << 11);
  for (int i = 0; i < rows; i++) q[i] = (uint8_t)clamp(clamp(v[i], 0, 255), low, high);
  for (int i = 0; s->table && i < rows; i++) q[i] = s->table[q[i]];
  for (int i = 0; i < rows; i += 4) memcpy(y + i / 4 * step, q + i, 4);
}

// other: a bit for each lane that is a pixel, at most 4 of the first vector; steps: those of all rows: first come their
// weights, then their indices, then each one's first place; width: places, a multiple of 32; image: bytes of what is packed.
void few8(const Step *s, const Job *j, int panel, int part) {
  size_t stride;
  const Part *p = s->rows + part;
  const uint8_t *x = panel_of(s, j, panel, part, 4, &stride);
  int32_t *dense = (int32_t *)(at(&s->scratch, j, 0) + s->image);
  const size_t width = (size_t)s->width;
  int lanes[4], count = 0;
  for (int l = 0; l < 16 && count < 4; l++) if (s->other >> l & 1) lanes[count++] = l;
  for (int t = 0; t < count; t++) gather(s, x, stride, lanes[t], dense + t * width);
  const uint8_t *weights = (const uint8_t *)s->entries, *indices = weights + (size_t)BYTES * s->steps;
  const uint16_t *places = (const uint16_t *)(indices + (size_t)ROWS * s->steps);
  Entry e = {weights + BYTES * p->entry, indices + ROWS * p->entry, places + p->entry};
  const uint32_t *n = s->lengths + p->length;
  const int depth = s->real ? 1 : 4;
  for (int first = p->first; first < p->last; first += CHUNK) {
    int32_t a[4][CHUNK] __attribute__((aligned(64)));
    const int rows = p->last - first < CHUNK ? p->last - first : CHUNK;
    for (int i = 0; i < rows; i += ROWS, n++) {
      kernel[count](*n, &e, dense, width, a[0] + i, CHUNK);
      e = (Entry){e.weights + BYTES * *n, e.indices + ROWS * *n, e.first + *n};
    }
    for (int t = 0; t < count; t++) {
      const size_t lane = (size_t)4 * lanes[t];
      uint8_t *y = at(&s->y, j, panel) + (size_t)(first / depth) * s->y.vectors * BYTES + lane;
      const uint8_t *r = s->r.vectors ? at(&s->r, j, panel) + (size_t)(first / 4) * s->r.vectors * BYTES + lane : 0;
      finish(s, a[t], first, rows, y, r);
    }
  }
}
