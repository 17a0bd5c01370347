/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A lock for the path of every request, between the threads of a process. Nearly always
 * it is free: then taking it is one atomic instruction, in line, and so is releasing
 * it. A thread that finds it taken sleeps in the kernel. None spins: on a full host the
 * owner may not be running. Not fair, not recursive, and 4 bytes.
 *
 * States: free, taken, and taken while another may sleep (U. Drepper, "Futexes Are
 * Tricky", 2011, the second mutex).
 */
#ifndef SLUICE_LOCK_H
#define SLUICE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SLUICE_LOCK_FREE,           /* a lock of zeroes is free */
    SLUICE_LOCK_TAKEN,
    SLUICE_LOCK_AWAITED,
};

typedef struct SluiceLock {
    _Atomic uint32_t state;
} SluiceLock;

/* lock.c: another thread has it, or waits for it. */
void sluice_lock_wait(SluiceLock *lock);
void sluice_lock_wake(SluiceLock *lock);

static inline void sluice_lock(SluiceLock *lock)
{
    uint32_t was = SLUICE_LOCK_FREE;

    if (__builtin_expect(!atomic_compare_exchange_strong_explicit(
            &lock->state, &was, SLUICE_LOCK_TAKEN, memory_order_acquire,
            memory_order_relaxed), 0)) {
        sluice_lock_wait(lock);
    }
}

/* False, at once, if another has it. */
static inline bool sluice_trylock(SluiceLock *lock)
{
    uint32_t was = SLUICE_LOCK_FREE;

    return atomic_compare_exchange_strong_explicit(
        &lock->state, &was, SLUICE_LOCK_TAKEN, memory_order_acquire,
        memory_order_relaxed);
}

static inline void sluice_unlock(SluiceLock *lock)
{
    if (__builtin_expect(atomic_exchange_explicit(
            &lock->state, SLUICE_LOCK_FREE, memory_order_release)
            == SLUICE_LOCK_AWAITED, 0)) {
        sluice_lock_wake(lock);
    }
}

/* Guards: the lock is released where the scope is left, however that is. */
static inline SluiceLock *sluice_lock_enter(SluiceLock *lock)
{
    sluice_lock(lock);
    return lock;
}

static inline void sluice_lock_leave(SluiceLock **lock)
{
    if (*lock) {
        sluice_unlock(*lock);
    }
}

#define SLUICE_LOCK_NAME__(line)    sluice_lock_guard_##line
#define SLUICE_LOCK_NAME_(line)     SLUICE_LOCK_NAME__(line)

/* SLUICE_LOCK_GUARD(&lock); to the end of the scope */
#define SLUICE_LOCK_GUARD(lock)                                         \
    __attribute__((cleanup(sluice_lock_leave), unused)) SluiceLock *    \
    SLUICE_LOCK_NAME_(__LINE__) = sluice_lock_enter(lock)

#define WITH_SLUICE_LOCK_(lock, guard)                                  \
    for (__attribute__((cleanup(sluice_lock_leave))) SluiceLock *guard  \
             = sluice_lock_enter(lock);                                 \
         guard; sluice_unlock(guard), guard = NULL)

/* WITH_SLUICE_LOCK(&lock) { ... }; `break` leaves it, too */
#define WITH_SLUICE_LOCK(lock)                                          \
    WITH_SLUICE_LOCK_(lock, SLUICE_LOCK_NAME_(__LINE__))

#endif
