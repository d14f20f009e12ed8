// AVX2 (with VNNI where the compiler is told so): a vector is two registers.
#include <immintrin.h>
#define WIDEST 4 // vectors that a kernel holds at once
#define VARIANT "avx2"
#define PICKS // v_pick32 is here
typedef struct { __m256i a, b; } Vec;
typedef struct { __m256 a, b; } VecF;

INLINE Vec v_of(__m256i a, __m256i b) { Vec c = {a, b}; return c; }
INLINE VecF f_of(__m256 a, __m256 b) { VecF c = {a, b}; return c; }
INLINE Vec v_load(const void *p) {
  return v_of(_mm256_load_si256((const __m256i *)p), _mm256_load_si256((const __m256i *)p + 1));
}
INLINE Vec v_load_any(const void *p) {
  return v_of(_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)p + 1));
}
INLINE void v_store(void *p, Vec a) { _mm256_store_si256((__m256i *)p, a.a); _mm256_store_si256((__m256i *)p + 1, a.b); }
INLINE Vec v_same(__m256i a) { return v_of(a, a); }
INLINE Vec v_zero(void) { return v_same(_mm256_setzero_si256()); }
INLINE Vec v_set8(uint8_t a) { return v_same(_mm256_set1_epi8((char)a)); }
INLINE Vec v_set16(int16_t a) { return v_same(_mm256_set1_epi16(a)); }
INLINE Vec v_set32(int32_t a) { return v_same(_mm256_set1_epi32(a)); }
INLINE Vec v_set128(const void *p) { return v_same(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p))); }

#ifdef __AVXVNNI__
INLINE __m256i dot8(__m256i sum, __m256i x, __m256i w) { return _mm256_dpbusd_avx_epi32(sum, x, w); }
#else
// vpmaddubsw saturates, so even and odd bytes are multiplied as 16 bits, which is exact.
INLINE __m256i dot8(__m256i sum, __m256i x, __m256i w) {
  __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(255)),
                                   _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
  __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(w, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
#endif
INLINE Vec v_dot(Vec s, Vec x, Vec w) { return v_of(dot8(s.a, x.a, w.a), dot8(s.b, x.b, w.b)); }
#define BINARY(name, f) INLINE Vec name(Vec x, Vec y) { return v_of(f(x.a, y.a), f(x.b, y.b)); }
BINARY(v_add32, _mm256_add_epi32)
BINARY(v_packs32, _mm256_packs_epi32)
BINARY(v_unpacklo16, _mm256_unpacklo_epi16)
BINARY(v_unpackhi16, _mm256_unpackhi_epi16)
BINARY(v_add16, _mm256_add_epi16)
BINARY(v_adds16, _mm256_adds_epi16)
BINARY(v_sub16, _mm256_sub_epi16)
BINARY(v_mulhrs16, _mm256_mulhrs_epi16)
BINARY(v_mulhi_u16, _mm256_mulhi_epu16)
BINARY(v_max16, _mm256_max_epi16)
BINARY(v_min16, _mm256_min_epi16)
BINARY(v_packus16, _mm256_packus_epi16)
BINARY(v_max8, _mm256_max_epu8)
BINARY(v_min8, _mm256_min_epu8)
BINARY(v_unpacklo8, _mm256_unpacklo_epi8)
BINARY(v_unpackhi8, _mm256_unpackhi_epi8)
BINARY(v_shuffle8, _mm256_shuffle_epi8)
#undef BINARY
INLINE Vec v_sra32(Vec x, int32_t n) {
  __m128i count = _mm_cvtsi32_si128(n);
  return v_of(_mm256_sra_epi32(x.a, count), _mm256_sra_epi32(x.b, count));
}
INLINE Vec v_srl32(Vec x, int n) { return v_of(_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)); }
INLINE Vec v_sll16(Vec x, int n) { return v_of(_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)); }
INLINE Vec v_lookup8(const uint8_t *table, Vec x) {
  uint8_t b[64];
  memcpy(b, &x, 64);
  for (int i = 0; i < 64; i++) b[i] = table[b[i]];
  memcpy(&x, b, 64);
  return x;
}
INLINE __m256i bits32(uint32_t mask) { // the lowest 8 bits -> 8 lanes of ones or zeros
  __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), bit), bit);
}
INLINE __m256i permuted(__m256i b, uint32_t mask, __m256i i, Vec x) {
  __m256i upper = _mm256_cmpgt_epi32(i, _mm256_set1_epi32(7));
  __m256i y = _mm256_blendv_epi8(_mm256_permutevar8x32_epi32(x.a, i), _mm256_permutevar8x32_epi32(x.b, i), upper);
  return _mm256_blendv_epi8(b, y, bits32(mask));
}
INLINE Vec v_permute32(Vec b, uint32_t mask, Vec index, Vec x) {
  return v_of(permuted(b.a, mask, index.a, x), permuted(b.b, mask >> 8, index.b, x));
}
INLINE Vec v_permute16(Vec b, uint32_t mask, Vec index, Vec x) {
  int16_t s[32], d[32], from[32];
  memcpy(from, &index, 64);
  memcpy(s, &x, 64);
  memcpy(d, &b, 64);
  for (int i = 0; i < 32; i++) if (mask >> i & 1) d[i] = s[from[i]];
  memcpy(&b, d, 64);
  return b;
}
INLINE Vec v_mask32(uint32_t mask, Vec x) {
  return v_of(_mm256_and_si256(x.a, bits32(mask)), _mm256_and_si256(x.b, bits32(mask >> 8)));
}

INLINE VecF f_load(const void *p) { return f_of(_mm256_load_ps((const float *)p), _mm256_load_ps((const float *)p + 8)); }
INLINE void f_store(void *p, VecF x) { _mm256_store_ps((float *)p, x.a); _mm256_store_ps((float *)p + 8, x.b); }
INLINE VecF f_set(float x) { return f_of(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
INLINE VecF f_add(VecF x, VecF y) { return f_of(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
INLINE VecF f_mul(VecF x, VecF y) { return f_of(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
INLINE VecF f_fma(VecF x, VecF y, VecF z) { return f_of(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)); }
INLINE VecF f_div(VecF x, VecF y) { return f_of(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
INLINE VecF f_max(VecF x, VecF y) { return f_of(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
INLINE VecF f_min(VecF x, VecF y) { return f_of(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)); }
INLINE VecF f_of32(Vec x) { return f_of(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)); }
INLINE Vec v_round(VecF x) { return v_of(_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)); }
INLINE VecF f_gather(const float *p, const int32_t *i) {
  return f_of(_mm256_i32gather_ps(p, _mm256_loadu_si256((const __m256i *)i), 4),
              _mm256_i32gather_ps(p, _mm256_loadu_si256((const __m256i *)i + 1), 4));
}
INLINE VecF f_load4(const float *a, const float *b, const float *c, const float *d) {
  return f_of(_mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a)), _mm_loadu_ps(b), 1),
              _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(c)), _mm_loadu_ps(d), 1));
}
INLINE Vec v_pick32(const int32_t *table, Vec i) {
  const __m256i low = _mm256_set1_epi32(31);
  return v_of(_mm256_i32gather_epi32(table, _mm256_and_si256(i.a, low), 4),
              _mm256_i32gather_epi32(table, _mm256_and_si256(i.b, low), 4));
}
INLINE Vec v_or(Vec x, Vec y) { return v_of(_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)); }
INLINE Vec v_sll32(Vec x, int n) { return v_of(_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)); }
