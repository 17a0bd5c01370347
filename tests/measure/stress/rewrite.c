/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Rewrites a few blocks of a disk without end, and knows what each must hold.
 *
 *     rewrite FILE OFFSET_BYTES WRITERS
 *
 * Each writer is a thread with BLOCKS blocks of its own and one request at a
 * time. It visits them in turn: reads the block, compares it with what it wrote
 * there last, and writes the next sequence number. So a block is compared and
 * written anew every 2 * BLOCKS requests, and what happens to it in between
 * shows:
 *
 *   - a write that was answered but lost leaves an older sequence number;
 *   - one that is done once more, or late, after a newer one was answered, puts
 *     an older number over it, seen unless that is within the one request
 *     between comparing and writing;
 *   - one to a wrong place leaves another block's number there;
 *   - one that is never answered keeps its writer from ending.
 *
 * Done twice before the next write to its block, a write leaves no trace in the
 * data; who counts the requests of the device sees it.
 *
 * O_DIRECT, so that nothing is answered from the guest's memory. It ends at
 * SIGINT, after each block was compared once more: one line of JSON, exit 0. At
 * the first difference it ends with a line that says what, exit 1.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096, BLOCKS = 4, WRITERS_MAX = 64 };

/* A block is filled with copies of this; `run` tells it from what lay there. */
typedef struct {
    uint64_t run;
    uint64_t block;
    uint64_t sequence;
    uint64_t copy;
} Stamp;

enum { COPIES = BLOCK_BYTES / sizeof(Stamp) };

typedef struct {
    pthread_t thread;
    uint64_t first_block;
    uint64_t sequence[BLOCKS];      /* what each block holds */
    Stamp *buffer;
    uint64_t writes;
    uint64_t reads;
    uint64_t longest_ns;
} Writer;

static int file;
static off_t offset_bytes;
static uint64_t run;
static atomic_bool stop;

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * UINT64_C(1000000000) + now.tv_nsec;
}

static void transfer(Writer *writer, uint64_t block, bool write)
{
    off_t at = offset_bytes + (off_t)block * BLOCK_BYTES;
    uint64_t begun_ns = now_ns(), ns;
    ssize_t done = write ? pwrite(file, writer->buffer, BLOCK_BYTES, at)
                         : pread(file, writer->buffer, BLOCK_BYTES, at);

    if (done != BLOCK_BYTES) {
        printf("block %" PRIu64 ": %s of %zd bytes: %s\n", block,
               write ? "write" : "read", done, strerror(done < 0 ? errno : EIO));
        exit(1);
    }
    ns = now_ns() - begun_ns;
    if (ns > writer->longest_ns) {
        writer->longest_ns = ns;
    }
    *(write ? &writer->writes : &writer->reads) += 1;
}

static void write_next(Writer *writer, int index)
{
    uint64_t block = writer->first_block + index;

    writer->sequence[index]++;
    for (unsigned i = 0; i < COPIES; i++) {
        writer->buffer[i] = (Stamp){ run, block, writer->sequence[index], i };
    }
    transfer(writer, block, true);
}

static void compare(Writer *writer, int index)
{
    uint64_t block = writer->first_block + index;

    transfer(writer, block, false);
    for (unsigned i = 0; i < COPIES; i++) {
        const Stamp *found = &writer->buffer[i];

        if (found->run != run || found->block != block || found->copy != i
            || found->sequence != writer->sequence[index]) {
            printf("block %" PRIu64 ", byte %zu: holds write %" PRIu64
                   " of block %" PRIu64 "%s, wanted write %" PRIu64 "\n",
                   block, i * sizeof(Stamp), found->sequence, found->block,
                   found->run == run ? "" : " of another run",
                   writer->sequence[index]);
            exit(1);
        }
    }
}

static void *rewrite(void *opaque)
{
    Writer *writer = opaque;

    for (int i = 0; i < BLOCKS; i++) {
        write_next(writer, i);
    }
    while (!stop) {
        for (int i = 0; i < BLOCKS; i++) {
            compare(writer, i);
            write_next(writer, i);
        }
    }
    for (int i = 0; i < BLOCKS; i++) {
        compare(writer, i);
    }
    return NULL;
}

static void die(const char *what)
{
    fprintf(stderr, "rewrite: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void start(Writer *writer, int number)
{
    writer->first_block = (uint64_t)number * BLOCKS;
    errno = posix_memalign((void **)&writer->buffer, BLOCK_BYTES, BLOCK_BYTES);
    if (errno) {
        die("memory");
    }
    errno = pthread_create(&writer->thread, NULL, rewrite, writer);
    if (errno) {
        die("thread");
    }
}

int main(int argc, char **argv)
{
    static Writer writers[WRITERS_MAX];
    int count = argc == 4 ? atoi(argv[3]) : 0, signal_number;
    uint64_t writes = 0, reads = 0, longest_ns = 0;
    sigset_t ends;

    if (count < 1 || count > WRITERS_MAX) {
        fprintf(stderr, "usage: rewrite FILE OFFSET_BYTES WRITERS (1 to %d)\n", WRITERS_MAX);
        return 2;
    }
    file = open(argv[1], O_RDWR | O_DIRECT);
    if (file < 0) {
        die(argv[1]);
    }
    offset_bytes = atoll(argv[2]);
    run = now_ns() ^ ((uint64_t)getpid() << 40);
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    /* Inherited by the writers: only the wait below takes it. */
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    for (int i = 0; i < count; i++) {
        start(&writers[i], i);
    }
    sigwait(&ends, &signal_number);
    stop = true;
    for (int i = 0; i < count; i++) {
        pthread_join(writers[i].thread, NULL);
        writes += writers[i].writes;
        reads += writers[i].reads;
        if (writers[i].longest_ns > longest_ns) {
            longest_ns = writers[i].longest_ns;
        }
    }
    printf("{\"writes\": %" PRIu64 ", \"reads\": %" PRIu64 ", \"longest_ms\": %.3f}\n",
           writes, reads, longest_ns / 1e6);
    return 0;
}
