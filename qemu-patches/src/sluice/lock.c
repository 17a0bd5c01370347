/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The slow path of a lock that another thread has; the rest is in line, in sluice/lock.h.
 *
 * A thread that waits marks the lock AWAITED before it sleeps, and takes it as such: it
 * cannot know whether others sleep, too. At worst the owner makes one wake in vain. The
 * kernel lets no thread sleep that finds the lock no longer AWAITED, so no wake is
 * missed.
 */
#include <errno.h>
#include <stddef.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sluice/lock.h"

void sluice_lock_wait(SluiceLock *lock)
{
    int before = errno;         /* as a mutex leaves it to its callers */

    while (atomic_exchange_explicit(&lock->state, SLUICE_LOCK_AWAITED,
                                    memory_order_acquire)
           != SLUICE_LOCK_FREE) {
        /* A signal ends it early, as a change of the state does: both mean, look. */
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE,
                SLUICE_LOCK_AWAITED, NULL);
    }
    errno = before;
}

void sluice_lock_wake(SluiceLock *lock)
{
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1);
}
