/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writer of the counters page. The layout is in shaper-page.h.
 *
 * Nothing of the file is mapped. Other processes may write to its folder: the QEMUs of
 * other guests, which run as the same user. Damage to the file costs this guest its
 * counters for a moment, and not its life.
 *
 * A reader finds a slot whole if its sequence is even and the same before and after;
 * so a slot that changes is odd in the file before anything else of it is written.
 * One that reads the whole file in one call finds all of it whole if both heartbeats,
 * near its begin and at its end, are the same: the later one is written first, and
 * the earlier last.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/timer.h"
#include "shaper-page.h"

#define PAGE_MAGIC          "SLUICEPG"
#define PAGE_VERSION        1
#define PAGE_FILE_MODE      0640

struct ShaperPage {
    ShaperPageFile *next;       /* what the file is to show */
    ShaperPageFile *shown;      /* a copy of the file */
    bool changed[SHAPER_PAGE_SLOTS];    /* in `next` and not in `shown` */
    bool damage_told;
    char *path;
    int fd;                     /* -1: none */
    dev_t device;
    ino_t inode;
    uint64_t failures;
    char *error;                /* why the file shows no counters; NULL: it does */
};

static void page_fill(ShaperPageFile *file, const char *id, uint64_t now_ns)
{
    ShaperPageHeader *header = &file->header;

    for (unsigned i = 0; i < SHAPER_PAGE_SLOTS; i++) {
        bool ceiling = i >= SHAPER_PAGE_CEILING_SLOT;

        file->slots[i].tag = ceiling ? 0 : i / SHAPER_PAGE_RESOURCES;
        file->slots[i].resource = i % SHAPER_PAGE_RESOURCES;
    }
    header->version = cpu_to_le32(PAGE_VERSION);
    header->header_bytes = cpu_to_le32(sizeof(ShaperPageHeader));
    header->slot_bytes = cpu_to_le32(sizeof(ShaperPageSlot));
    header->slot_count = cpu_to_le32(SHAPER_PAGE_SLOTS);
    header->created_ns = cpu_to_le64(now_ns);
    header->pid = cpu_to_le32(getpid());
    header->more_bytes = cpu_to_le32(sizeof(ShaperPageMore));
    header->more_offset = cpu_to_le64(offsetof(ShaperPageFile, more));
    pstrcpy(header->id, sizeof(header->id), id);
    memcpy(header->magic, PAGE_MAGIC, sizeof(header->magic));
}

/* The file */

/* False if not all of it could be written: the disk is full, say. */
static bool write_part(int fd, const void *file, size_t from, size_t bytes)
{
    ssize_t written = pwrite(fd, (const char *)file + from, bytes, from);

    if (written >= 0 && written < bytes) {
        errno = ENOSPC;
    }
    /* Readers see the parts in this order. */
    smp_wmb();
    return written == bytes;
}

/*
 * A new file every time, whole before it gets its name: a reader may still have an
 * earlier one open, and another QEMU may be making its own at the same moment.
 */
static bool page_create(ShaperPage *page, Error **errp)
{
    g_autofree char *temporary = g_strdup_printf("%s.%d", page->path,
                                                 (int)getpid());
    struct stat st;
    int fd;

    unlink(temporary);
    fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
              PAGE_FILE_MODE);
    if (fd < 0) {
        error_setg_errno(errp, errno, "page '%s' cannot be created; its folder "
                         "must exist and be writable for QEMU", page->path);
        return false;
    }
    if (fchmod(fd, PAGE_FILE_MODE) < 0 || fstat(fd, &st) < 0
        || !write_part(fd, page->shown, 0, sizeof(*page->shown))) {
        error_setg_errno(errp, errno, "page '%s' needs %zu bytes; free some "
                         "space", page->path, sizeof(*page->shown));
    } else if (rename(temporary, page->path) < 0) {
        error_setg_errno(errp, errno, "page '%s' cannot be replaced; remove it "
                         "or make its folder writable for QEMU", page->path);
    } else {
        page->fd = fd;
        page->device = st.st_dev;
        page->inode = st.st_ino;
        return true;
    }
    unlink(temporary);
    close(fd);
    return false;
}

