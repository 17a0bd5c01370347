/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A program hears of events of its class in the host's Sluice: the class is limited, its limit
 * has changed, much waits. The guest's sluice-agent knows the class by the process. The
 * descriptor can be polled; it needs no library.
 *
 *     struct sluice_event_request wanted = {
 *         .kinds = SLUICE_KIND(SLUICE_LIMITED) | SLUICE_KIND(SLUICE_NO_LONGER_LIMITED),
 *     };
 *     int fd = sluice_events_open(&wanted);
 *     struct sluice_event event;
 *
 *     poll for POLLIN on fd, and then:
 *     while (sluice_events_next(fd, &event) > 0) {
 *         ...
 *     }
 *     close(fd);
 */
#ifndef SLUICE_EVENTS_H
#define SLUICE_EVENTS_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SLUICE_EVENTS_PATH "/run/sluice-agent/events.sock"

enum {                              /* the datum of an event */
    SLUICE_LIMITED = 1,             /* requests that wait */
    SLUICE_NO_LONGER_LIMITED = 2,   /* requests that wait */
    SLUICE_LIMIT_CHANGED = 3,       /* bytes per second; 0: no limit */
    SLUICE_BACKLOG = 4,             /* bytes that wait */
    SLUICE_GRANTS_CHANGED = 5,      /* bit t: tag t has a class */
};

enum {
    SLUICE_DISK_READ = 0,
    SLUICE_DISK_WRITE = 1,
    SLUICE_NET_INBOUND = 2,
    SLUICE_NET_OUTBOUND = 3,
};

#define SLUICE_KIND(kind)           (1u << (kind))
#define SLUICE_RESOURCE(resource)   (1u << (resource))

struct sluice_event_request {
    uint32_t kinds;                 /* of SLUICE_KIND; 0: all */
    uint32_t resources;             /* of SLUICE_RESOURCE; 0: all */
    uint64_t backlog;               /* bytes above which a backlog is an event */
    const char *class_name;         /* NULL: the class of this process */
};

struct sluice_event {
    uint64_t number;                /* 0: found by the agent */
    uint64_t time_ns;               /* of the host's CLOCK_MONOTONIC */
    uint8_t kind;
    uint8_t tag;
    uint8_t resource;
    uint8_t priority;
    uint32_t reserved;
    uint64_t datum;
    uint64_t lost;                  /* events before it that did not fit */
    char class_name[32];            /* NUL-padded; of 32 bytes without NUL */
};

/* Of the value (sival_ptr) of a signal of `sluice-agent events --signal` */
#define SLUICE_SIGNAL_KIND(value)       ((unsigned)((uint64_t)(uintptr_t)(value) >> 56))
#define SLUICE_SIGNAL_RESOURCE(value)   ((unsigned)((uint64_t)(uintptr_t)(value) >> 48) & 0xff)
#define SLUICE_SIGNAL_DATUM(value)      ((uint64_t)(uintptr_t)(value) & UINT64_C(0xffffffffffff))

/* Appends a list of the names whose bits are set. */
static inline void sluice_events_list(char *text, size_t size, const char *member,
                                      const char *const *names, unsigned count,
                                      uint32_t bits)
{
    const char *comma = "";
    size_t length = strlen(text);
    unsigned i;

    length += (size_t)snprintf(text + length, size - length, ",\"%s\":[", member);
    for (i = 0; i < count; i++) {
        if (bits >> i & 1) {
            length += (size_t)snprintf(text + length, size - length, "%s\"%s\"",
                                       comma, names[i]);
            comma = ",";
        }
    }
    snprintf(text + length, size - length, "]");
}

/* Sends text and one end of a socket to the agent. Returns 0 or a negative errno. */
static inline int sluice_events_send(const char *path, const char *text, int end)
{
    struct sockaddr_un agent = { .sun_family = AF_UNIX };
    struct iovec part = { .iov_base = (void *)text, .iov_len = strlen(text) };
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct msghdr message = {
        .msg_name = &agent, .msg_namelen = sizeof(agent), .msg_iov = &part,
        .msg_iovlen = 1, .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    struct cmsghdr *header;
    int error = 0;
    int fd;

    if (strlen(path) >= sizeof(agent.sun_path)) {
        return -ENAMETOOLONG;
    }
    strcpy(agent.sun_path, path);
    memset(&control, 0, sizeof(control));
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &end, sizeof(int));
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendmsg(fd, &message, MSG_NOSIGNAL) < 0) {
        error = -errno;
    }
    if (fd >= 0) {
        close(fd);
    }
    return error;
}

/* Waits for the answer, which names a class or an error. */
static inline int sluice_events_answer(int fd)
{
    struct pollfd answer = { .fd = fd, .events = POLLIN };
    char text[1024];
    ssize_t length;

    if (poll(&answer, 1, 10000) <= 0) {
        return -ETIMEDOUT;
    }
    length = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    if (length <= 0) {
        return -ECONNREFUSED;
    }
    text[length] = 0;
    return strncmp(text, "{\"error\"", 8) ? 0 : -EACCES;
}

/*
 * Waits for the agent's answer, for 10 s at most; before that, for room in the agent's socket,
 * without end where the agent stands still. Returns a descriptor that does not block, or
 * a negative errno: -ENOENT or -ECONNREFUSED without an agent, -EACCES if the agent refuses
 * (`sluice-agent events` says why).
 */
static inline int sluice_events_open_at(const struct sluice_event_request *wanted,
                                        const char *path)
{
    static const char *const kinds[] = {
        "", "limited", "no-longer-limited", "limit-changed", "backlog", "grants-changed",
    };
    static const char *const resources[] = {
        "disk.read", "disk.write", "net.inbound", "net.outbound",
    };
    char text[512];
    int ends[2];
    int error;

    snprintf(text, sizeof(text), "{\"backlog\":%llu", (unsigned long long)wanted->backlog);
    sluice_events_list(text, sizeof(text), "kinds", kinds, 6, wanted->kinds & ~1u);
    sluice_events_list(text, sizeof(text), "resources", resources, 4, wanted->resources);
    if (wanted->class_name) {
        /* The agent refuses what is no name of a class. */
        if (strlen(wanted->class_name) > 32 || strpbrk(wanted->class_name, "\"\\")) {
            return -EINVAL;
        }
        snprintf(text + strlen(text), sizeof(text) - strlen(text), ",\"class\":\"%s\"",
                 wanted->class_name);
    }
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "}");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        return -errno;
    }
    error = sluice_events_send(path, text, ends[1]);
    close(ends[1]);
    error = error ? error : sluice_events_answer(ends[0]);
    if (error) {
        close(ends[0]);
        return error;
    }
    return ends[0];
}

static inline int sluice_events_open(const struct sluice_event_request *wanted)
{
    return sluice_events_open_at(wanted, SLUICE_EVENTS_PATH);
}

/*
 * Never waits. 1: an event; 0: there is none now; a negative errno: -EPIPE if the agent has
 * ended the subscription, as it does when it stops.
 */
static inline int sluice_events_next(int fd, struct sluice_event *event)
{
    ssize_t length = recv(fd, event, sizeof(*event), MSG_DONTWAIT);

    /* The agent's reason to end may be as long as an event. */
    if (length == (ssize_t)sizeof(*event) && event->kind >= SLUICE_LIMITED
        && event->kind <= SLUICE_GRANTS_CHANGED) {
        return 1;
    }
    if (length < 0 && errno != ECONNRESET) {
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    }
    return -EPIPE;
}

#endif
