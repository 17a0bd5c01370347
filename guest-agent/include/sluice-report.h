/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A program tells the host's Sluice how its stream is: frames shown or sent, late, lost. The
 * guest's sluice-agent takes the report and knows the class by the process. Nothing here
 * blocks, needs a library or fails a program: without an agent a report is an error number.
 *
 *     struct sluice_stream stream;
 *     sluice_stream_open(&stream, "film", 25.0);
 *     for (each frame) {
 *         ...
 *         stream.frames++;
 *         if (half a second has passed)
 *             sluice_stream_report(&stream);
 *     }
 *     sluice_stream_close(&stream);
 */
#ifndef SLUICE_REPORT_H
#define SLUICE_REPORT_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SLUICE_REPORT_PATH "/run/sluice-agent/report.sock"
#define SLUICE_STREAM_NAME_BYTES 24

struct sluice_stream {
    uint64_t frames;            /* since the stream began, as are the next two */
    uint64_t late;
    uint64_t lost;
    double rate;                /* desired frames per second */
    int fd;
    struct sockaddr_un agent;
    char name[SLUICE_STREAM_NAME_BYTES + 1];
};

/*
 * A stream is its class and its name: of a longer name the first 24 bytes count, and characters
 * beyond printable ASCII, quotes and backslashes become '_'. Returns 0 or a negative errno.
 */
static inline int sluice_stream_open_at(struct sluice_stream *stream,
                                        const char *name, double rate,
                                        const char *path)
{
    size_t i;

    memset(stream, 0, sizeof(*stream));
    stream->fd = -1;
    stream->rate = rate;
    for (i = 0; i < SLUICE_STREAM_NAME_BYTES && name[i]; i++) {
        char c = name[i];

        stream->name[i] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '_' : c;
    }
    if (strlen(path) >= sizeof(stream->agent.sun_path)) {
        return -ENAMETOOLONG;
    }
    stream->agent.sun_family = AF_UNIX;
    strcpy(stream->agent.sun_path, path);
    stream->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return stream->fd < 0 ? -errno : 0;
}

static inline int sluice_stream_open(struct sluice_stream *stream,
                                     const char *name, double rate)
{
    return sluice_stream_open_at(stream, name, rate, SLUICE_REPORT_PATH);
}

/*
 * Once or twice a second is enough. An agent that was restarted is found again. Returns 0 or a
 * negative errno: -ENOENT or -ECONNREFUSED without an agent, -EAGAIN if it is behind.
 */
static inline int sluice_stream_report(const struct sluice_stream *stream)
{
    /* In thousandths: no locale changes the decimal point. */
    uint64_t rate = stream->rate > 0 ? (uint64_t)(stream->rate * 1000 + 0.5) : 0;
    char text[256];
    int length = snprintf(text, sizeof(text),
                          "{\"name\":\"%s\",\"rate\":%llu.%03u,\"frames\":%llu,"
                          "\"late\":%llu,\"lost\":%llu}",
                          stream->name, (unsigned long long)(rate / 1000),
                          (unsigned)(rate % 1000),
                          (unsigned long long)stream->frames,
                          (unsigned long long)stream->late,
                          (unsigned long long)stream->lost);

    if (sendto(stream->fd, text, (size_t)length, MSG_DONTWAIT | MSG_NOSIGNAL,
               (const struct sockaddr *)&stream->agent,
               sizeof(stream->agent)) < 0) {
        return -errno;
    }
    return 0;
}

/* The host forgets a stream that reports no more within 10 s. */
static inline void sluice_stream_close(struct sluice_stream *stream)
{
    if (stream->fd >= 0) {
        close(stream->fd);
        stream->fd = -1;
    }
}

#endif
