// A plan is regions; a region is steps that run for one group of images after the other, so that what they hand on stays
// in the cache; a chain is steps that hand on panel by panel. Threads share groups, or the panels (and parts) of a chain.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <time.h>
#include "steps.h"
#include "threads.h"

static Kernel *const kernels[KINDS] = {
    sparse8, depthwise8, maxpool8, globalmean8, add8, multiply8, table8, input8, output8,
    sparse16, maxpool16, globalmean16, add16, input16, output16,
    sparse32, maxpool32, globalmean32, act32, input32, output32,
    few8, bytes32, floats8, norm32, attention32,
};

const char *variant(void) { return VARIANT; }
int widest(void) { return WIDEST; }
int step_size(void) { return sizeof(Step); }

static void chain(const Step *s, const Job *j, int first, int last) {
  for (int item = first; item < last; item++)
    for (int i = 0; i <= s->chain; i++) kernels[s[i].kind](s + i, j, item / s->parts, item % s->parts);
}

static void region(const Region *r, const Step *steps, uint8_t *const *buffers, int thread, int threads, Barrier *barrier) {
  const int own = r->by_group ? threads : 1;
  for (int g = r->by_group ? thread : 0; g < r->groups; g += own) {
    const Job j = {buffers, g, thread, r->groups};
    for (int i = r->first; i < r->last; i += 1 + steps[i].chain) {
      const int64_t items = (int64_t)steps[i].panels * steps[i].parts;
      if (r->by_group || threads == 1) {
        chain(steps + i, &j, 0, (int)items);
      } else {
        chain(steps + i, &j, (int)(items * thread / threads), (int)(items * (thread + 1) / threads));
        wait_for_all(barrier);
      }
    }
  }
  if (r->by_group && threads > 1) wait_for_all(barrier);
}

typedef struct { const Region *regions; int count; const Step *steps; uint8_t *const *buffers; } Plan;

static void share(void *plan, int thread, int threads, Barrier *barrier) {
  const Plan *p = plan;
  for (int i = 0; i < p->count; i++) region(p->regions + i, p->steps, p->buffers, thread, threads, barrier);
}

// pool: what pool_new gave, or 0 for this thread alone.
void run(const Region *regions, int count, const Step *steps, uint8_t *const *buffers, Pool *pool) {
  Plan plan = {regions, count, steps, buffers};
  if (pool) pool_run(pool, share, &plan);
  else share(&plan, 0, 1, 0);
}

// Large pages, where the system gives them: values and weights are read all over.
void prefer_large_pages(void *p, size_t size) {
#ifdef MADV_HUGEPAGE
  madvise(p, size, MADV_HUGEPAGE);
#else
  (void)p, (void)size;
#endif
}

// CPU time: other programs on the machine would lengthen wall time.
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The least time of each of the steps (a chain's at its first step) on one thread, and of several runs.
void time_steps(const Region *regions, int count, const Step *steps, uint8_t *const *buffers, int runs, double *least) {
  for (int k = 0; k < runs; k++) {
    for (const Region *r = regions; r < regions + count; r++) {
      for (int i = r->first; i < r->last; i++) if (k == 0) least[i] = 1e9;
      for (int i = r->first; i < r->last; i += 1 + steps[i].chain) {
        double t = now();
        for (int g = 0; g < r->groups; g++) {
          const Job j = {buffers, g, 0, r->groups};
          chain(steps + i, &j, 0, steps[i].panels * steps[i].parts);
        }
        t = now() - t;
        if (t < least[i]) least[i] = t;
      }
    }
  }
}
