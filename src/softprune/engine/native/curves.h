// Functions of one number that are not made of straight lines, 16 numbers at once.
#ifndef SOFTPRUNE_CURVES_H
#define SOFTPRUNE_CURVES_H
#include "vec.h"

INLINE VecF f_exp(VecF x) { // to 1e-7 of it; what is beyond 87 counts as 87
  x = f_min(f_max(x, f_set(-87.0f)), f_set(87.0f));
  const Vec n = v_round(f_mul(x, f_set(1.44269504f)));
  VecF r = f_fma(f_of32(n), f_set(-0.693359375f), x);
  r = f_fma(f_of32(n), f_set(2.12194440e-4f), r);
  VecF y = f_fma(f_set(1.9875691500e-4f), r, f_set(1.3981999507e-3f));
  y = f_fma(y, r, f_set(8.3334519073e-3f));
  y = f_fma(y, r, f_set(4.1665795894e-2f));
  y = f_fma(y, r, f_set(1.6666665459e-1f));
  y = f_fma(y, r, f_set(5.0000001201e-1f));
  y = f_add(f_fma(f_mul(r, r), y, r), f_set(1));
  return f_of_bits(v_add32(v_of_floats(y), v_sll32(n, 23)));
}

// y = curve(y), for vectors of 16. NO_CURVE is the identity.
enum { NO_CURVE, GELU, GELU_TANH, SILU, HARDSWISH, HARDSIGMOID, SIGMOID, TANH };
void bend(int curve, uint8_t *y, int vectors);

#endif
