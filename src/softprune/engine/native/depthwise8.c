// Depthwise convolution in int8, and so the mean of a window, whose weights are 1. Taps are taken four at a time: their
// bytes are interleaved so that a lane holds 4 taps of one channel, which is what a dot product wants.
#include "pack.h"
#include "requantize.h"

// entries: for each channel group and each four taps, 4 channels of 4 weights. tap: their vectors in the packed panel.
void depthwise8(const Step *s, const Job *j, int panel, int part) {
  size_t stride;
  (void)part;
  const uint8_t *x = panel_of(s, j, panel, 0, 4, &stride);
  uint8_t *y = at(&s->y, j, panel);
  const uint8_t *r = s->r.vectors ? at(&s->r, j, panel) : 0;
  const uint32_t *e = s->entries;
  const Finish f = finish_of(s);
  const Vec turn = f.turn;
  for (int c = 0; c < s->inputs; c++, x += stride, y += (size_t)s->y.vectors * BYTES, e += s->taps) {
    for (int p = 0; p < s->counts[panel]; p++) {
      Vec a[4];
      UNROLL for (int i = 0; i < 4; i++) a[i] = v_set32(s->bias[4 * c + i]);
      for (int t = 0; t < s->taps; t += 4) {
        Vec q[4];
        UNROLL for (int i = 0; i < 4; i++) q[i] = v_load(x + BYTES * (s->tap[t + i] + p));
        // Lanes of 16 bytes hold 4 pixels; after these they hold the 4 taps of one channel of 4 pixels, channel by channel.
        Vec u = v_shuffle8(q[0], turn), v = v_shuffle8(q[1], turn), w = v_shuffle8(q[2], turn), z = v_shuffle8(q[3], turn);
        Vec uv = v_unpacklo8(u, v), wz = v_unpacklo8(w, z), uv2 = v_unpackhi8(u, v), wz2 = v_unpackhi8(w, z);
        a[0] = v_dot(a[0], v_unpacklo16(uv, wz), v_set32((int32_t)e[t]));
        a[1] = v_dot(a[1], v_unpackhi16(uv, wz), v_set32((int32_t)e[t + 1]));
        a[2] = v_dot(a[2], v_unpacklo16(uv2, wz2), v_set32((int32_t)e[t + 2]));
        a[3] = v_dot(a[3], v_unpackhi16(uv2, wz2), v_set32((int32_t)e[t + 3]));
      }
      const Vec low = requantized(s, 4 * c, a[0], a[1]), high = requantized(s, 4 * c + 2, a[2], a[3]);
      const size_t there = (size_t)c * s->r.vectors * BYTES + BYTES * p;
      v_store(y + BYTES * p, r ? bytes_with(&f, low, high, v_load(r + there)) : bytes(&f, low, high));
    }
  }
}
