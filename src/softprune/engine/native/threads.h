// A small pool of threads. It belongs to one engine, and one run at a time uses it.
#ifndef SOFTPRUNE_THREADS_H
#define SOFTPRUNE_THREADS_H
#include <stdatomic.h>

typedef struct { atomic_int arrived, turn; int threads; } Barrier;
typedef struct Pool Pool;
typedef void Work(void *data, int thread, int threads, Barrier *barrier);

void wait_for_all(Barrier *barrier);
Pool *pool_new(int threads);
void pool_run(Pool *pool, Work *work, void *data);
void pool_free(Pool *pool);
#endif
