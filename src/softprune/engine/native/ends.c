// Where values come in and go out: arrays of floats in the user's order <-> panels.
#include "lanes.h"

// q = round(clamp(x · real[0], real[1], real[2])) + fill; what is no number becomes the smallest.
typedef struct { VecF scale, low, high; Vec zero; } Quantizer;
INLINE Quantizer quantizer_of(const Step *s) {
  Quantizer q = {f_set(s->real[0]), f_set(s->real[1]), f_set(s->real[2]), v_set32(s->fill)};
  return q;
}
INLINE Vec quantized(const Quantizer *q, VecF x) {
  return v_add32(v_round(f_min(f_max(f_mul(x, q->scale), q->low), q->high)), q->zero);
}

// The channels of a lane follow one another, as those of a token do: 4 of them make its bytes.
static void input_tokens(const float *x, const Step *s, const int32_t *lanes, int count, uint8_t *y) {
  const Quantizer quantizer = quantizer_of(s);
  for (int p = 0; p < count; p++, lanes += 16, y += BYTES) {
    Vec v[4];
    UNROLL for (int k = 0; k < 4; k++)
      v[k] = quantized(&quantizer, f_load4(x + lanes[k], x + lanes[4 + k], x + lanes[8 + k], x + lanes[12 + k]));
    v_store(y, v_packus16(v_packs32(v[0], v[1]), v_packs32(v[2], v[3])));
  }
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
  const int32_t *lanes = lanes_of(s, j, panel, 16);
  const Quantizer quantizer = quantizer_of(s);
  const int count = s->counts[panel];
  for (int c = 0; c < s->inputs; c++) {
    uint8_t *y = at(&s->y, j, panel) + (size_t)c * s->y.vectors * BYTES;
    const int channels = s->images - 4 * c < 4 ? s->images - 4 * c : 4;
    if (s->channel == 1 && channels == 4) {
      input_tokens(x + 4 * c, s, lanes, count, y);
      continue;
    }
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
  const int32_t *lanes = lanes_of(s, j, panel, 16);
  for (int c = 0; c < s->images; c += 4, x += (size_t)s->x.vectors * BYTES) {
    const int channels = s->images - c < 4 ? s->images - c : 4;
    for (int l = 0; l < 16 * s->counts[panel]; l++) {
      if (lanes[l] < 0) continue;
      float *to = y + lanes[l] + s->channel * c;
      for (int i = 0; i < channels; i++) to[s->channel * i] = (float)(x[4 * l + i] - s->fill) * s->real[0];
    }
  }
}

// Floats that are in panels already.
void output32(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel);
  float *y = (float *)at(&s->y, j, 0) + s->image * j->group;
  const int32_t *lanes = lanes_of(s, j, panel, 16);
  const size_t step = (size_t)s->x.vectors * BYTES;
  int c = 0;
  for (; s->channel == 1 && c + 4 <= s->images; c += 4) // of tokens, 4 channels at once
    for (int p = 0; p < s->counts[panel]; p++) {
      Vec v[4];
      UNROLL for (int k = 0; k < 4; k++) v[k] = v_load(x + (c + k) * step + BYTES * p);
      write_tokens(v, lanes + 16 * p, y + c);
    }
  for (; c < s->images; c++)
    for (int p = 0; p < s->counts[panel]; p++) {
      const float *from = (const float *)(x + c * step + BYTES * p);
      for (int l = 0; l < 16; l++)
        if (lanes[16 * p + l] >= 0) y[lanes[16 * p + l] + s->channel * c] = from[l];
    }
}

// From floats in panels to bytes in panels, and back: y = (q - fill) · real[0].
void bytes32(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel);
  uint8_t *y = at(&s->y, j, panel);
  const size_t step = (size_t)s->x.vectors * BYTES;
  const Quantizer quantizer = quantizer_of(s);
  for (int c = 0; c < s->inputs; c++, x += 4 * step, y += (size_t)s->y.vectors * BYTES)
    for (int p = 0; p < s->counts[panel]; p++) {
      Vec v = v_zero();
      UNROLL for (int i = 0; i < 4; i++) v = v_or(v, v_sll32(quantized(&quantizer, f_load(x + i * step + BYTES * p)), 8 * i));
      v_store(y + BYTES * p, v);
    }
}

void floats8(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel);
  uint8_t *y = at(&s->y, j, panel);
  const size_t step = (size_t)s->y.vectors * BYTES;
  const Vec zero = v_set32(-s->fill);
  const VecF scale = f_set(s->real[0]);
  for (int c = 0; c < s->inputs; c++, x += (size_t)s->x.vectors * BYTES, y += 4 * step)
    UNROLL for (int i = 0; i < 4; i++) {
      const uint8_t k = (uint8_t)i, index[16] = {k,     128, 128, 128, k + 4,  128, 128, 128,
                                                 k + 8, 128, 128, 128, k + 12, 128, 128, 128};
      const Vec alone = v_set128(index);
      for (int p = 0; p < s->counts[panel]; p++) {
        Vec v = v_add32(v_shuffle8(v_load(x + BYTES * p), alone), zero);
        f_store(y + i * step + BYTES * p, f_mul(f_of32(v), scale));
      }
    }
}
