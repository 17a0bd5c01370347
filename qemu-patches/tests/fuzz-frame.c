/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A fuzzer of the frame parser and of marking. */
#include <stdlib.h>
#include <string.h>

#include "sluice/classify.h"
#include "sluice/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
    if (!condition) {
        abort();
    }
}

/* A mark changes ECN and checksum, and the parser then reads CE. */
static void check_mark(const uint8_t *data, size_t size,
                       const SluiceFrame *frame)
{
    uint8_t *copy = malloc(size ? size : 1);
    size_t ip = frame->ip_offset;
    SluiceFrame again;

    memcpy(copy, data, size);
    if (sluice_frame_mark_ce(copy, size, frame)) {
        sluice_frame_parse(copy, size, &again);
        require(again.ecn == SLUICE_ECN_CE && again.dscp == frame->dscp);
        copy[ip + 1] = data[ip + 1];
        if (frame->kind == SLUICE_FRAME_IPV4) {
            memcpy(copy + ip + 10, data + ip + 10, 2);
        }
    }
    require(memcmp(copy, data, size) == 0);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    SluiceFrame frame;

    memset(&frame, 0xa5, sizeof(frame));
    sluice_frame_parse(data, size, &frame);
    require(frame.kind <= SLUICE_FRAME_IPV6 && frame.dscp <= SLUICE_DSCP_MAX
            && frame.ecn <= SLUICE_ECN_CE
            && frame.transport <= SLUICE_TRANSPORT_UDP);
    require(sluice_tag_of_dscp(frame.dscp) <= SLUICE_TAG_MAX);
    require(frame.kind != SLUICE_FRAME_OTHER
            || (!frame.opens_connection && !frame.has_ports));
    check_mark(data, size, &frame);
    require(frame.kind != SLUICE_FRAME_OTHER
            || sluice_frame_flow(data, size, &frame) == 0);
    sluice_frame_flow(data, size, &frame);
    return 0;
}
