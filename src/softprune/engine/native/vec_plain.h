// Plain C: a vector is an array. Slow where the compiler finds no vectors, right everywhere.
#include <math.h>
#define WIDEST 2 // vectors that a kernel holds at once
#define VARIANT "plain"
typedef struct { union { uint8_t b[64]; int16_t h[32]; uint16_t uh[32]; int32_t w[16]; }; } Vec;
typedef struct { float f[16]; } VecF;
#define EACH(n) for (int i = 0; i < (n); i++)

INLINE Vec v_load(const void *p) { Vec a; memcpy(&a, p, 64); return a; }
INLINE Vec v_load_any(const void *p) { return v_load(p); }
INLINE void v_store(void *p, Vec a) { memcpy(p, &a, 64); }
INLINE Vec v_zero(void) { Vec a; memset(&a, 0, 64); return a; }
INLINE Vec v_set8(uint8_t x) { Vec a; memset(&a, x, 64); return a; }
INLINE Vec v_set16(int16_t x) { Vec a; EACH(32) a.h[i] = x; return a; }
INLINE Vec v_set32(int32_t x) { Vec a; EACH(16) a.w[i] = x; return a; }
INLINE Vec v_set128(const void *p) { Vec a; EACH(4) memcpy(a.b + 16 * i, p, 16); return a; }

