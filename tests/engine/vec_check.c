// Prints one number for every function of vec.h, over extreme and random vectors: the same in every variant.
#include <stdio.h>
#include "vec.h"

static uint64_t state = 88172645463325252ull;
static uint32_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (uint32_t)(state >> 16);
}

static Vec any(int round) { // bytes at random, or extremes of 8, 16 and 32 bits
  static const uint32_t extreme[] = {0, 0xffffffff, 0x80808080, 0x7f7f7f7f, 0x80008000, 0x7fff7fff, 0x80000000, 0x7fffffff};
  _Alignas(64) uint32_t w[16];
  for (int i = 0; i < 16; i++) w[i] = round % 3 ? next() : extreme[next() % 8];
  return v_load(w);
}
static VecF any_float(int round) {
  static const float extreme[] = {0.0f, -0.5f, 0.5f, 1.5f, 2.5f, -300.25f, 300.75f, 1000000.0f};
  _Alignas(64) float f[16];
  for (int i = 0; i < 16; i++) f[i] = round % 3 ? (float)(int32_t)next() / 65536.0f : extreme[next() % 8];
  return f_load(f);
}
static uint64_t mix(uint64_t h, const void *p, size_t n) {
  for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211ull;
  return h;
}

#define ROUNDS 300
#define CHECK(NAME, EXPRESSION)                                                                                          \
  {                                                                                                                      \
    uint64_t h = 14695981039346656037ull;                                                                                \
    state = 88172645463325252ull;                                                                                        \
    for (int k = 0; k < ROUNDS; k++) {                                                                                   \
      Vec x = any(k), y = any(k + 1), z = any(k + 2);                                                                    \
      VecF f = any_float(k), g = any_float(k + 1);                                                                       \
      uint32_t n = next();                                                                                               \
      (void)x, (void)y, (void)z, (void)f, (void)g, (void)n;                                                              \
      __typeof__(EXPRESSION) r = EXPRESSION;                                                                             \
      h = mix(h, &r, sizeof r);                                                                                          \
    }                                                                                                                    \
    printf("%s %016llx\n", NAME, (unsigned long long)h);                                                                 \
  }

static Vec indices(Vec x, int most, int bytes) {
  uint8_t b[64];
  memcpy(b, &x, 64);
  for (int i = 0; i < 64; i += bytes) {
    b[i] &= (uint8_t)(most - 1);
    for (int j = 1; j < bytes; j++) b[i + j] = 0;
  }
  memcpy(&x, b, 64);
  return x;
}
static Vec shuffled(Vec x, Vec y) { // 0..15, or 128
  uint8_t b[64];
  memcpy(b, &y, 64);
  for (int i = 0; i < 64; i++) b[i] = b[i] & 128 ? 128 : b[i] & 15;
  memcpy(&y, b, 64);
  return v_shuffle8(x, y);
}
static Vec looked_up(Vec x) {
  uint8_t table[256];
  for (int i = 0; i < 256; i++) table[i] = (uint8_t)(i * 7 + 3);
  return v_lookup8(table, x);
}
static Vec transposed(Vec x, Vec y, Vec z) {
  Vec v[4] = {x, y, z, v_add16(x, z)};
  v_transpose4(v);
  return v_sub16(v_add32(v[0], v_sll16(v[1], 3)), v_add16(v[2], v_sll32(v[3], 5)));
}
static Vec turned(Vec x, Vec y, Vec z) {
  Vec v[4] = {x, y, z, v_add16(x, z)};
  v_turn32(v);
  return v_sub16(v_add32(v[0], v_sll16(v[1], 3)), v_add16(v[2], v_sll32(v[3], 5)));
}
static Vec picked(Vec x, Vec y, Vec index) {
  _Alignas(64) int32_t table[32];
  v_store(table, x);
  v_store(table + 16, y);
  return v_pick32(table, index);
}
static Vec q15(Vec x) { return v_max16(x, v_set16(-32767)); } // a factor that is never -32768
static VecF small(VecF f) { return f_min(f_max(f, f_set(-30000.0f)), f_set(30000.0f)); }

int main(void) {
  float floats[64];
  for (int i = 0; i < 64; i++) floats[i] = (float)i * 1.25f;
  CHECK("dot", v_dot(x, y, z))
  CHECK("add32", v_add32(x, y))
  CHECK("or", v_or(x, y))
  CHECK("sra32", v_sra32(x, (int)(n & 31)))
  CHECK("sll32", v_sll32(x, (int)(n & 31)))
  CHECK("srl32", v_srl32(x, (int)(n & 31)))
  CHECK("packs32", v_packs32(x, y))
  CHECK("unpacklo16", v_unpacklo16(x, y))
  CHECK("unpackhi16", v_unpackhi16(x, y))
  CHECK("add16", v_add16(x, y))
  CHECK("adds16", v_adds16(x, y))
  CHECK("sub16", v_sub16(x, y))
  CHECK("sll16", v_sll16(x, (int)(n & 15)))
  CHECK("mulhrs16", v_mulhrs16(x, q15(y)))
  CHECK("mulhi_u16", v_mulhi_u16(x, y))
  CHECK("max16", v_max16(x, y))
  CHECK("min16", v_min16(x, y))
  CHECK("packus16", v_packus16(x, y))
  CHECK("max8", v_max8(x, y))
  CHECK("min8", v_min8(x, y))
  CHECK("unpacklo8", v_unpacklo8(x, y))
  CHECK("unpackhi8", v_unpackhi8(x, y))
  CHECK("shuffle8", shuffled(x, y))
  CHECK("lookup8", looked_up(x))
  CHECK("permute32", v_permute32(x, n, indices(y, 16, 4), z))
  CHECK("permute16", v_permute16(x, n, indices(y, 32, 2), z))
  CHECK("mask32", v_mask32(n, x))
  CHECK("transpose4", transposed(x, y, z))
  CHECK("turn32", turned(x, y, z))
  CHECK("pick32", picked(x, y, z))
  CHECK("bits", v_of_floats(f_of_bits(v_of_floats(f))))
  CHECK("set", v_add16(v_add16(v_set8((uint8_t)n), v_set16((int16_t)n)), v_add16(v_set32((int32_t)n), v_set128(turn4x4))))
  CHECK("float add", f_add(f, g))
  CHECK("float mul", f_mul(f, g))
  CHECK("float div", f_div(f, f_max(g, f_set(0.25f))))
  CHECK("float max", f_max(f, g))
  CHECK("float min", f_min(f, g))
  CHECK("float of32", f_of32(x))
  CHECK("round", v_round(small(f)))
  CHECK("load4", f_load4(floats + (n & 31), floats + 3, floats + (n >> 5 & 31), floats + 7))
  return 0;
}
