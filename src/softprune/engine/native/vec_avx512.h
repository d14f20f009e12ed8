// AVX-512, with VNNI and VBMI where the compiler is told so: a vector is one register.
#include <immintrin.h>
#define WIDEST 8 // vectors that a kernel holds at once
#define TURNS // v_transpose4 and v_turn32 are here
#define PICKS // v_pick32 is here
#if defined(__AVX512VNNI__) && defined(__AVX512VBMI__)
#define VARIANT "avx512vbmi"
#elif defined(__AVX512VNNI__)
#define VARIANT "avx512vnni"
#else
#define VARIANT "avx512"
#endif
typedef __m512i Vec;
typedef __m512 VecF;

INLINE Vec v_load(const void *p) { return _mm512_load_si512(p); }
INLINE Vec v_load_any(const void *p) { return _mm512_loadu_si512(p); } // not aligned
INLINE void v_store(void *p, Vec a) { _mm512_store_si512(p, a); }
INLINE Vec v_zero(void) { return _mm512_setzero_si512(); }
INLINE Vec v_set8(uint8_t a) { return _mm512_set1_epi8((char)a); }
INLINE Vec v_set16(int16_t a) { return _mm512_set1_epi16(a); }
INLINE Vec v_set32(int32_t a) { return _mm512_set1_epi32(a); }
INLINE Vec v_set128(const void *p) { return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p)); }

// 32 bits
#ifdef __AVX512VNNI__
// In assembler, since gcc 12 copies the sums of a loop from register to register.
INLINE Vec v_dot(Vec sum, Vec u8, Vec s8) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(u8), "v"(s8));
  return sum;
}
#else
// vpmaddubsw saturates, so even and odd bytes are multiplied as 16 bits, which is exact.
INLINE Vec v_dot(Vec sum, Vec u8, Vec s8) {
  Vec even = _mm512_madd_epi16(_mm512_and_si512(u8, _mm512_set1_epi16(255)),
                               _mm512_srai_epi16(_mm512_slli_epi16(s8, 8), 8));
  Vec odd = _mm512_madd_epi16(_mm512_srli_epi16(u8, 8), _mm512_srai_epi16(s8, 8));
  return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
}
#endif
INLINE Vec v_add32(Vec a, Vec b) { return _mm512_add_epi32(a, b); }
INLINE Vec v_srl32(Vec a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
INLINE Vec v_sra32(Vec a, int32_t n) { return _mm512_srav_epi32(a, _mm512_set1_epi32(n)); }
INLINE Vec v_packs32(Vec a, Vec b) { return _mm512_packs_epi32(a, b); }
INLINE Vec v_unpacklo16(Vec a, Vec b) { return _mm512_unpacklo_epi16(a, b); }
INLINE Vec v_unpackhi16(Vec a, Vec b) { return _mm512_unpackhi_epi16(a, b); }

// 16 bits
INLINE Vec v_add16(Vec a, Vec b) { return _mm512_add_epi16(a, b); }
INLINE Vec v_adds16(Vec a, Vec b) { return _mm512_adds_epi16(a, b); }
INLINE Vec v_sub16(Vec a, Vec b) { return _mm512_sub_epi16(a, b); }
INLINE Vec v_sll16(Vec a, int n) { return _mm512_slli_epi16(a, n); }
INLINE Vec v_mulhrs16(Vec a, Vec b) { return _mm512_mulhrs_epi16(a, b); }
INLINE Vec v_mulhi_u16(Vec a, Vec b) { return _mm512_mulhi_epu16(a, b); }
INLINE Vec v_max16(Vec a, Vec b) { return _mm512_max_epi16(a, b); }
INLINE Vec v_min16(Vec a, Vec b) { return _mm512_min_epi16(a, b); }
INLINE Vec v_packus16(Vec a, Vec b) { return _mm512_packus_epi16(a, b); }

// 8 bits
INLINE Vec v_max8(Vec a, Vec b) { return _mm512_max_epu8(a, b); }
INLINE Vec v_min8(Vec a, Vec b) { return _mm512_min_epu8(a, b); }
INLINE Vec v_unpacklo8(Vec a, Vec b) { return _mm512_unpacklo_epi8(a, b); }
INLINE Vec v_unpackhi8(Vec a, Vec b) { return _mm512_unpackhi_epi8(a, b); }
INLINE Vec v_shuffle8(Vec a, Vec index) { return _mm512_shuffle_epi8(a, index); }
#ifdef __AVX512VBMI__
INLINE Vec v_lookup8(const uint8_t *table, Vec a) { // table of 256 bytes
  Vec low = _mm512_permutex2var_epi8(_mm512_loadu_si512(table), a, _mm512_loadu_si512(table + 64));
  Vec high = _mm512_permutex2var_epi8(_mm512_loadu_si512(table + 128), a, _mm512_loadu_si512(table + 192));
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(a), low, high);
}
#else
INLINE Vec v_lookup8(const uint8_t *table, Vec a) { // 16 bytes of the table at a time
  Vec found = v_zero(), upper = _mm512_and_si512(a, v_set8(0xf0));
  for (int i = 0; i < 16; i++) {
    __mmask64 here = _mm512_cmpeq_epi8_mask(upper, v_set8((uint8_t)(16 * i)));
    found = _mm512_mask_shuffle_epi8(found, here, v_set128(table + 16 * i), _mm512_and_si512(a, v_set8(15)));
  }
  return found;
}
#endif

