// ARM with dot products: a vector is four registers.
#include <arm_neon.h>
#define WIDEST 4 // vectors that a kernel holds at once
#ifdef __ARM_FEATURE_MATMUL_INT8
#define VARIANT "i8mm"
#else
#define VARIANT "neon"
#endif
typedef struct { uint8x16_t r[4]; } Vec;
typedef struct { float32x4_t r[4]; } VecF;
#define EACH UNROLL for (int i = 0; i < 4; i++)
#define S8(x) vreinterpretq_s8_u8(x)
#define S16(x) vreinterpretq_s16_u8(x)
#define U16(x) vreinterpretq_u16_u8(x)
#define S32(x) vreinterpretq_s32_u8(x)
#define U8(x) _Generic((x), int8x16_t: vreinterpretq_u8_s8, int16x8_t: vreinterpretq_u8_s16,                             \
                       uint16x8_t: vreinterpretq_u8_u16, int32x4_t: vreinterpretq_u8_s32)(x)

INLINE Vec v_load(const void *p) { Vec a; EACH a.r[i] = vld1q_u8((const uint8_t *)p + 16 * i); return a; }
INLINE Vec v_load_any(const void *p) { return v_load(p); }
INLINE void v_store(void *p, Vec a) { EACH vst1q_u8((uint8_t *)p + 16 * i, a.r[i]); }
INLINE Vec v_same(uint8x16_t x) { Vec a; EACH a.r[i] = x; return a; }
INLINE Vec v_zero(void) { return v_same(vdupq_n_u8(0)); }
INLINE Vec v_set8(uint8_t x) { return v_same(vdupq_n_u8(x)); }
INLINE Vec v_set16(int16_t x) { return v_same(U8(vdupq_n_s16(x))); }
INLINE Vec v_set32(int32_t x) { return v_same(U8(vdupq_n_s32(x))); }
INLINE Vec v_set128(const void *p) { return v_same(vld1q_u8((const uint8_t *)p)); }

#ifdef __ARM_FEATURE_MATMUL_INT8
INLINE Vec v_dot(Vec s, Vec x, Vec w) { EACH s.r[i] = U8(vusdotq_s32(S32(s.r[i]), x.r[i], S8(w.r[i]))); return s; }
#else
// Both must be signed: x - 128, and 128 times the sum of the weights, which is the same for all vectors of a panel.
INLINE Vec v_dot(Vec s, Vec x, Vec w) {
  EACH {
    int32x4_t half = vdotq_s32(vdupq_n_s32(0), vdupq_n_s8(64), S8(w.r[i]));
    int32x4_t sum = vdotq_s32(S32(s.r[i]), S8(veorq_u8(x.r[i], vdupq_n_u8(128))), S8(w.r[i]));
    s.r[i] = U8(vaddq_s32(sum, vshlq_n_s32(half, 1)));
  }
  return s;
}
#endif
#define BINARY(name, expression) INLINE Vec name(Vec x, Vec y) { Vec z; EACH z.r[i] = expression; return z; }
BINARY(v_add32, U8(vaddq_s32(S32(x.r[i]), S32(y.r[i]))))
BINARY(v_or, vorrq_u8(x.r[i], y.r[i]))
BINARY(v_packs32, U8(vcombine_s16(vqmovn_s32(S32(x.r[i])), vqmovn_s32(S32(y.r[i])))))
BINARY(v_unpacklo16, U8(vzip1q_s16(S16(x.r[i]), S16(y.r[i]))))
BINARY(v_unpackhi16, U8(vzip2q_s16(S16(x.r[i]), S16(y.r[i]))))
BINARY(v_add16, U8(vaddq_s16(S16(x.r[i]), S16(y.r[i]))))
BINARY(v_adds16, U8(vqaddq_s16(S16(x.r[i]), S16(y.r[i]))))
BINARY(v_sub16, U8(vsubq_s16(S16(x.r[i]), S16(y.r[i]))))
BINARY(v_mulhrs16, U8(vqrdmulhq_s16(S16(x.r[i]), S16(y.r[i])))) // no factor is -32768 in both
BINARY(v_max16, U8(vmaxq_s16(S16(x.r[i]), S16(y.r[i]))))
BINARY(v_min16, U8(vminq_s16(S16(x.r[i]), S16(y.r[i]))))
BINARY(v_packus16, vcombine_u8(vqmovun_s16(S16(x.r[i])), vqmovun_s16(S16(y.r[i]))))
BINARY(v_max8, vmaxq_u8(x.r[i], y.r[i]))
BINARY(v_min8, vminq_u8(x.r[i], y.r[i]))
BINARY(v_unpacklo8, vzip1q_u8(x.r[i], y.r[i]))
BINARY(v_unpackhi8, vzip2q_u8(x.r[i], y.r[i]))
BINARY(v_shuffle8, vqtbl1q_u8(x.r[i], y.r[i]))
#undef BINARY
INLINE Vec v_mulhi_u16(Vec x, Vec y) {
  Vec z;
  EACH {
    uint32x4_t low = vmull_u16(vget_low_u16(U16(x.r[i])), vget_low_u16(U16(y.r[i])));
    uint32x4_t high = vmull_high_u16(U16(x.r[i]), U16(y.r[i]));
    z.r[i] = U8(vuzp2q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high)));
  }
  return z;
}
INLINE Vec v_sra32(Vec x, int32_t n) { EACH x.r[i] = U8(vshlq_s32(S32(x.r[i]), vdupq_n_s32(-n))); return x; }
INLINE Vec v_srl32(Vec x, int n) {
  EACH x.r[i] = vreinterpretq_u8_u32(vshlq_u32(vreinterpretq_u32_u8(x.r[i]), vdupq_n_s32(-n)));
  return x;
}
INLINE Vec v_sll32(Vec x, int n) { EACH x.r[i] = U8(vshlq_s32(S32(x.r[i]), vdupq_n_s32(n))); return x; }
INLINE Vec v_sll16(Vec x, int n) { EACH x.r[i] = U8(vshlq_s16(S16(x.r[i]), vdupq_n_s16((int16_t)n))); return x; }
INLINE Vec v_lookup8(const uint8_t *table, Vec x) {
  EACH {
    uint8x16_t y = vqtbl4q_u8(vld1q_u8_x4(table), x.r[i]);
    y = vqtbx4q_u8(y, vld1q_u8_x4(table + 64), vsubq_u8(x.r[i], vdupq_n_u8(64)));
    y = vqtbx4q_u8(y, vld1q_u8_x4(table + 128), vsubq_u8(x.r[i], vdupq_n_u8(128)));
    x.r[i] = vqtbx4q_u8(y, vld1q_u8_x4(table + 192), vsubq_u8(x.r[i], vdupq_n_u8(192)));
  }
  return x;
}

