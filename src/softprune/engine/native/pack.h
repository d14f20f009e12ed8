// Packing: for k x k windows, strides, paddings, the vectors that an output panel reads are laid side by side, one channel
// group after the other. A program says where each comes from; it is the same for all channel groups and for most panels.
#ifndef SOFTPRUNE_PACK_H
#define SOFTPRUNE_PACK_H
#include "steps.h"

#define SOURCES 8 // of one vector, that are put together in a register

// A vector from N sources, in all channel groups. first: lanes that no source has are filled, else they stay.
#define PERMUTED(NAME, PERMUTE_LANES)                                                                                     \
  INLINE void NAME(const int N, const int first, const Step *s, const Move *m, const uint8_t *x, uint8_t *d, Vec fill) {  \
    const size_t from = (size_t)s->x.vectors * BYTES, to = (size_t)s->packed * BYTES;                                     \
    const int inputs = s->inputs;                                                                                         \
    Vec index[SOURCES];                                                                                                   \
    uint32_t mask[SOURCES];                                                                                               \
    const uint8_t *source[SOURCES];                                                                                       \
    UNROLL for (int i = 0; i < N; i++) {                                                                                  \
      index[i] = v_load_any(s->indices + 16 * m[i].index);                                                                \
      mask[i] = m[i].mask;                                                                                                \
      source[i] = x + m[i].from;                                                                                          \
    }                                                                                                                     \
    for (int c = 0; c < inputs; c++, d += to) {                                                                           \
      Vec v = first ? fill : v_load(d);                                                                                   \
      UNROLL for (int i = 0; i < N; i++) v = PERMUTE_LANES(v, mask[i], index[i], v_load(source[i] + from * c));           \
      v_store(d, v);                                                                                                      \
    }                                                                                                                     \
  }
PERMUTED(permuted32, v_permute32)
PERMUTED(permuted16, v_permute16)

#define PACK(NAME, PUT)                                                                                                   \
  static __attribute__((unused)) void NAME(const Step *s, const uint8_t *x, int panel, uint8_t *packed, Vec fill) {                               \
    const Window *w = s->windows + panel;                                                                                 \
    const size_t from = (size_t)s->x.vectors * BYTES, to = (size_t)s->packed * BYTES;                                     \
    x += w->base;                                                                                                         \
    for (const Move *m = s->moves + w->first, *end = s->moves + w->last; m < end;) {                                      \
      uint8_t *d = packed + (size_t)m->to * BYTES;                                                                        \
      int n = 1;                                                                                                          \
      if (m->mode == FILL) {                                                                                              \
        for (int c = 0; c < s->inputs; c++) v_store(d + to * c, fill);                                                    \
      } else if (m->mode == COPY) {                                                                                       \
        for (int c = 0; c < s->inputs; c++) v_store(d + to * c, v_load(x + m->from + from * c));                          \
      } else if (m->mode == PERMUTE) {                                                                                    \
        while (n < SOURCES && m + n < end && m[n].mode == PERMUTE_MORE) n++;                                              \
        switch (n) {                                                                                                      \
        case 1: PUT(1, 1, s, m, x, d, fill); break;                                                                       \
        case 2: PUT(2, 1, s, m, x, d, fill); break;                                                                       \
        case 3: PUT(3, 1, s, m, x, d, fill); break;                                                                       \
        case 4: PUT(4, 1, s, m, x, d, fill); break;                                                                       \
        case 5: PUT(5, 1, s, m, x, d, fill); break;                                                                       \
        case 6: PUT(6, 1, s, m, x, d, fill); break;                                                                       \
        case 7: PUT(7, 1, s, m, x, d, fill); break;                                                                       \
        default: PUT(SOURCES, 1, s, m, x, d, fill);                                                                       \
        }                                                                                                                 \
      } else {                                                                                                            \
        PUT(1, 0, s, m, x, d, fill);                                                                                      \
      }                                                                                                                   \
      m += n;                                                                                                             \
    }                                                                                                                     \
  }
PACK(pack32, permuted32)
PACK(pack16, permuted16)

// The panel that a kernel reads, and the bytes from one of its channel groups to the next.
INLINE const uint8_t *panel_of(const Step *s, const Job *j, int panel, int part, int lane, size_t *stride) {
  const uint8_t *x = at(&s->x, j, s->packed ? 0 : panel);
  *stride = (size_t)s->x.vectors * BYTES;
  if (!s->packed) return x;
  uint8_t *packed = at(&s->scratch, j, part);
  if (lane == 2) pack16(s, x, panel, packed, v_set16((int16_t)s->fill));
  else pack32(s, x, panel, packed, v_set32(s->fill));
  *stride = (size_t)s->packed * BYTES;
  return packed;
}
#endif
