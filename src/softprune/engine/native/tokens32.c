// What transformers do between their layers, in fp32. A lane is one channel of one token, so that sums over channels and
// over tokens are sums of vectors.
#include <math.h>
#include "curves.h"
#include "pack.h"

// y = (x - mean) / sqrt(variance + eps) · weight + bias, over the channels of a token. width: channels; real: weights,
// biases, eps.
INLINE void norm(const int P, const Step *s, const uint8_t *x, uint8_t *y) {
  const size_t from = (size_t)s->x.vectors * BYTES, to = (size_t)s->y.vectors * BYTES;
  const VecF share = f_set(1.0f / (float)s->width);
  VecF mean[MOST], scale[MOST];
  UNROLL for (int p = 0; p < P; p++) mean[p] = scale[p] = f_set(0);
  for (int c = 0; c < s->width; c++) {
    UNROLL for (int p = 0; p < P; p++) mean[p] = f_add(mean[p], f_load(x + c * from + BYTES * p));
  }
  UNROLL for (int p = 0; p < P; p++) mean[p] = f_mul(mean[p], f_mul(share, f_set(-1.0f)));
  for (int c = 0; c < s->width; c++) {
    UNROLL for (int p = 0; p < P; p++) {
      const VecF d = f_add(f_load(x + c * from + BYTES * p), mean[p]);
      scale[p] = f_fma(d, d, scale[p]);
    }
  }
  UNROLL for (int p = 0; p < P; p++) {
    float f[16] __attribute__((aligned(64)));
    f_store(f, f_mul(scale[p], share));
    for (int l = 0; l < 16; l++) f[l] = 1.0f / sqrtf(f[l] + s->real[2 * s->width]);
    scale[p] = f_load(f);
  }
  for (int c = 0; c < s->width; c++) {
    const VecF weight = f_set(s->real[c]), bias = f_set(s->real[s->width + c]);
    UNROLL for (int p = 0; p < P; p++) {
      const VecF d = f_mul(f_add(f_load(x + c * from + BYTES * p), mean[p]), scale[p]);
      f_store(y + c * to + BYTES * p, f_fma(d, weight, bias));
    }
  }
}

#define NORM(P) static void norm_##P(const Step *s, const uint8_t *x, uint8_t *y) { norm(P, s, x, y); }
EACH_WIDTH(NORM)
typedef void Norm(const Step *, const uint8_t *, uint8_t *);
static Norm *const norms[MOST + 1] = {0, WIDTHS(norm_, )};

void norm32(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel);
  uint8_t *y = at(&s->y, j, panel);
  for (int p = 0, left = s->counts[panel]; left > 0; p += WIDEST, left -= WIDEST)
    norms[left < WIDEST ? left : WIDEST](s, x + BYTES * p, y + BYTES * p);
}

// Attention of one head, for one piece of the queries of a panel. q, k and v are channels of x: `bias` names them, those of
// q of all heads first. inputs: channels of a head; outputs: heads; width: keys. tap: panel, byte and tile of every key;
// images: of a group; indices: for each tile the lanes whose keys all lanes of an image want. real: the factor of the
// products. lengths: for each key and each vector of queries the lanes that see it; 0: all.
typedef struct { const Step *s; const Job *j; int head, panel, first; float *weights; } Look;

// Bytes from the first channel of x to one of q, k or v (0, 1, 2).
INLINE size_t channel(const Look *l, int kind, int d) {
  const Step *s = l->s;
  return (size_t)s->bias[(kind * s->outputs + l->head) * s->inputs + d] * s->x.vectors * BYTES;
}
INLINE const uint8_t *place(const Look *l, int k) { // of key k, in the first channel
  return at(&l->s->x, l->j, l->s->tap[3 * k]) + l->s->tap[3 * k + 1];
}
// What every lane of a query wants of a key. With one image it is the same for all.
INLINE VecF wanted(const Step *s, const uint8_t *x, int tile) {
  if (s->images > 1) return f_of_bits(v_permute32(v_zero(), 0xffff, v_load_any(s->indices + 16 * tile), v_load(x)));
  float f;
  memcpy(&f, x + 4 * tile, 4);
  return f_set(f);
}

