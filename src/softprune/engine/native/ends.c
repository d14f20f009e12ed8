// Where values come in and go out: arrays of floats in the user's order <-> panels.
#include "steps.h"

INLINE const int32_t *lanes_of(const Step *s, const Job *j, int panel) {
  return (j->group == j->groups - 1 ? s->last : s->indices) + (size_t)panel * s->width * 16;
}

// q = round(clamp(x · real[0], real[1], real[2])) + fill; what is no number becomes the smallest.
typedef struct { VecF scale, low, high; Vec zero; } Quantizer;
INLINE Quantizer quantizer_of(const Step *s) {
  Quantizer q = {f_set(s->real[0]), f_set(s->real[1]), f_set(s->real[2]), v_set32(s->fill)};
  return q;
}
INLINE Vec quantized(const Quantizer *q, VecF x) {
  return v_add32(v_round(f_min(f_max(f_mul(x, q->scale), q->low), q->high)), q->zero);
}

// The pixels of every lane follow one another: 4 vectors are 16 times 4 pixels, turned around.
static void input_lines(const float *x, const Step *s, const int32_t *lanes, int c, int channels, int count, uint8_t *y) {
  const Quantizer quantizer = quantizer_of(s);
  for (int p = 0; p < count; p += 4) {
    const int first = p + 4 > count ? count - 4 : p;
    Vec v[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    for (int i = 0; i < channels; i++) {
      const float *from = x + s->channel * (4 * c + i) + first;
      UNROLL for (int k = 0; k < 4; k++) {
        const int32_t *l = lanes + 4 * k;
        VecF f = f_load4(from + l[0], from + l[1], from + l[2], from + l[3]);
        v[k] = v_or(v[k], v_sll32(quantized(&quantizer, f), 8 * i));
      }
    }
    v_transpose4(v);
    UNROLL for (int k = 0; k < 4; k++) v_store(y + BYTES * (first + k), v[k]);
  }
}

// width: vectors of a panel; images: channels; table: for each panel whether the pixels of its lanes follow one another.
void input8(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const float *x = (const float *)at(&s->x, j, 0) + s->image * j->group;
  const int32_t *lanes = lanes_of(s, j, panel);
  const Quantizer quantizer = quantizer_of(s);
  const int count = s->counts[panel];
  for (int c = 0; c < s->inputs; c++) {
    uint8_t *y = at(&s->y, j, panel) + (size_t)c * s->y.vectors * BYTES;
    const int channels = s->images - 4 * c < 4 ? s->images - 4 * c : 4;
    if (s->table[panel]) {
      input_lines(x, s, lanes, c, channels, count, y);
      continue;
    }
    for (int p = 0; p < count; p++) {
      Vec v = v_zero();
      for (int i = 0; i < channels; i++) {
        VecF f = f_gather(x + s->channel * (4 * c + i), lanes + 16 * p);
        v = v_or(v, v_sll32(quantized(&quantizer, f), 8 * i));
      }
      v_store(y + BYTES * p, v);
    }
  }
}

// y = (q - fill) · real[0]; lanes that are no pixel have index -1.
void output8(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel);
  float *y = (float *)at(&s->y, j, 0) + s->image * j->group;
  const int32_t *lanes = lanes_of(s, j, panel);
  for (int c = 0; c < s->images; c++)
    for (int p = 0; p < s->counts[panel]; p++)
      for (int l = 0; l < 16; l++) {
        const int32_t to = lanes[16 * p + l];
        const int q = x[((size_t)(c / 4) * s->x.vectors + p) * BYTES + 4 * l + c % 4];
        if (to >= 0) y[to + s->channel * c] = (float)(q - s->fill) * s->real[0];
      }
}

// Floats that are in panels already.
void output32(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel);
  float *y = (float *)at(&s->y, j, 0) + s->image * j->group;
  const int32_t *lanes = lanes_of(s, j, panel);
  for (int c = 0; c < s->images; c++)
    for (int p = 0; p < s->counts[panel]; p++) {
      const float *from = (const float *)(x + ((size_t)c * s->x.vectors + p) * BYTES);
      for (int l = 0; l < 16; l++)
        if (lanes[16 * p + l] >= 0) y[lanes[16 * p + l] + s->channel * c] = from[l];
    }
}
