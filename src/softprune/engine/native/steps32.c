// Everything in fp32 but sparse layers and the way out. A lane is one channel of one pixel.
#include "curves.h"
#include "lanes.h"
#include "pools.h"

MAXPOOL(maxpool32, 4, VecF, f_load, f_store, f_max)

void globalmean32(const Step *s, const Job *j, int share, int part) {
  (void)part;
  for (int c = first_of(s, share); c < first_of(s, share + 1); c++) {
    float sums[16] __attribute__((aligned(64)));
    VecF a = f_set(0);
    const uint32_t *mask = s->lengths;
    for (int b = 0; b < s->other; b++) {
      const uint8_t *x = at(&s->x, j, b) + (size_t)c * s->x.vectors * BYTES;
      for (int p = 0; p < s->x.vectors; p++, mask++) {
        if (!*mask) continue;
        Vec q = v_mask32(*mask, v_load(x + BYTES * p)); // of bits: what is no pixel may be no number
        VecF f;
        memcpy(&f, &q, sizeof f);
        a = f_add(a, f);
      }
    }
    f_store(sums, a);
    for (int n = 0; n < s->images; n++) {
      float sum = 0;
      for (int l = 0; l < s->width; l++) sum += sums[n * s->width + l];
      *(float *)mean_of(s, j, c, n, 4) = sum * s->real[0];
    }
  }
}

// y = act(x [+ r]): a clamp to real[0], real[1], and the curve `other`. inputs: vectors of a pixel.
void act32(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const uint8_t *x = at(&s->x, j, panel), *r = s->r.vectors ? at(&s->r, j, panel) : 0;
  uint8_t *y = at(&s->y, j, panel);
  const VecF low = f_set(s->real[0]), high = f_set(s->real[1]);
  for (int c = 0; c < s->inputs; c++) {
    const size_t there = (size_t)c * s->y.vectors * BYTES;
    for (int p = 0; p < s->counts[panel]; p++) {
      VecF f = f_load(x + there + BYTES * p);
      if (r) f = f_add(f, f_load(r + there + BYTES * p));
      f_store(y + there + BYTES * p, f_min(f_max(f, low), high));
    }
    bend(s->other, y + there, s->counts[panel]);
  }
}

void input32(const Step *s, const Job *j, int panel, int part) {
  (void)part;
  const float *x = (const float *)at(&s->x, j, 0) + s->image * j->group;
  uint8_t *y = at(&s->y, j, panel);
  const int32_t *lanes = lanes_of(s, j, panel, 16);
  const size_t step = (size_t)s->y.vectors * BYTES;
  int c = 0;
  for (; s->channel == 1 && c + 4 <= s->images; c += 4) // of tokens, 4 channels at once
    for (int p = 0; p < s->counts[panel]; p++) {
      Vec v[4];
      read_tokens(x + c, lanes + 16 * p, v);
      UNROLL for (int k = 0; k < 4; k++) v_store(y + (c + k) * step + BYTES * p, v[k]);
    }
  for (; c < s->images; c++)
    for (int p = 0; p < s->counts[panel]; p++)
      f_store(y + c * step + BYTES * p, f_gather(x + s->channel * c, lanes + 16 * p));
}
