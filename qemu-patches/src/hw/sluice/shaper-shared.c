/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Opening a page that the controller has made for several processes. Only its user and
 * group may change it.
 */
#include "qemu/osdep.h"
#include <sys/mman.h>
#include "qapi/error.h"
#include "shaper-shared.h"

static bool check_file(const char *path, int fd, size_t bytes, const char *what,
                       Error **errp)
{
    struct stat st;

    if (fstat(fd, &st) < 0) {
        error_setg_errno(errp, errno, "path '%s' cannot be examined", path);
        return false;
    }
    if (!S_ISREG(st.st_mode)) {
        error_setg(errp, "path '%s' is not a file; let the controller create "
                   "the %s", path, what);
        return false;
    }
    if (st.st_uid != 0 && st.st_uid != geteuid()) {
        error_setg(errp, "path '%s' belongs to user %u; it must be root's, or "
                   "that of QEMU", path, (unsigned)st.st_uid);
        return false;
    }
    if (st.st_mode & S_IWOTH) {
        error_setg(errp, "path '%s' has mode %04o; everybody may write it, use "
                   "0660", path, (unsigned)st.st_mode & 07777);
        return false;
    }
    if (st.st_size != bytes) {
        error_setg(errp, "path '%s' has %" PRId64 " bytes; a %s page has "
                   "%zu, let the controller create it", path,
                   (int64_t)st.st_size, what, bytes);
        return false;
    }
    return true;
}

bool shaper_shared_open(ShaperShared *shared, const char *path, size_t bytes,
                        const char *what, Error **errp)
{
    void *memory;
    int fd;

    if (!path) {
        error_setg(errp, "path is missing; give the %s page that the "
                   "controller has created", what);
        return false;
    }
    fd = qemu_open(path, O_RDWR, errp);
    if (fd < 0) {
        error_append_hint(errp, "The controller creates the page of a %s; "
                          "QEMU's user must be able to read and write it.\n",
                          what);
        return false;
    }
    if (!check_file(path, fd, bytes, what, errp)) {
        qemu_close(fd);
        return false;
    }
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    qemu_close(fd);
    if (memory == MAP_FAILED) {
        error_setg_errno(errp, errno, "path '%s' cannot be mapped", path);
        return false;
    }
    *shared = (ShaperShared){
        .memory = memory, .bytes = bytes,
        .guard = shaper_guard_new(memory,
                                  ROUND_UP(bytes, qemu_real_host_page_size())),
    };
    return true;
}

void shaper_shared_close(ShaperShared *shared)
{
    if (shared->memory) {
        shaper_guard_free(shared->guard);
        munmap(shared->memory, shared->bytes);
        *shared = (ShaperShared){ 0 };
    }
}

bool shaper_shared_is_lost(const ShaperShared *shared)
{
    return shared->guard && shaper_guard_is_lost(shared->guard);
}

bool shaper_shared_is_newly_lost(ShaperShared *shared)
{
    if (shared->loss_told || !shaper_shared_is_lost(shared)) {
        return false;
    }
    shared->loss_told = true;
    return true;
}
