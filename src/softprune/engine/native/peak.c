// How many entries times vectors a second this machine could do at best: one load and what int8, int16 or fp32 do with it.
#define _GNU_SOURCE
#include <time.h>
#include "vec.h"

#define SUMS 8
#define TIMES 20000

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static __attribute__((noinline)) void work8(const uint8_t *x, uint8_t *y) {
  Vec a[SUMS], w = v_load(x);
  UNROLL for (int i = 0; i < SUMS; i++) a[i] = v_zero();
  for (int k = 0; k < TIMES; k++) { UNROLL for (int i = 0; i < SUMS; i++) a[i] = v_dot(a[i], v_load(x + BYTES * i), w); }
  UNROLL for (int i = 0; i < SUMS; i++) v_store(y + BYTES * i, a[i]);
}
static __attribute__((noinline)) void work16(const uint8_t *x, uint8_t *y) {
  Vec a[SUMS], w = v_load(x);
  UNROLL for (int i = 0; i < SUMS; i++) a[i] = v_zero();
  for (int k = 0; k < TIMES; k++) {
    UNROLL for (int i = 0; i < SUMS; i++) a[i] = v_add16(a[i], v_mulhrs16(v_load(x + BYTES * i), w));
    __asm__ volatile("" ::: "memory"); // the products are the same every time: they must not be kept
  }
  UNROLL for (int i = 0; i < SUMS; i++) v_store(y + BYTES * i, a[i]);
}
static __attribute__((noinline)) void work32(const uint8_t *x, uint8_t *y) {
  VecF a[SUMS], w = f_load(x);
  UNROLL for (int i = 0; i < SUMS; i++) a[i] = f_set(0);
  for (int k = 0; k < TIMES; k++) {
    UNROLL for (int i = 0; i < SUMS; i++) a[i] = f_fma(f_load(x + BYTES * i), w, a[i]);
    __asm__ volatile("" ::: "memory");
  }
  UNROLL for (int i = 0; i < SUMS; i++) f_store(y + BYTES * i, a[i]);
}

double peak(int bits) {
  uint8_t x[SUMS * BYTES] __attribute__((aligned(64))) = {0}, y[SUMS * BYTES] __attribute__((aligned(64)));
  double least = 1e9;
  for (int k = 0; k < 20; k++) {
    double t = now();
    (bits == 8 ? work8 : bits == 16 ? work16 : work32)(x, y);
    t = now() - t;
    if (t < least) least = t;
  }
  return (double)SUMS * TIMES / least;
}
