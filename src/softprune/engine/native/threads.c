#define _GNU_SOURCE
#include "threads.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#define SPINS 2000 // then a waiting thread lets others run
#define AWAKE 1000 // pauses, some tens of microseconds, for which a thread looks out for work before it sleeps
#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("isb")
#else
#define PAUSE() sched_yield()
#endif

struct Pool {
  pthread_mutex_t lock;
  pthread_cond_t start, end;
  Barrier barrier;
  Work *work;
  void *data;
  atomic_long round; // how many runs were begun
  atomic_int busy;
  int threads, stop;
  pthread_t ids[];
};
typedef struct { Pool *pool; int thread; } Seat;

void wait_for_all(Barrier *b) {
  const int turn = atomic_load_explicit(&b->turn, memory_order_acquire);
  if (atomic_fetch_add_explicit(&b->arrived, 1, memory_order_acq_rel) == b->threads - 1) {
    atomic_store_explicit(&b->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&b->turn, turn + 1, memory_order_release);
    return;
  }
  for (int spin = 0; atomic_load_explicit(&b->turn, memory_order_acquire) == turn; spin++)
    if (spin > SPINS) sched_yield();
}

static void *sit(void *argument) {
  Seat seat = *(Seat *)argument;
  Pool *pool = seat.pool;
  free(argument);
  long done = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (pool->round == done && !pool->stop) pthread_cond_wait(&pool->start, &pool->lock);
    if (pool->stop) break;
    done = pool->round;
    pthread_mutex_unlock(&pool->lock);
    pool->work(pool->data, seat.thread, pool->threads, &pool->barrier);
    pthread_mutex_lock(&pool->lock);
    if (--pool->busy == 0) pthread_cond_signal(&pool->end);
    pthread_mutex_unlock(&pool->lock);
    for (int spin = 0; spin < AWAKE && pool->round == done; spin++) PAUSE();
    pthread_mutex_lock(&pool->lock);
  }
  pthread_mutex_unlock(&pool->lock);
  return 0;
}

// 0 where the system gives no threads. The caller's thread is the first of them.
Pool *pool_new(int threads) {
  Pool *pool = calloc(1, sizeof(Pool) + sizeof(pthread_t) * (size_t)threads);
  if (!pool) return 0;
  pthread_mutex_init(&pool->lock, 0);
  pthread_cond_init(&pool->start, 0);
  pthread_cond_init(&pool->end, 0);
  pool->threads = 1;
  for (int i = 1; i < threads; i++) {
    Seat *seat = malloc(sizeof(Seat));
    if (seat) *seat = (Seat){pool, i};
    if (!seat || pthread_create(pool->ids + i, 0, sit, seat)) {
      free(seat);
      pool_free(pool);
      return 0;
    }
    pool->threads++;
  }
  pool->barrier.threads = pool->threads;
  return pool;
}

void pool_run(Pool *pool, Work *work, void *data) {
  pthread_mutex_lock(&pool->lock);
  pool->work = work;
  pool->data = data;
  pool->busy = pool->threads - 1;
  pool->round++;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  work(data, 0, pool->threads, &pool->barrier);
  for (int spin = 0; spin < AWAKE && pool->busy; spin++) PAUSE();
  pthread_mutex_lock(&pool->lock);
  while (pool->busy) pthread_cond_wait(&pool->end, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

void pool_free(Pool *pool) {
  pthread_mutex_lock(&pool->lock);
  pool->stop = 1;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 1; i < pool->threads; i++) pthread_join(pool->ids[i], 0);
  pthread_cond_destroy(&pool->start);
  pthread_cond_destroy(&pool->end);
  pthread_mutex_destroy(&pool->lock);
  free(pool);
}