INLINE uint8x16x4_t all_of(Vec x) { uint8x16x4_t t; EACH t.val[i] = x.r[i]; return t; }
INLINE uint32x4_t bits32(uint32_t mask) { // the lowest 4 bits -> 4 lanes of ones or zeros
  const uint32x4_t bit = {1, 2, 4, 8};
  return vtstq_u32(vdupq_n_u32(mask), bit);
}
INLINE Vec v_permute32(Vec b, uint32_t mask, Vec index, Vec a) {
  EACH { // 4 · index + 0, 1, 2, 3 in the bytes of a lane
    uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100), vreinterpretq_u32_u8(index.r[i]), 0x04040404);
    uint8x16_t y = vqtbl4q_u8(all_of(a), vreinterpretq_u8_u32(at));
    b.r[i] = vbslq_u8(vreinterpretq_u8_u32(bits32(mask >> 4 * i)), y, b.r[i]);
  }
  return b;
}
INLINE Vec v_permute16(Vec b, uint32_t mask, Vec index, Vec a) {
  const uint16x8_t bit = {1, 2, 4, 8, 16, 32, 64, 128};
  EACH {
    uint16x8_t at = vmlaq_n_u16(vdupq_n_u16(0x0100), U16(index.r[i]), 0x0202);
    uint8x16_t y = vqtbl4q_u8(all_of(a), U8(at));
    b.r[i] = vbslq_u8(U8(vtstq_u16(vdupq_n_u16((uint16_t)(mask >> 8 * i & 255)), bit)), y, b.r[i]);
  }
  return b;
}
INLINE Vec v_mask32(uint32_t mask, Vec a) {
  EACH a.r[i] = vandq_u8(a.r[i], vreinterpretq_u8_u32(bits32(mask >> 4 * i)));
  return a;
}

INLINE VecF f_load(const void *p) { VecF a; EACH a.r[i] = vld1q_f32((const float *)p + 4 * i); return a; }
INLINE void f_store(void *p, VecF a) { EACH vst1q_f32((float *)p + 4 * i, a.r[i]); }
INLINE VecF f_set(float x) { VecF a; EACH a.r[i] = vdupq_n_f32(x); return a; }
INLINE VecF f_add(VecF a, VecF b) { EACH a.r[i] = vaddq_f32(a.r[i], b.r[i]); return a; }
INLINE VecF f_mul(VecF a, VecF b) { EACH a.r[i] = vmulq_f32(a.r[i], b.r[i]); return a; }
INLINE VecF f_fma(VecF a, VecF b, VecF c) { EACH c.r[i] = vfmaq_f32(c.r[i], a.r[i], b.r[i]); return c; }
INLINE VecF f_div(VecF a, VecF b) { EACH a.r[i] = vdivq_f32(a.r[i], b.r[i]); return a; }
INLINE VecF f_max(VecF a, VecF b) { EACH a.r[i] = vbslq_f32(vcgtq_f32(a.r[i], b.r[i]), a.r[i], b.r[i]); return a; }
INLINE VecF f_min(VecF a, VecF b) { EACH a.r[i] = vbslq_f32(vcltq_f32(a.r[i], b.r[i]), a.r[i], b.r[i]); return a; }
INLINE VecF f_of32(Vec a) { VecF c; EACH c.r[i] = vcvtq_f32_s32(S32(a.r[i])); return c; }
INLINE Vec v_round(VecF a) { Vec c; EACH c.r[i] = U8(vcvtnq_s32_f32(a.r[i])); return c; }
INLINE VecF f_gather(const float *p, const int32_t *index) {
  float f[16];
  for (int i = 0; i < 16; i++) f[i] = p[index[i]];
  return f_load(f);
}
INLINE VecF f_load4(const float *a, const float *b, const float *c, const float *d) {
  VecF v = {{vld1q_f32(a), vld1q_f32(b), vld1q_f32(c), vld1q_f32(d)}};
  return v;
}
#undef EACH
