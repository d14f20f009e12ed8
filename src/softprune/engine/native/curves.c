// Activations in fp32, to 2e-7 of max(1, |x|).
#include "curves.h"

INLINE VecF sigmoid(VecF x) { return f_div(f_set(1), f_add(f_set(1), f_exp(f_mul(x, f_set(-1))))); }

// x Φ(x) = max(x, 0) - |x| Φ(-|x|), and Φ(-u) = exp(-u² / 2) · p(t) with t = 1 / (1 + 0.3275911 u / √2): 7.1.26 in
// Abramowitz and Stegun, half of it.
INLINE VecF gelu(VecF x) {
  const VecF u = f_max(x, f_mul(x, f_set(-1)));
  const VecF t = f_div(f_set(1), f_fma(u, f_set(0.231641888f), f_set(1)));
  VecF p = f_fma(t, f_set(0.5307027145f), f_set(-0.7265760135f));
  p = f_fma(p, t, f_set(0.7107068705f));
  p = f_fma(p, t, f_set(-0.142248368f));
  p = f_mul(f_fma(p, t, f_set(0.127414796f)), t);
  const VecF tail = f_mul(p, f_exp(f_mul(f_mul(u, u), f_set(-0.5f))));
  return f_fma(f_mul(u, f_set(-1)), tail, f_max(x, f_set(0)));
}
INLINE VecF gelu_tanh(VecF x) { // tanh(z) = 2 sigmoid(2 z) - 1
  const VecF cube = f_mul(f_mul(x, x), x);
  return f_mul(x, sigmoid(f_mul(f_fma(cube, f_set(0.044715f), x), f_set(1.5957691216f))));
}
INLINE VecF silu(VecF x) { return f_mul(x, sigmoid(x)); }
INLINE VecF hardsigmoid(VecF x) {
  return f_mul(f_min(f_max(f_add(x, f_set(3)), f_set(0)), f_set(6)), f_set(0.16666667f));
}
INLINE VecF hardswish(VecF x) { return f_mul(x, hardsigmoid(x)); }
INLINE VecF tangent(VecF x) { return f_fma(sigmoid(f_mul(x, f_set(2))), f_set(2), f_set(-1)); }

void bend(int curve, uint8_t *y, int vectors) {
#define BEND(F) for (uint8_t *end = y + BYTES * vectors; y < end; y += BYTES) f_store(y, F(f_load(y)));
  switch (curve) {
    case GELU: BEND(gelu) break;
    case GELU_TANH: BEND(gelu_tanh) break;
    case SILU: BEND(silu) break;
    case HARDSWISH: BEND(hardswish) break;
    case HARDSIGMOID: BEND(hardsigmoid) break;
    case SIGMOID: BEND(sigmoid) break;
    case TANH: BEND(tangent) break;
    default: break;
  }
}
