// From sums to bytes. A row is one output channel; four rows make the four bytes of a lane.
#ifndef SOFTPRUNE_REQUANTIZE_H
#define SOFTPRUNE_REQUANTIZE_H
#include "steps.h"

// Two rows of sums -> one vector of 16 bits (in each 16 bytes 4 pixels of the first row, then 4 of the second).
INLINE Vec requantized(const Step *s, int row, Vec a, Vec b) {
  return v_mulhrs16(v_packs32(v_sra32(a, s->shift[row]), v_sra32(b, s->shift[row + 1])), v_set128(s->multiplier + 4 * row));
}

// The 16 bits of two channels of a value times a factor in 1/65536, shifted up by 8: (q · factor) >> 8.
// A shuffle puts every byte above a zero, in the order of packed rows.
static const uint8_t above_low[16] = {128, 0, 128, 4, 128, 8, 128, 12, 128, 1, 128, 5, 128, 9, 128, 13};
static const uint8_t above_high[16] = {128, 2, 128, 6, 128, 10, 128, 14, 128, 3, 128, 7, 128, 11, 128, 15};
INLINE void scaled(Vec q, Vec factor, Vec *low, Vec *high) {
  *low = v_mulhi_u16(v_shuffle8(q, v_set128(above_low)), factor);
  *high = v_mulhi_u16(v_shuffle8(q, v_set128(above_high)), factor);
}

// What happens to all rows of a step. It is copied, because stores through pointers to bytes could change the step.
typedef struct { Vec turn, low, high, factor; const uint8_t *table; int clamps; } Finish;
INLINE Finish finish_of(const Step *s) {
  Finish f = {v_set128(turn4x4), v_set8((uint8_t)s->low), v_set8((uint8_t)s->high), v_set16((int16_t)s->residual), s->table,
              s->low > 0 || s->high < 255};
  return f;
}

// 4 rows of 16 bits -> 16 pixels of 4 bytes, after the clamp and the table.
INLINE Vec bytes(const Finish *f, Vec low, Vec high) {
  Vec q = v_shuffle8(v_packus16(low, high), f->turn);
  if (f->clamps) q = v_min8(v_max8(q, f->low), f->high);
  return f->table ? v_lookup8(f->table, q) : q;
}

// The same with a residual, whose sum has 4 fractional bits.
INLINE Vec bytes_with(const Finish *f, Vec low, Vec high, Vec residual) {
  Vec r[2], sixteenth = v_set16(1 << 11);
  scaled(residual, f->factor, r, r + 1);
  return bytes(f, v_mulhrs16(v_adds16(low, r[0]), sixteenth), v_mulhrs16(v_adds16(high, r[1]), sixteenth));
}
#endif
