// What pools of all kinds of values share.
#ifndef SOFTPRUNE_POOLS_H
#define SOFTPRUNE_POOLS_H
#include "pack.h"

// The largest of each window. LANE: bytes of a lane; the step's fill is the least number there is.
#define MAXPOOL(NAME, LANE, TYPE, LOAD, STORE, MAX)                                                                     \
  void NAME(const Step *s, const Job *j, int panel, int part) {                                                         \
    size_t stride;                                                                                                      \
    (void)part;                                                                                                         \
    const uint8_t *x = panel_of(s, j, panel, 0, LANE, &stride);                                                         \
    uint8_t *y = at(&s->y, j, panel);                                                                                   \
    for (int c = 0; c < s->inputs; c++, x += stride, y += (size_t)s->y.vectors * BYTES) {                               \
      for (int p = 0; p < s->counts[panel]; p++) {                                                                      \
        TYPE q = LOAD(x + BYTES * (s->tap[0] + p));                                                                     \
        for (int t = 1; t < s->taps; t++) q = MAX(q, LOAD(x + BYTES * (s->tap[t] + p)));                                \
        STORE(y + BYTES * p, q);                                                                                        \
      }                                                                                                                 \
    }                                                                                                                   \
  }

// The mean of all pixels. Here a "panel" is one of `panels` shares of the channel groups; `other` panels of x; lane masks
// of its vectors in `lengths`; `width` lanes for each of `images` images; `taps` images to a group of y, which are `fill`
// lanes apart.
INLINE int first_of(const Step *s, int share) { return (int)((int64_t)s->inputs * share / s->panels); }

// The lane of an image in y, of so many bytes.
INLINE uint8_t *mean_of(const Step *s, const Job *j, int c, int n, int lane) {
  const int image = j->group * s->images + n;
  Job there = *j;
  there.group = image / s->taps;
  return at(&s->y, &there, 0) + (size_t)c * s->y.vectors * BYTES + (size_t)lane * (image % s->taps) * s->fill;
}
#endif
