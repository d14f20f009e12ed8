// What works byte by byte: sums, products, tables.
#include "pack.h"
#include "requantize.h"

// y = clamp((x·factor + r·factor + constant) / 16): residual is the factor of r, other that of x, fill the constant.
void add8(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel), *r = at(&s->r, j, panel);
  uint8_t *y = at(&s->y, j, panel);
  const Finish f = finish_of(s);
  const Vec factor = v_set16((int16_t)s->other), constant = v_set16((int16_t)s->fill);
  const Vec factor_r = v_set16((int16_t)s->residual), sixteenth = v_set16(1 << 11);
  for (int c = 0; c < s->inputs; c++) {
    const size_t step = (size_t)c * s->y.vectors * BYTES;
    for (int p = 0; p < s->counts[panel]; p++) {
      Vec a, b, a2, b2;
      scaled(v_load(x + step + BYTES * p), factor, &a, &b);
      scaled(v_load(r + step + BYTES * p), factor_r, &a2, &b2);
      a = v_mulhrs16(v_adds16(v_adds16(a, a2), constant), sixteenth);
      b = v_mulhrs16(v_adds16(v_adds16(b, b2), constant), sixteenth);
      v_store(y + step + BYTES * p, bytes(&f, a, b));
    }
  }
}

INLINE Vec product(Vec x, Vec r, Vec zero_x, Vec zero_r, const Step *s) {
  Vec p = v_mulhrs16(v_sll16(v_sub16(x, zero_x), 7), v_sll16(v_sub16(r, zero_r), 7));
  p = v_mulhrs16(p, v_set16((int16_t)s->residual));
  return v_mulhrs16(v_adds16(p, v_set16((int16_t)s->other)), v_set16((int16_t)s->width));
}

// The second value is a gate that is packed (one vector for each channel group), or of the same shape. It is the step's
// x, since packing reads x; the first one is r. images and taps are the zero points of x and r; residual and width the
// factors, other the constant.
void multiply8(const Step *s, const Job *j, int panel, int part) {
  size_t stride;
  const Vec none = v_zero(), zero_x = v_set16((int16_t)s->images), zero_r = v_set16((int16_t)s->taps);
  const uint8_t *r = at(&s->r, j, panel);
  uint8_t *y = at(&s->y, j, panel);
  const uint8_t *x = panel_of(s, j, panel, part, 4, &stride);
  for (int c = 0; c < s->inputs; c++) {
    const size_t step = (size_t)c * s->y.vectors * BYTES;
    for (int p = 0; p < s->counts[panel]; p++) {
      Vec q = v_load(x + stride * c + (s->packed ? 0 : BYTES * p)), t = v_load(r + step + BYTES * p);
      Vec a = product(v_unpacklo8(q, none), v_unpacklo8(t, none), zero_x, zero_r, s);
      Vec b = product(v_unpackhi8(q, none), v_unpackhi8(t, none), zero_x, zero_r, s);
      v_store(y + step + BYTES * p, v_packus16(a, b));
    }
  }
}

// y = table[x], into the channels of y from `other` on. Where these do not begin a lane, byte by byte.
void table8(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel);
  uint8_t *y = at(&s->y, j, panel);
  const size_t step = (size_t)s->y.vectors * BYTES;
  const int count = s->counts[panel];
  if (s->other % 4 == 0) {
    y += s->other / 4 * step;
    for (int c = 0; c < s->inputs; c++)
      for (int p = 0; p < count; p++) v_store(y + c * step + BYTES * p, v_lookup8(s->table, v_load(x + c * step + BYTES * p)));
    return;
  }
  for (int c = 0; c < s->width; c++) {
    const uint8_t *from = x + c / 4 * step + c % 4;
    uint8_t *to = y + (s->other + c) / 4 * step + (s->other + c) % 4;
    for (int i = 0; i < 16 * count; i++) to[4 * i] = s->table[from[4 * i]];
  }
}