INLINE int16_t clamp16(int32_t x) { return (int16_t)(x < -32768 ? -32768 : x > 32767 ? 32767 : x); }
INLINE uint8_t clamp8(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

INLINE Vec v_dot(Vec s, Vec x, Vec y) {
  EACH(16) {
    int32_t t = 0;
    for (int j = 0; j < 4; j++) t += (int32_t)x.b[4 * i + j] * (int8_t)y.b[4 * i + j];
    s.w[i] = (int32_t)((uint32_t)s.w[i] + (uint32_t)t);
  }
  return s;
}
INLINE Vec v_add32(Vec a, Vec b) { EACH(16) a.w[i] = (int32_t)((uint32_t)a.w[i] + (uint32_t)b.w[i]); return a; }
INLINE Vec v_srl32(Vec a, int n) { EACH(16) a.w[i] = (int32_t)((uint32_t)a.w[i] >> n); return a; }
INLINE Vec v_sra32(Vec a, int32_t n) { EACH(16) a.w[i] >>= n; return a; }
INLINE Vec v_packs32(Vec a, Vec b) {
  Vec c;
  EACH(16) c.h[i / 4 * 8 + i % 4] = clamp16(a.w[i]);
  EACH(16) c.h[i / 4 * 8 + 4 + i % 4] = clamp16(b.w[i]);
  return c;
}
INLINE Vec v_unpacklo16(Vec a, Vec b) {
  Vec c;
  EACH(16) { int s = i / 4 * 8 + i % 4, d = i / 4 * 8 + 2 * (i % 4); c.h[d] = a.h[s]; c.h[d + 1] = b.h[s]; }
  return c;
}
INLINE Vec v_unpackhi16(Vec a, Vec b) {
  Vec c;
  EACH(16) { int s = i / 4 * 8 + 4 + i % 4, d = i / 4 * 8 + 2 * (i % 4); c.h[d] = a.h[s]; c.h[d + 1] = b.h[s]; }
  return c;
}

INLINE Vec v_add16(Vec a, Vec b) { EACH(32) a.uh[i] = (uint16_t)(a.uh[i] + b.uh[i]); return a; }
INLINE Vec v_adds16(Vec a, Vec b) { EACH(32) a.h[i] = clamp16(a.h[i] + b.h[i]); return a; }
INLINE Vec v_sub16(Vec a, Vec b) { EACH(32) a.uh[i] = (uint16_t)(a.uh[i] - b.uh[i]); return a; }
INLINE Vec v_sll16(Vec a, int n) { EACH(32) a.uh[i] = (uint16_t)(a.uh[i] << n); return a; }
INLINE Vec v_mulhrs16(Vec a, Vec b) { EACH(32) a.h[i] = (int16_t)((a.h[i] * b.h[i] + 16384) >> 15); return a; }
INLINE Vec v_mulhi_u16(Vec a, Vec b) { EACH(32) a.uh[i] = (uint16_t)(((uint32_t)a.uh[i] * b.uh[i]) >> 16); return a; }
INLINE Vec v_max16(Vec a, Vec b) { EACH(32) a.h[i] = a.h[i] > b.h[i] ? a.h[i] : b.h[i]; return a; }
INLINE Vec v_min16(Vec a, Vec b) { EACH(32) a.h[i] = a.h[i] < b.h[i] ? a.h[i] : b.h[i]; return a; }
INLINE Vec v_packus16(Vec a, Vec b) {
  Vec c;
  EACH(32) c.b[i / 8 * 16 + i % 8] = clamp8(a.h[i]);
  EACH(32) c.b[i / 8 * 16 + 8 + i % 8] = clamp8(b.h[i]);
  return c;
}

INLINE Vec v_max8(Vec a, Vec b) { EACH(64) a.b[i] = a.b[i] > b.b[i] ? a.b[i] : b.b[i]; return a; }
INLINE Vec v_min8(Vec a, Vec b) { EACH(64) a.b[i] = a.b[i] < b.b[i] ? a.b[i] : b.b[i]; return a; }
INLINE Vec v_unpacklo8(Vec a, Vec b) {
  Vec c;
  EACH(32) { int s = i / 8 * 16 + i % 8, d = i / 8 * 16 + 2 * (i % 8); c.b[d] = a.b[s]; c.b[d + 1] = b.b[s]; }
  return c;
}
INLINE Vec v_unpackhi8(Vec a, Vec b) {
  Vec c;
  EACH(32) { int s = i / 8 * 16 + 8 + i % 8, d = i / 8 * 16 + 2 * (i % 8); c.b[d] = a.b[s]; c.b[d + 1] = b.b[s]; }
  return c;
}
INLINE Vec v_shuffle8(Vec a, Vec index) { Vec c; EACH(64) c.b[i] = index.b[i] & 128 ? 0 : a.b[i / 16 * 16 + (index.b[i] & 15)]; return c; }
INLINE Vec v_lookup8(const uint8_t *table, Vec a) { EACH(64) a.b[i] = table[a.b[i]]; return a; }

INLINE Vec v_permute32(Vec b, uint32_t mask, Vec index, Vec a) {
  EACH(16) if (mask >> i & 1) b.w[i] = a.w[index.w[i]];
  return b;
}
INLINE Vec v_permute16(Vec b, uint32_t mask, Vec index, Vec a) {
  EACH(32) if (mask >> i & 1) b.h[i] = a.h[index.h[i]];
  return b;
}
INLINE Vec v_mask32(uint32_t mask, Vec a) { EACH(16) if (!(mask >> i & 1)) a.w[i] = 0; return a; }

INLINE VecF f_load(const void *p) { VecF a; memcpy(&a, p, 64); return a; }
INLINE void f_store(void *p, VecF a) { memcpy(p, &a, 64); }
INLINE VecF f_set(float x) { VecF a; EACH(16) a.f[i] = x; return a; }
INLINE VecF f_add(VecF a, VecF b) { EACH(16) a.f[i] += b.f[i]; return a; }
INLINE VecF f_mul(VecF a, VecF b) { EACH(16) a.f[i] *= b.f[i]; return a; }
INLINE VecF f_fma(VecF a, VecF b, VecF c) { EACH(16) c.f[i] += a.f[i] * b.f[i]; return c; }
INLINE VecF f_div(VecF a, VecF b) { EACH(16) a.f[i] /= b.f[i]; return a; }
INLINE VecF f_max(VecF a, VecF b) { EACH(16) a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i]; return a; }
INLINE VecF f_min(VecF a, VecF b) { EACH(16) a.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i]; return a; }
INLINE VecF f_of32(Vec a) { VecF c; EACH(16) c.f[i] = (float)a.w[i]; return c; }
INLINE Vec v_round(VecF a) { Vec c; EACH(16) c.w[i] = (int32_t)lrintf(a.f[i]); return c; }
INLINE VecF f_gather(const float *p, const int32_t *index) { VecF c; EACH(16) c.f[i] = p[index[i]]; return c; }
INLINE VecF f_load4(const float *a, const float *b, const float *c, const float *d) {
  VecF v;
  memcpy(v.f, a, 16);
  memcpy(v.f + 4, b, 16);
  memcpy(v.f + 8, c, 16);
  memcpy(v.f + 12, d, 16);
  return v;
}
INLINE Vec v_or(Vec a, Vec b) { EACH(16) a.w[i] |= b.w[i]; return a; }
INLINE Vec v_sll32(Vec a, int n) { EACH(16) a.w[i] = (int32_t)((uint32_t)a.w[i] << n); return a; }
#undef EACH