static void page_close(ShaperPage *page)
{
    if (page->fd >= 0) {
        close(page->fd);
        page->fd = -1;
    }
}

static bool is_ours(const ShaperPage *page, const struct stat *st)
{
    return page->fd >= 0 && st->st_dev == page->device
           && st->st_ino == page->inode;
}

/* Said once: another process can do it ten times a second. */
static void note_damage(ShaperPage *page, const char *what)
{
    page->failures++;
    if (!page->damage_told) {
        page->damage_told = true;
        warn_report("another process has %s page '%s'; it is made anew, now and "
                    "whenever that happens again", what, page->path);
    }
}

static bool restore_length(ShaperPage *page, Error **errp)
{
    if (ftruncate(page->fd, sizeof(*page->shown)) < 0) {
        error_setg_errno(errp, errno, "page '%s' cannot be given its length "
                         "of %zu bytes; remove it", page->path,
                         sizeof(*page->shown));
        return false;
    }
    return true;
}

/*
 * The file of that name is ours, or is made anew. During a migration within a host
 * the other QEMU has taken the name: it keeps it. If that one goes, so does its file,
 * and the name is ours again.
 */
static bool page_find(ShaperPage *page, Error **errp)
{
    struct stat st;

    if (lstat(page->path, &st) == 0) {
        if (is_ours(page, &st)) {
            if (st.st_size != sizeof(*page->shown)) {
                note_damage(page, "cut or lengthened");
                return restore_length(page, errp);
            }
            return true;
        }
        if (S_ISREG(st.st_mode) && st.st_uid == geteuid()) {
            error_setg(errp, "page '%s' was replaced by another process, which "
                       "may be the QEMU that this guest migrates to",
                       page->path);
            return false;
        }
    }
    page_close(page);
    if (!page_create(page, errp)) {
        return false;
    }
    note_damage(page, "removed");
    return true;
}

/* Showing */

/* Two fields are no news. A slot that is not used, and was not, is skipped by readers. */
static bool is_changed(ShaperPage *page, unsigned slot)
{
    ShaperPageSlot *next = &page->next->slots[slot];
    const ShaperPageSlot *shown = &page->shown->slots[slot];

    next->seq = shown->seq;
    return (next->used || shown->used)
           && (memcmp(next, shown, sizeof(*next))
               || memcmp(&page->next->more[slot], &page->shown->more[slot],
                         offsetof(ShaperPageMore, tokens_ns))
               || memcmp(&page->next->more[slot].stream,
                         &page->shown->more[slot].stream,
                         sizeof(ShaperPageMore)
                         - offsetof(ShaperPageMore, stream)));
}

/* Of a slot that changes, the sequence becomes odd; of one that is written, even. */
static void count_on(ShaperPageSlot *slot)
{
    slot->seq = cpu_to_le32(le32_to_cpu(slot->seq) + 1);
}

static bool is_odd(const ShaperPageSlot *slot)
{
    return le32_to_cpu(slot->seq) % 2;
}

/* True if any is odd, be it from a writing that failed. */
static bool mark_changed(ShaperPage *page)
{
    bool any = false;

    for (unsigned i = 0; i < SHAPER_PAGE_SLOTS; i++) {
        ShaperPageSlot *slot = &page->shown->slots[i];

        page->changed[i] = is_changed(page, i);
        if (page->changed[i] && !is_odd(slot)) {
            count_on(slot);
        }
        any |= is_odd(slot);
    }
    return any;
}

static void show_changed(ShaperPage *page)
{
    for (unsigned i = 0; i < SHAPER_PAGE_SLOTS; i++) {
        if (page->changed[i]) {
            uint32_t seq = page->shown->slots[i].seq;

            page->shown->slots[i] = page->next->slots[i];
            page->shown->slots[i].seq = seq;
            page->shown->more[i] = page->next->more[i];
        }
    }
}

static void unmark_shown(ShaperPage *page)
{
    for (unsigned i = 0; i < SHAPER_PAGE_SLOTS; i++) {
        if (is_odd(&page->shown->slots[i])) {
            count_on(&page->shown->slots[i]);
        }
    }
}

