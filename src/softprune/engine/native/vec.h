// One vector of 64 bytes, whatever the machine has: 16 lanes of 32 bits, or 32 of 16, or 64 of 8. All kernels are written
// with these functions, so that a plan and its data are the same on every machine. Packs, unpacks and shuffles of bytes
// work inside each 16 bytes, as they do on x86; a shuffle's index of 128 gives 0.
#ifndef SOFTPRUNE_VEC_H
#define SOFTPRUNE_VEC_H
#include <stdint.h>
#include <stddef.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define BYTES 64

#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "vec_avx512.h"
#elif defined(__AVX2__)
#include "vec_avx2.h"
#elif defined(__ARM_NEON) && defined(__ARM_FEATURE_DOTPROD)
#include "vec_neon.h"
#else
#include "vec_plain.h"
#endif

// What only some machines do with instructions of their own.
#ifndef TURNS
INLINE void v_transpose4(Vec v[4]) { // 16 x 4 lanes of 32 bits -> 4 x 16
  int32_t in[16][4], out[4][16];
  memcpy(in, v, sizeof in);
  for (int i = 0; i < 4; i++) for (int l = 0; l < 16; l++) out[i][l] = in[l][i];
  memcpy(v, out, sizeof out);
}
INLINE void v_turn32(Vec v[4]) { // 4 x 4 lanes of 32 bits in each 16 bytes, turned around
  int32_t in[4][4][4], out[4][4][4];
  memcpy(in, v, sizeof in);
  for (int k = 0; k < 4; k++) for (int s = 0; s < 4; s++) for (int i = 0; i < 4; i++) out[i][s][k] = in[k][s][i];
  memcpy(v, out, sizeof out);
}
#endif
#ifndef PICKS
INLINE Vec v_pick32(const int32_t *table, Vec index) { // of 32 lanes, those that the lowest 5 bits of the indices name
  int32_t w[16] __attribute__((aligned(64)));
  v_store(w, index);
  for (int i = 0; i < 16; i++) w[i] = table[w[i] & 31];
  return v_load(w);
}
#endif
INLINE Vec v_of_floats(VecF a) { Vec b; memcpy(&b, &a, sizeof b); return b; } // the same bits
INLINE VecF f_of_bits(Vec a) { VecF b; memcpy(&b, &a, sizeof b); return b; }

// F(1) F(2) ... for all numbers of vectors that a kernel holds at once, and a list of names.
#if WIDEST == 8
#define EACH_WIDTH(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
#define WIDTHS(A, B) A##1##B, A##2##B, A##3##B, A##4##B, A##5##B, A##6##B, A##7##B, A##8##B
#elif WIDEST == 4
#define EACH_WIDTH(F) F(1) F(2) F(3) F(4)
#define WIDTHS(A, B) A##1##B, A##2##B, A##3##B, A##4##B
#else
#define EACH_WIDTH(F) F(1) F(2)
#define WIDTHS(A, B) A##1##B, A##2##B
#endif

// Bytes of 16: four pixels of four channels <-> four channels of four pixels. It is its own inverse.
static const uint8_t turn4x4[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};

#endif