// lanes: where a bit of the mask is 1, the lane of a that the index names, else the lane of b
INLINE Vec v_permute32(Vec b, uint32_t mask, Vec index, Vec a) {
  return _mm512_mask_permutexvar_epi32(b, (__mmask16)mask, index, a);
}
INLINE Vec v_permute16(Vec b, uint32_t mask, Vec index, Vec a) {
  return _mm512_mask_permutexvar_epi16(b, mask, index, a);
}
INLINE Vec v_mask32(uint32_t mask, Vec a) { return _mm512_maskz_mov_epi32((__mmask16)mask, a); }

// floats
INLINE VecF f_load(const void *p) { return _mm512_load_ps(p); }
INLINE void f_store(void *p, VecF a) { _mm512_store_ps(p, a); }
INLINE VecF f_set(float a) { return _mm512_set1_ps(a); }
INLINE VecF f_add(VecF a, VecF b) { return _mm512_add_ps(a, b); }
INLINE VecF f_mul(VecF a, VecF b) { return _mm512_mul_ps(a, b); }
INLINE VecF f_fma(VecF a, VecF b, VecF c) { return _mm512_fmadd_ps(a, b, c); }
INLINE VecF f_div(VecF a, VecF b) { return _mm512_div_ps(a, b); }
INLINE VecF f_max(VecF a, VecF b) { return _mm512_max_ps(a, b); } // b where a is NaN
INLINE VecF f_min(VecF a, VecF b) { return _mm512_min_ps(a, b); }
INLINE VecF f_of32(Vec a) { return _mm512_cvtepi32_ps(a); }
INLINE Vec v_round(VecF a) { return _mm512_cvtps_epi32(a); } // to the nearest, half to even
INLINE VecF f_gather(const float *p, const int32_t *index) {
  return _mm512_i32gather_ps(_mm512_loadu_si512(index), p, 4);
}
// 4 floats from each of 4 places.
INLINE VecF f_load4(const float *a, const float *b, const float *c, const float *d) {
  __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(a));
  v = _mm512_insertf32x4(v, _mm_loadu_ps(b), 1);
  v = _mm512_insertf32x4(v, _mm_loadu_ps(c), 2);
  return _mm512_insertf32x4(v, _mm_loadu_ps(d), 3);
}
INLINE void v_transpose4(Vec v[4]) {
  const Vec index = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  UNROLL for (int i = 0; i < 4; i++) v[i] = _mm512_permutexvar_epi32(index, v[i]);
  Vec a = _mm512_shuffle_i32x4(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
  Vec c = _mm512_shuffle_i32x4(v[2], v[3], 0x44), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
  v[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  v[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
  v[2] = _mm512_shuffle_i32x4(b, d, 0x88);
  v[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}
INLINE void v_turn32(Vec v[4]) {
  Vec a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
  Vec c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
  v[0] = _mm512_unpacklo_epi64(a, c), v[1] = _mm512_unpackhi_epi64(a, c);
  v[2] = _mm512_unpacklo_epi64(b, d), v[3] = _mm512_unpackhi_epi64(b, d);
}
INLINE Vec v_pick32(const int32_t *table, Vec index) {
  return _mm512_permutex2var_epi32(v_load(table), index, v_load(table + 16));
}
INLINE Vec v_or(Vec a, Vec b) { return _mm512_or_si512(a, b); }
INLINE Vec v_sll32(Vec a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