#define SLOTS_AT    offsetof(ShaperPageFile, slots)
#define SLOTS_BYTES sizeof_field(ShaperPageFile, slots)
#define TAIL_AT     offsetof(ShaperPageFile, tail)
#define TAIL_BYTES  sizeof_field(ShaperPageFile, tail)

static bool write_slots(ShaperPage *page)
{
    return write_part(page->fd, page->shown, SLOTS_AT, SLOTS_BYTES);
}

/* Unchanged slots, too: other processes may have written there. */
static bool write_tables(ShaperPage *page)
{
    return write_part(page->fd, page->shown, SLOTS_AT, TAIL_AT - SLOTS_AT);
}

static bool write_changes(ShaperPage *page)
{
    if (!write_slots(page)) {
        return false;
    }
    show_changed(page);
    if (!write_tables(page)) {
        return false;
    }
    unmark_shown(page);
    return write_slots(page);
}

static bool write_all(ShaperPage *page, bool changed)
{
    return write_part(page->fd, page->shown, TAIL_AT, TAIL_BYTES)
           && (changed ? write_changes(page) : write_tables(page))
           && write_part(page->fd, page->shown, 0, SLOTS_AT);
}

/*
 * Said once, and again when the error is another; query-shapers shows it while it holds.
 */
static void note_error(ShaperPage *page, Error *err)
{
    const char *now = err ? error_get_pretty(err) : NULL;

    page->failures += err != NULL;
    if (g_strcmp0(now, page->error)) {
        if (err) {
            warn_report("%s (no counters are shown meanwhile)", now);
        } else {
            info_report("page '%s' shows counters again", page->path);
        }
        g_free(page->error);
        page->error = g_strdup(now);
    }
    error_free(err);
}

bool shaper_page_write(ShaperPage *page, uint64_t generation, uint64_t now_ns)
{
    bool changed = false;
    Error *err = NULL;

    /* A file that is made anew begins with the slots shown last, and as of then. */
    if (page_find(page, &err)) {
        changed = mark_changed(page);
        page->shown->header.generation = cpu_to_le64(generation);
        page->shown->header.heartbeat_ns = cpu_to_le64(now_ns);
        page->shown->tail.heartbeat_ns = cpu_to_le64(now_ns);
        if (!write_all(page, changed)) {
            error_setg_errno(&err, errno, "page '%s' cannot be written; free "
                             "some space", page->path);
        }
    }
    note_error(page, err);
    return changed;
}

/* Life cycle */

ShaperPage *shaper_page_new(const char *path, const char *id, Error **errp)
{
    ShaperPage *page = g_new0(ShaperPage, 1);

    page->next = g_new0(ShaperPageFile, 1);
    page->shown = g_new0(ShaperPageFile, 1);
    page->path = g_strdup(path);
    page->fd = -1;
    page_fill(page->next, id, get_clock());
    *page->shown = *page->next;
    if (!page_create(page, errp)) {
        shaper_page_free(page);
        return NULL;
    }
    return page;
}

void shaper_page_unlink(ShaperPage *page)
{
    struct stat st;

    if (lstat(page->path, &st) == 0 && is_ours(page, &st)) {
        unlink(page->path);
    }
}

void shaper_page_free(ShaperPage *page)
{
    if (!page) {
        return;
    }
    shaper_page_unlink(page);
    page_close(page);
    g_free(page->next);
    g_free(page->shown);
    g_free(page->path);
    g_free(page->error);
    g_free(page);
}

const char *shaper_page_error(const ShaperPage *page)
{
    return page ? page->error : NULL;
}

uint64_t shaper_page_failures(const ShaperPage *page)
{
    return page ? page->failures : 0;
}

/* Counting */

void shaper_page_set_config(ShaperPage *page, unsigned slot,
                            bool used, const char *name, uint8_t priority,
                            const SluiceLimit *limit)
{
    ShaperPageSlot *s = &page->next->slots[slot];

    s->used = used;
    s->priority = priority;
    strpadcpy(s->name, sizeof(s->name), name, '\0');
    s->limit_bytes_per_second = cpu_to_le64(limit->bytes_per_second);
    s->limit_operations_per_second = cpu_to_le64(limit->operations_per_second);
    s->burst_bytes = cpu_to_le64(limit->burst_bytes);
    s->burst_operations = cpu_to_le64(limit->burst_operations);
}

