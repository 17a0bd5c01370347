/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * SIGBUS in a guarded mapping: its pages are replaced by private ones, and the
 * instruction runs again. Every other SIGBUS goes where it went before, to QEMU's
 * handler of memory failures.
 *
 * A SIGBUS that a thread causes while it blocks the signal ends the process.
 * QEMU's threads do not block it (the patch threads-take-sigbus). The main thread
 * does, and reads it from a descriptor, since the handler of memory failures does
 * more than a signal handler may: so here it is taken, and a signal that is not of a
 * guarded mapping is put back for that descriptor.
 */
#include "qemu/osdep.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include "qemu/atomic.h"
#include "shaper-guard.h"

/* A handler may be looking at one at any time: they are never freed, but used again. */
struct ShaperGuard {
    ShaperGuard *next;
    uintptr_t start;            /* 0: not in use */
    size_t bytes;
    bool lost;
};

static ShaperGuard *guards;
static struct sigaction before;

static ShaperGuard *guard_of(uintptr_t at)
{
    ShaperGuard *guard;

    for (guard = qatomic_load_acquire(&guards); guard; guard = guard->next) {
        uintptr_t start = qatomic_load_acquire(&guard->start);

        if (start && at - start < guard->bytes) {
            return guard;
        }
    }
    return NULL;
}

/* The second thread runs into the hole again until the first has filled it. */
static bool fill_hole(ShaperGuard *guard)
{
    return qatomic_xchg(&guard->lost, true)
           || mmap((void *)guard->start, guard->bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0)
              != MAP_FAILED;
}

/* Until the descriptor is read the main thread blocks the signal, as it did without us. */
static bool leave_to_descriptor(int number, siginfo_t *info, ucontext_t *context)
{
    pid_t pid = getpid();

    if (!context || info->si_code != BUS_MCEERR_AO
        || syscall(SYS_gettid) != pid) {
        return false;
    }
    sigaddset(&context->uc_sigmask, number);
    return syscall(SYS_rt_tgsigqueueinfo, pid, pid, number, info) == 0;
}

static void unblock(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGBUS);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    int saved_errno = errno;
    ShaperGuard *guard = info->si_code == BUS_ADRERR
                         ? guard_of((uintptr_t)info->si_addr) : NULL;
    bool done = (guard && fill_hole(guard))
                || leave_to_descriptor(number, info, context);

    errno = saved_errno;
    if (done) {
        return;
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
        if (!context) {
            /* The main thread has read it from the descriptor. */
            unblock();
        }
    } else {
        /* The instruction, or the sender, brings it again. */
        sigaction(number, &before, NULL);
        if (info->si_code <= 0) {
            raise(number);
        }
    }
}

void shaper_guard_arm(void)
{
    struct sigaction action = { .sa_flags = SA_SIGINFO,
                                .sa_sigaction = on_sigbus };
    struct sigaction found;

    sigaction(SIGBUS, NULL, &found);
    if (!(found.sa_flags & SA_SIGINFO) || found.sa_sigaction != on_sigbus) {
        before = found;
        sigaction(SIGBUS, &action, NULL);
    }
    unblock();
}

static ShaperGuard *unused_guard(void)
{
    ShaperGuard *guard;

    for (guard = guards; guard; guard = guard->next) {
        if (!guard->start) {
            return guard;
        }
    }
    guard = g_new0(ShaperGuard, 1);
    guard->next = guards;
    qatomic_store_release(&guards, guard);
    return guard;
}

ShaperGuard *shaper_guard_new(void *memory, size_t bytes)
{
    ShaperGuard *guard = unused_guard();

    guard->bytes = bytes;
    guard->lost = false;
    qatomic_store_release(&guard->start, (uintptr_t)memory);
    shaper_guard_arm();
    return guard;
}

void shaper_guard_free(ShaperGuard *guard)
{
    qatomic_store_release(&guard->start, 0);
}

bool shaper_guard_is_lost(const ShaperGuard *guard)
{
    return qatomic_read(&guard->lost);
}
