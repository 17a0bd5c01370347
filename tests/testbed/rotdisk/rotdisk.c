// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * nbdkit plugin: raw images on one modelled rotating disk.
 *
 *   nbdkit -U SOCKET rotdisk.so image=NAME:FILE [image=NAME:FILE …]
 *          [stats=FILE] [CONSTANT=VALUE …]
 *
 * Each image is an export. They lie on the platter with equal distances, in
 * the order of the command line, as volumes of one disk would. Reads return
 * the files' bytes at the time at which the model (model.c) says the disk
 * would have delivered them. Read-only.
 *
 * `nbdkit rotdisk.so --dump-plugin` prints the constants.
 *
 * stats= names a file of counters that other processes may map while the
 * server runs: see struct stats. Every field is a little-endian 64-bit word,
 * each written atomically on its own. One goes the other way: who writes
 * media_bps gives the drive another speed from its next request on.
 */
#define _GNU_SOURCE
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define MAX_EXPORTS 16
#define NAME_BYTES 32
#define STATS_MAGIC "ROTDISK1"

struct export_stats {
    char name[NAME_BYTES];
    _Atomic uint64_t requests;
    _Atomic uint64_t bytes;
    _Atomic uint64_t seeks;
    _Atomic uint64_t busy_ns;          /* service, positioning included */
    _Atomic uint64_t positioning_ns;
    _Atomic uint64_t latency_ns;       /* from arrival to completion, summed */
    _Atomic uint64_t latency_max_ns;
    uint64_t reserved;
};

struct stats {
    char magic[8];
    uint64_t exports;
    struct export_stats export[MAX_EXPORTS];
    _Atomic uint64_t media_bps;        /* written by others; 0 is no speed, and left out */
};

struct export {
    char *name;
    char *path;
    int fd;
    uint64_t bytes;
    uint64_t base;                     /* where it begins on the platter */
    struct export_stats *stats;
};

/* A request and the thread that waits for it. */
struct waiter {
    struct rotdisk_request request;    /* first: the model hands this back */
    struct export *export;
    pthread_cond_t done_cond;
    bool done;
};

static struct rotdisk_params params;
static struct rotdisk_model model;
static struct export exports[MAX_EXPORTS];
static size_t export_count;
static char *stats_path;
static struct stats *stats;

/* Guards model, every waiter's done, and stopping. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrival;
static pthread_t arm_thread;
static bool arm_started, stopping;

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec) { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

static void init_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* The arm: one thread that lives through the model's time */

static void account(const struct waiter *w)
{
    const struct rotdisk_request *r = &w->request;
    struct export_stats *s = w->export->stats;
    uint64_t latency = r->done_ns - r->arrived_ns;

    atomic_fetch_add(&s->requests, 1);
    atomic_fetch_add(&s->bytes, r->bytes);
    atomic_fetch_add(&s->seeks, r->seeked);
    atomic_fetch_add(&s->busy_ns, r->done_ns - r->started_ns);
    atomic_fetch_add(&s->positioning_ns, r->positioning_ns);
    atomic_fetch_add(&s->latency_ns, latency);
    if (latency > s->latency_max_ns) {
        s->latency_max_ns = latency;
    }
}

static void take_speed(void)
{
    uint64_t media_bps = atomic_load(&stats->media_bps);

    if (media_bps) {
        model.params.media_bps = media_bps;
    }
}