static void set_more(ShaperPageMore *more, const ShaperPageCounters *counters,
                     uint64_t requests, const SluiceTokens *tokens)
{
    for (unsigned i = 0; i < SHAPER_PAGE_DROPS; i++) {
        more->drops[i] = cpu_to_le64(counters->drops[i]);
    }
    more->marked_requests = cpu_to_le64(counters->marked_requests);
    more->buffered_requests = cpu_to_le64(counters->buffered_requests);
    more->buffered_bytes = cpu_to_le64(counters->buffered_bytes);
    more->buffer_requests_max = cpu_to_le64(counters->buffer_requests_max);
    more->buffer_bytes_max = cpu_to_le64(counters->buffer_bytes_max);
    more->tokens_bytes = cpu_to_le64(tokens->bytes);
    more->tokens_operations = cpu_to_le64(tokens->operations);
    more->tokens_ns = cpu_to_le64(tokens->at_ns);
    more->untagged_requests = cpu_to_le64(counters->untagged_requests);
    more->untagged_of_requests = cpu_to_le64(requests);
}

void shaper_page_set_counters(ShaperPage *page, unsigned slot,
                              const ShaperPageCounters *counters,
                              const SluiceClassStats *stats,
                              const SluiceTokens *tokens)
{
    ShaperPageSlot *s = &page->next->slots[slot];

    s->requests = cpu_to_le64(stats->requests);
    s->bytes = cpu_to_le64(stats->bytes);
    s->held_requests = cpu_to_le64(stats->held_requests);
    s->held_ns = cpu_to_le64(stats->held_ns);
    s->dropped_requests = cpu_to_le64(counters->dropped_requests);
    s->dropped_bytes = cpu_to_le64(counters->dropped_bytes);
    s->backlog_requests = cpu_to_le64(stats->backlog_requests);
    s->backlog_bytes = cpu_to_le64(stats->backlog_bytes);
    s->completed_requests = cpu_to_le64(counters->completed_requests);
    s->service_ns = cpu_to_le64(counters->service_ns);
    s->in_flight = cpu_to_le64(counters->in_flight);
    for (unsigned i = 0; i < SHAPER_PAGE_HISTOGRAM; i++) {
        s->held_histogram[i] = cpu_to_le64(counters->held_histogram[i]);
    }
    set_more(&page->next->more[slot], counters, stats->requests, tokens);
}

void shaper_page_set_stream(ShaperPage *page, unsigned slot,
                            const ShaperPageStream *stream)
{
    ShaperPageStream *s = &page->next->more[slot].stream;

    s->busy_ns = cpu_to_le64(stream->busy_ns);
    s->outstanding_ns = cpu_to_le64(stream->outstanding_ns);
    s->oldest_ns = cpu_to_le64(stream->oldest_ns);
    for (unsigned i = 0; i < SHAPER_PAGE_DEPTHS; i++) {
        s->depth[i] = cpu_to_le64(stream->depth[i]);
    }
}

void shaper_page_set_gate(ShaperPage *page, unsigned slot,
                          const ShaperPageGate *gate)
{
    page->next->more[slot].gate = (ShaperPageGate){
        .target_ns = cpu_to_le64(gate->target_ns),
        .window_bytes = cpu_to_le64(gate->window_bytes),
        .in_flight_bytes = cpu_to_le64(gate->in_flight_bytes),
        .held_times = cpu_to_le64(gate->held_times),
        .held_ns = cpu_to_le64(gate->held_ns),
    };
}

void shaper_page_set_totals(ShaperPage *page, unsigned slot,
                            uint64_t requests, uint64_t bytes)
{
    page->next->slots[slot].requests = cpu_to_le64(requests);
    page->next->slots[slot].bytes = cpu_to_le64(bytes);
}

unsigned shaper_page_histogram_bucket(uint64_t held_ns)
{
    uint64_t held_us = held_ns / 1000;
    unsigned bucket = held_us ? (63 - clz64(held_us)) / 2 : 0;

    return MIN(bucket, SHAPER_PAGE_HISTOGRAM - 1);
}
