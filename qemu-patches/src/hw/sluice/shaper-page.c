/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Writer of the counters page: the file, and what is seldom written. The layout, and
 * what each request writes, are in shaper-page-inline.h.
 */
#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qapi/error.h"
#include "qemu/cutils.h"
#include "qemu/timer.h"
#include "shaper-page-inline.h"

#define PAGE_MAGIC          "SLUICEPG"
#define PAGE_VERSION        1
#define PAGE_FILE_MODE      0640

struct ShaperPage {
    ShaperPageFile *file;
    char *path;
    dev_t device;
    ino_t inode;
};

ShaperPageFile *shaper_page_file(ShaperPage *page)
{
    return page ? page->file : NULL;
}

static void page_fill(ShaperPageFile *file, const char *id)
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
    header->created_ns = cpu_to_le64(get_clock());
    header->heartbeat_ns = header->created_ns;
    header->pid = cpu_to_le32(getpid());
    header->more_bytes = cpu_to_le32(sizeof(ShaperPageMore));
    header->more_offset = cpu_to_le64(offsetof(ShaperPageFile, more));
    pstrcpy(header->id, sizeof(header->id), id);
    /* A reader that finds the magic finds the rest. */
    smp_wmb();
    memcpy(header->magic, PAGE_MAGIC, sizeof(header->magic));
}

/*
 * A new file every time: a reader may still have an earlier one mapped, which
 * must not change its size or its owner under it.
 */
static int page_create_file(const char *path, Error **errp)
{
    int fd;

    if (unlink(path) < 0 && errno != ENOENT) {
        error_setg_errno(errp, errno, "page '%s' cannot be replaced; remove it "
                         "or make its folder writable for QEMU", path);
        return -1;
    }
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
              PAGE_FILE_MODE);
    if (fd < 0) {
        error_setg_errno(errp, errno, "page '%s' cannot be created; its folder "
                         "must exist and be writable for QEMU", path);
        return -1;
    }
    if (fchmod(fd, PAGE_FILE_MODE) < 0
        || posix_fallocate(fd, 0, sizeof(ShaperPageFile)) != 0) {
        error_setg(errp, "page '%s' needs %zu bytes; free some space",
                   path, sizeof(ShaperPageFile));
        unlink(path);
        close(fd);
        return -1;
    }
    return fd;
}

ShaperPage *shaper_page_new(const char *path, const char *id, Error **errp)
{
    ShaperPage *page;
    struct stat st;
    void *file;
    int fd = page_create_file(path, errp);

    if (fd < 0) {
        return NULL;
    }
    file = mmap(NULL, sizeof(ShaperPageFile), PROT_READ | PROT_WRITE, MAP_SHARED,
                fd, 0);
    if (file == MAP_FAILED || fstat(fd, &st) < 0) {
        error_setg_errno(errp, errno, "page '%s' cannot be mapped", path);
        unlink(path);
        close(fd);
        return NULL;
    }
    close(fd);
    page = g_new0(ShaperPage, 1);
    page->file = file;
    page->path = g_strdup(path);
    page->device = st.st_dev;
    page->inode = st.st_ino;
    page_fill(file, id);
    return page;
}

void shaper_page_unlink(ShaperPage *page)
{
    struct stat st;

    /* During a migration within a host the other QEMU has taken the name. */
    if (lstat(page->path, &st) == 0 && st.st_dev == page->device
        && st.st_ino == page->inode) {
        unlink(page->path);
    }
}

void shaper_page_free(ShaperPage *page)
{
    if (!page) {
        return;
    }
    shaper_page_unlink(page);
    munmap(page->file, sizeof(ShaperPageFile));
    g_free(page->path);
    g_free(page);
}

void shaper_page_heartbeat(ShaperPage *page, uint64_t now_ns)
{
    qatomic_set(&page->file->header.heartbeat_ns, cpu_to_le64(now_ns));
}

void shaper_page_set_generation(ShaperPage *page, uint64_t generation)
{
    qatomic_set(&page->file->header.generation, cpu_to_le64(generation));
}

void shaper_page_set_config(ShaperPage *page, unsigned slot,
                            const ShaperPageConfig *config)
{
    ShaperPageSlot *s = shaper_page_begin(page->file, slot);

    s->used = config->used;
    s->priority = config->priority;
    strpadcpy(s->name, sizeof(s->name), config->name, '\0');
    s->limit_bytes_per_second = cpu_to_le64(config->limit.bytes_per_second);
    s->limit_operations_per_second =
        cpu_to_le64(config->limit.operations_per_second);
    s->burst_bytes = cpu_to_le64(config->limit.burst_bytes);
    s->burst_operations = cpu_to_le64(config->limit.burst_operations);
    shaper_page_end(s);
}

static void set_more(ShaperPageMore *more, const ShaperPageCounters *counters)
{
    for (unsigned i = 0; i < SHAPER_PAGE_DROPS; i++) {
        more->drops[i] = cpu_to_le64(counters->drops[i]);
    }
    more->marked_requests = cpu_to_le64(counters->marked_requests);
    more->buffered_requests = cpu_to_le64(counters->buffered_requests);
    more->buffered_bytes = cpu_to_le64(counters->buffered_bytes);
    more->buffer_requests_max = cpu_to_le64(counters->buffer_requests_max);
    more->buffer_bytes_max = cpu_to_le64(counters->buffer_bytes_max);
    shaper_page_set_tokens(more, &counters->tokens);
}

void shaper_page_set_counters(ShaperPage *page, unsigned slot,
                              const ShaperPageCounters *counters)
{
    ShaperPageSlot *s = shaper_page_begin(page->file, slot);

    s->requests = cpu_to_le64(counters->requests);
    s->bytes = cpu_to_le64(counters->bytes);
    s->held_requests = cpu_to_le64(counters->held_requests);
    s->held_ns = cpu_to_le64(counters->held_ns);
    s->dropped_requests = cpu_to_le64(counters->dropped_requests);
    s->dropped_bytes = cpu_to_le64(counters->dropped_bytes);
    s->backlog_requests = cpu_to_le64(counters->backlog_requests);
    s->backlog_bytes = cpu_to_le64(counters->backlog_bytes);
    s->completed_requests = cpu_to_le64(counters->completed_requests);
    s->service_ns = cpu_to_le64(counters->service_ns);
    s->in_flight = cpu_to_le64(counters->in_flight);
    for (unsigned i = 0; i < SHAPER_PAGE_HISTOGRAM; i++) {
        s->held_histogram[i] = cpu_to_le64(counters->held_histogram[i]);
    }
    set_more(&page->file->more[slot], counters);
    shaper_page_end(s);
}

unsigned shaper_page_histogram_bucket(uint64_t held_ns)
{
    uint64_t held_us = held_ns / 1000;
    unsigned bucket = held_us ? (63 - clz64(held_us)) / 2 : 0;

    return MIN(bucket, SHAPER_PAGE_HISTOGRAM - 1);
}