// Products of P vectors of queries with K keys from key k on.
INLINE void products(const int P, const int K, const Look *l, int k, VecF *most) {
  const Step *s = l->s;
  VecF a[4][MOST];
  UNROLL for (int i = 0; i < K; i++) { UNROLL for (int p = 0; p < P; p++) a[i][p] = f_set(0); }
  const uint8_t *queries = at(&s->x, l->j, l->panel) + BYTES * l->first, *keys[4];
  UNROLL for (int i = 0; i < K; i++) keys[i] = place(l, k + i);
  for (int d = 0; d < s->inputs; d++) {
    const uint8_t *q = queries + channel(l, 0, d);
    const size_t from = channel(l, 1, d);
    VecF b[4];
    UNROLL for (int i = 0; i < K; i++) b[i] = wanted(s, keys[i] + from, s->tap[3 * (k + i) + 2]);
    UNROLL for (int p = 0; p < P; p++) {
      const VecF f = f_load(q + BYTES * p);
      UNROLL for (int i = 0; i < K; i++) a[i][p] = f_fma(f, b[i], a[i][p]);
    }
  }
  const VecF factor = f_set(s->real[0]);
  UNROLL for (int i = 0; i < K; i++) {
    const uint32_t *seen = s->lengths ? s->lengths + ((size_t)(k + i) * s->taps + l->panel) * MOST + l->first : 0;
    UNROLL for (int p = 0; p < P; p++) {
      VecF f = f_mul(a[i][p], factor);
      if (seen) f = f_of_bits(v_or(v_mask32(seen[p], v_of_floats(f)), v_mask32(~seen[p], v_of_floats(f_set(-INFINITY)))));
      most[p] = f_max(most[p], f);
      f_store(l->weights + ((size_t)(k + i) * P + p) * 16, f);
    }
  }
}

// Means of D channels from channel d on, over all keys.
INLINE void means(const int P, const int D, const Look *l, int d, const VecF *share, uint8_t *y) {
  const Step *s = l->s;
  VecF a[4][MOST];
  UNROLL for (int i = 0; i < D; i++) { UNROLL for (int p = 0; p < P; p++) a[i][p] = f_set(0); }
  size_t from[4];
  UNROLL for (int i = 0; i < D; i++) from[i] = channel(l, 2, d + i);
  for (int k = 0; k < s->width; k++) {
    const uint8_t *x = place(l, k);
    const int tile = s->tap[3 * k + 2];
    VecF b[4];
    UNROLL for (int i = 0; i < D; i++) b[i] = wanted(s, x + from[i], tile);
    UNROLL for (int p = 0; p < P; p++) {
      const VecF f = f_load(l->weights + ((size_t)k * P + p) * 16);
      UNROLL for (int i = 0; i < D; i++) a[i][p] = f_fma(f, b[i], a[i][p]);
    }
  }
  UNROLL for (int i = 0; i < D; i++) {
    UNROLL for (int p = 0; p < P; p++)
      f_store(y + (size_t)(d + i) * s->y.vectors * BYTES + BYTES * p, f_mul(a[i][p], share[p]));
  }
}

INLINE void look(const int P, const int K, const Look *l, uint8_t *y) {
  const Step *s = l->s;
  VecF most[MOST], share[MOST];
  UNROLL for (int p = 0; p < P; p++) { most[p] = f_set(-INFINITY); share[p] = f_set(0); }
  int k = 0, d = 0;
  for (; k + K <= s->width; k += K) products(P, K, l, k, most);
  for (; k < s->width; k++) products(P, 1, l, k, most);
  UNROLL for (int p = 0; p < P; p++) most[p] = f_mul(most[p], f_set(-1));
  for (k = 0; k < s->width; k++) {
    UNROLL for (int p = 0; p < P; p++) {
      float *w = l->weights + ((size_t)k * P + p) * 16;
      const VecF f = f_exp(f_add(f_load(w), most[p]));
      share[p] = f_add(share[p], f);
      f_store(w, f);
    }
  }
  UNROLL for (int p = 0; p < P; p++) {
    float f[16] __attribute__((aligned(64)));
    f_store(f, share[p]);
    for (int i = 0; i < 16; i++) f[i] = 1.0f / f[i];
    share[p] = f_load(f);
  }
  for (; d + K <= s->inputs; d += K) means(P, K, l, d, share, y);
  for (; d < s->inputs; d++) means(P, 1, l, d, share, y);
}

#if WIDEST == 8
#define QUERIES 4 // vectors at once, with as many keys or channels
static void look_3(const Look *l, uint8_t *y) { look(3, 4, l, y); }
static void look_4(const Look *l, uint8_t *y) { look(4, 4, l, y); }
#else
#define QUERIES 2
#endif
static void look_1(const Look *l, uint8_t *y) { look(1, QUERIES, l, y); }
static void look_2(const Look *l, uint8_t *y) { look(2, QUERIES, l, y); }
typedef void Looks(const Look *, uint8_t *);
#if WIDEST == 8
static Looks *const looks[QUERIES + 1] = {0, look_1, look_2, look_3, look_4};
#else
static Looks *const looks[QUERIES + 1] = {0, look_1, look_2};
#endif

// A "panel" is one panel of one head.
void attention32(const Step *s, const Job *j, int item, int part) {
  (void)part;
  const int head = item / s->taps, panel = item % s->taps;
  float *weights = (float *)at(&s->scratch, j, 0);
  uint8_t *y = at(&s->y, j, panel) + (size_t)head * s->inputs * s->y.vectors * BYTES;
  for (int p = 0, left = s->counts[panel]; left > 0; p += QUERIES, left -= QUERIES) {
    const Look l = {s, j, head, panel, p, weights};
    looks[left < QUERIES ? left : QUERIES](&l, y + BYTES * p);
  }
}
