// Runs a plan that test_variants.py wrote to a file, so that kernels for another processor run without Python.
#include <stdio.h>
#include <stdlib.h>
#include "steps.h"

typedef struct Pool Pool;
void run(const Region *regions, int count, const Step *steps, uint8_t *const *buffers, Pool *pool);

int main(int count, char **names) {
  FILE *in = count > 2 ? fopen(names[1], "rb") : 0;
  int64_t head[6]; // bytes, pointers, regions, buffers, first byte and bytes of the output
  if (!in || fread(head, 8, 6, in) != 6) return 1;
  uint8_t *memory = aligned_alloc(4096, (size_t)(head[0] + 4095) / 4096 * 4096);
  int64_t *at = malloc(8 * (size_t)(head[1] + 1));
  if (fread(memory, 1, (size_t)head[0], in) != (size_t)head[0]) return 2;
  if (fread(at, 8, (size_t)head[1], in) != (size_t)head[1]) return 3;
  for (int64_t i = 0; i < head[1]; i++) { // pointers were written as offsets
    uint8_t **p = (uint8_t **)(memory + at[i]);
    *p = memory + (int64_t)*p;
  }
  int64_t *places = (int64_t *)memory; // of regions, steps, buffers
  run((const Region *)(memory + places[0]), (int)head[2], (const Step *)(memory + places[1]),
      (uint8_t *const *)(memory + places[2]), 0);
  FILE *out = fopen(names[2], "wb");
  return fwrite(memory + head[4], 1, (size_t)head[5], out) != (size_t)head[5] || fclose(out);
}