static void *arm(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!stopping) {
        struct waiter *w = (struct waiter *)rotdisk_complete(&model, now_ns());
        struct timespec until;
        uint64_t until_ns;

        if (w) {
            account(w);
            w->done = true;
            pthread_cond_signal(&w->done_cond);
            continue;
        }
        take_speed();
        switch (rotdisk_decide(&model, now_ns(), &until_ns)) {
        case ROTDISK_EMPTY:
            pthread_cond_wait(&arrival, &lock);
            break;
        case ROTDISK_BUSY:
            pthread_mutex_unlock(&lock);
            until = timespec_of(until_ns);
            while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
            }
            pthread_mutex_lock(&lock);
            break;
        case ROTDISK_IDLING:
            until = timespec_of(until_ns);
            pthread_cond_timedwait(&arrival, &lock, &until);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void submit(struct waiter *w)
{
    pthread_mutex_lock(&lock);
    w->request.arrived_ns = now_ns();
    rotdisk_submit(&model, &w->request);
    pthread_cond_signal(&arrival);
    pthread_mutex_unlock(&lock);
}

static void wait_until_done(struct waiter *w)
{
    pthread_mutex_lock(&lock);
    while (!w->done) {
        pthread_cond_wait(&w->done_cond, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* Configuration */

static void rotdisk_load(void)
{
    params = rotdisk_defaults();
}

static int add_image(const char *value)
{
    const char *colon = strchr(value, ':');
    struct export *e = &exports[export_count];

    if (!colon || colon == value || !colon[1]) {
        nbdkit_error("image=%s: write image=NAME:FILE", value);
        return -1;
    }
    if (colon - value >= NAME_BYTES) {
        nbdkit_error("image=%s: the name may have at most %d characters", value, NAME_BYTES - 1);
        return -1;
    }
    if (export_count == MAX_EXPORTS) {
        nbdkit_error("image=%s: at most %d images", value, MAX_EXPORTS);
        return -1;
    }
    e->name = strndup(value, colon - value);
    e->path = nbdkit_absolute_path(colon + 1);
    if (!e->name || !e->path) {
        return -1;
    }
    e->fd = -1;
    export_count++;
    return 0;
}

static int rotdisk_config(const char *key, const char *value)
{
    uint64_t number;

    if (strcmp(key, "image") == 0) {
        return add_image(value);
    }
    if (strcmp(key, "stats") == 0) {
        free(stats_path);
        stats_path = nbdkit_absolute_path(value);
        return stats_path ? 0 : -1;
    }
    if (nbdkit_parse_uint64_t(key, value, &number) < 0) {
        return -1;
    }
    if (!rotdisk_set(&params, key, number)) {
        nbdkit_error("%s=%s: no such constant, or zero; see --dump-plugin", key, value);
        return -1;
    }
    return 0;
}

static int rotdisk_config_complete(void)
{
    if (export_count == 0) {
        nbdkit_error("no image: write image=NAME:FILE at least once");
        return -1;
    }
    return 0;
}

static void rotdisk_dump_plugin(void)
{
    struct rotdisk_constant table[16];
    size_t rows = rotdisk_constants(&params, table);

    for (size_t i = 0; i < rows; i++) {
        printf("%s=%" PRIu64 " # %s\n", table[i].name, table[i].value, table[i].why);
    }
}

/* Start and end */

static int open_images(void)
{
    for (size_t i = 0; i < export_count; i++) {
        struct export *e = &exports[i];
        uint64_t share = params.capacity_bytes / export_count;
        struct stat st;
        off_t end;

        e->fd = open(e->path, O_RDONLY | O_CLOEXEC);
        if (e->fd < 0 || fstat(e->fd, &st) < 0) {
            nbdkit_error("image %s: %s: %m", e->name, e->path);
            return -1;
        }
        if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
            nbdkit_error("image %s: %s is neither a regular file nor a block device", e->name,
                         e->path);
            return -1;
        }
        /* A block device has no st_size. */
        end = lseek(e->fd, 0, SEEK_END);
        if (end < 0) {
            nbdkit_error("image %s: %s: %m", e->name, e->path);
            return -1;
        }
        e->bytes = end;
        e->base = share * i;
        if (e->bytes == 0 || e->bytes > share) {
            nbdkit_error("image %s: %s has %" PRIu64 " bytes; its share of the platter is %" PRIu64
                         " (raise capacity_bytes)", e->name, e->path, e->bytes, share);
            return -1;
        }
    }
    return 0;
}

/* The counters, in a shared file if one was asked for. */
static int map_stats(void)
{
    int fd = -1, flags = MAP_PRIVATE | MAP_ANONYMOUS;

    if (stats_path) {
        fd = open(stats_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (fd < 0 || ftruncate(fd, sizeof(*stats)) < 0) {
            nbdkit_error("stats=%s: %m", stats_path);
            return -1;
        }
        flags = MAP_SHARED;
    }
    stats = mmap(NULL, sizeof(*stats), PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    if (stats == MAP_FAILED) {
        nbdkit_error("cannot map the counters: %m");
        return -1;
    }
    for (size_t i = 0; i < export_count; i++) {
        exports[i].stats = &stats->export[i];
        snprintf(stats->export[i].name, NAME_BYTES, "%s", exports[i].name);
    }
    stats->exports = export_count;
    stats->media_bps = params.media_bps;
    atomic_thread_fence(memory_order_release);
    memcpy(stats->magic, STATS_MAGIC, sizeof(stats->magic));
    return 0;
}

static int rotdisk_get_ready(void)
{
    rotdisk_init(&model, &params);
    init_cond(&arrival);
    return open_images() < 0 || map_stats() < 0 ? -1 : 0;
}

/* Threads do not survive the fork to the background: start after it. */
static int rotdisk_after_fork(void)
{
    int error = pthread_create(&arm_thread, NULL, arm, NULL);

    if (error) {
        nbdkit_error("cannot start the arm's thread: %s", strerror(error));
        return -1;
    }
    arm_started = true;
    return 0;
}

static void rotdisk_cleanup(void)
{
    if (!arm_started) {
        return;
    }
    pthread_mutex_lock(&lock);
    stopping = true;
    pthread_cond_signal(&arrival);
    pthread_mutex_unlock(&lock);
    pthread_join(arm_thread, NULL);
}

static void rotdisk_unload(void)
{
    for (size_t i = 0; i < export_count; i++) {
        free(exports[i].name);
        free(exports[i].path);
        if (exports[i].fd >= 0) {
            close(exports[i].fd);
        }
    }
    free(stats_path);
}

/* Connections */

static int rotdisk_list_exports(int readonly, int is_tls, struct nbdkit_exports *list)
{
    (void)readonly;
    (void)is_tls;
    for (size_t i = 0; i < export_count; i++) {
        if (nbdkit_add_export(list, exports[i].name, exports[i].path) < 0) {
            return -1;
        }
    }
    return 0;
}

static void *rotdisk_open(int readonly)
{
    const char *name = nbdkit_export_name();

    (void)readonly;
    for (size_t i = 0; name && i < export_count; i++) {
        if (strcmp(exports[i].name, name) == 0) {
            return &exports[i];
        }
    }
    nbdkit_error("export \"%s\": there is no such image", name ? name : "");
    return NULL;
}

static int64_t rotdisk_get_size(void *handle)
{
    return ((struct export *)handle)->bytes;
}

static int rotdisk_can_write(void *handle)
{
    (void)handle;
    return 0;
}

/* Any number of clients see the same bytes, because nobody writes. */
static int rotdisk_can_multi_conn(void *handle)
{
    (void)handle;
    return 1;
}

static int read_fully(const struct export *e, char *buf, uint32_t count, uint64_t offset)
{
    while (count > 0) {
        ssize_t got = pread(e->fd, buf, count, offset);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            nbdkit_error("image %s: %s", e->name,
                         got ? strerror(errno) : "the file became shorter");
            return -1;
        }
        buf += got;
        count -= got;
        offset += got;
    }
    return 0;
}

static int rotdisk_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
    struct export *e = handle;
    struct waiter w = {
        .request = { .start = e->base + offset, .bytes = count },
        .export = e,
    };
    int result;

    (void)flags;
    init_cond(&w.done_cond);
    submit(&w);
    /* The file is read while the model's arm moves: what that takes on the
     * real machine does not add to the model's time. */
    result = read_fully(e, buf, count, offset);
    wait_until_done(&w);
    pthread_cond_destroy(&w.done_cond);
    if (result < 0) {
        nbdkit_set_error(EIO);
    }
    return result;
}

static struct nbdkit_plugin plugin = {
    .name = "rotdisk",
    .longname = "model of a rotating disk",
    .description = "Raw images on one modelled rotating disk with an anticipatory scheduler",
    .load = rotdisk_load,
    .unload = rotdisk_unload,
    .dump_plugin = rotdisk_dump_plugin,
    .config = rotdisk_config,
    .config_complete = rotdisk_config_complete,
    .config_help = "image=NAME:FILE  (required, repeated) an export and its raw image\n"
                   "stats=FILE       counters, to be mapped by other processes\n"
                   "CONSTANT=VALUE   a constant of the model; see --dump-plugin",
    .get_ready = rotdisk_get_ready,
    .after_fork = rotdisk_after_fork,
    .cleanup = rotdisk_cleanup,
    .list_exports = rotdisk_list_exports,
    .open = rotdisk_open,
    .get_size = rotdisk_get_size,
    .can_write = rotdisk_can_write,
    .can_multi_conn = rotdisk_can_multi_conn,
    .pread = rotdisk_pread,
    .errno_is_preserved = 1,
};

NBDKIT_REGISTER_PLUGIN(plugin)
