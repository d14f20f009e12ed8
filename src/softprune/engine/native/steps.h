// What Python hands over: a flat array of steps. All of it is read only while a plan runs; whatever a run writes lies in
// the buffers that the caller gives, so that several runs may go on at once.
//
// A value lies in panels: [group][panel][channel group][vector][lane]. A lane is one pixel: 4 channels of u8, one channel
// of s16 or one of fp32. A panel is what a kernel holds in registers: up to MOST vectors. A group is one image or several.
#ifndef SOFTPRUNE_STEPS_H
#define SOFTPRUNE_STEPS_H
#include "vec.h"

#define MOST 8
#define AHEAD 512 // words of entries: weights are read once, and the processor fetches too few of them by itself

typedef struct { // bytes; all strides may be 0
  int64_t offset, group, panel, thread;
  int32_t buffer, vectors; // vectors of a panel: of one channel group, the next one lies vectors · 64 bytes further
} Place;

typedef struct { // one vector of a packed panel, or a part of it
  int32_t to;    // which vector
  int32_t mode;  // see below
  int64_t from;  // bytes from the panel's base
  uint32_t mask; // lanes that are taken
  int32_t index; // which 64 bytes of indices
} Move;
enum { FILL, COPY, PERMUTE, PERMUTE_MORE };

typedef struct { int64_t base; int32_t first, last; } Window; // of a panel: where it reads, its moves

typedef struct { int64_t entry, length; int32_t first, last; } Part; // rows of a layer, for one slice: where their entries begin

typedef struct {
  int32_t kind, panels, parts, chain; // chain: how many of the steps that follow run with this one, panel by panel
  int32_t inputs, outputs;            // channel groups; of a sparse layer rows, a multiple of 4
  int32_t packed;                     // vectors of a packed channel group, 0: the panel is read where it lies
  int32_t fill;                       // what a padded lane holds
  int32_t taps, images, width, paired;
  int32_t slices, steps;              // slices of the input channels, each with its own rows; sums wait in y meanwhile; see few8.c
  int32_t residual, low, high, other; // fixed-point factors, clamp; there is a residual where r has vectors
  Place x, y, r, scratch;
  const uint8_t *counts;      // vectors of each panel
  const Window *windows;      // of each panel
  const Move *moves;
  const int32_t *indices;     // of moves; of ends: the element of every lane
  const int32_t *last;        // of ends: the same for the last group
  const Part *rows;
  const uint32_t *lengths, *entries;
  const int32_t *bias, *shift, *tap;
  const int16_t *multiplier;  // each four times, as packed rows want it
  const float *real;
  const uint8_t *table;
  int64_t image, channel;     // of ends: elements from one group of images, one channel to the next
  uint8_t walk[MOST + 1][MOST + 1]; // how a panel of so many vectors is cut into pieces, ended by 0
} Step;
enum { // in the order of native.py
  SPARSE8, DEPTHWISE8, MAXPOOL8, GLOBALMEAN8, ADD8, MULTIPLY8, TABLE8, INPUT8, OUTPUT8,
  SPARSE16, MAXPOOL16, GLOBALMEAN16, ADD16, INPUT16, OUTPUT16,
  SPARSE32, MAXPOOL32, GLOBALMEAN32, ADD32, INPUT32, OUTPUT32,
  FEW8, BYTES32, FLOATS8, NORM32, ATTENTION32, KINDS
};

typedef struct { // steps first..last run for each of the groups; by_group: threads share groups, else panels
  int32_t first, last, groups, by_group;
} Region;

typedef struct { uint8_t *const *buffers; int32_t group, thread, groups; } Job;

typedef void Kernel(const Step *, const Job *, int panel, int part);
Kernel sparse8, depthwise8, maxpool8, globalmean8, add8, multiply8, table8, input8, output8;
Kernel sparse16, maxpool16, globalmean16, add16, input16, output16;
Kernel sparse32, maxpool32, globalmean32, act32, input32, output32;
Kernel few8, bytes32, floats8, norm32, attention32;

INLINE uint8_t *at(const Place *p, const Job *j, int panel) {
  return j->buffers[p->buffer] + p->offset + p->group * j->group + p->thread * j->thread + p->panel * panel;
}
#endif
