/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-net: frames of both directions. Frames are classified by
 * the DSCP of their IP header, unless their queue belongs to a class, and charged by
 * their length without the virtio header; a segmentation offload frame is charged as the
 * one large frame it is.
 */
#include "qemu/osdep.h"
#include "net-internal.h"
#include "sluice/frame.h"

static unsigned default_tag(SluiceNet *net)
{
    VirtIONet *n = net->n;
    uint64_t generation = shaper_generation(n->shaper);

    if (net->default_generation != generation) {
        net->default_generation = generation;
        net->default_tag = n->shaper_class
                           ? shaper_tag_of_class(n->shaper, n->shaper_class)
                           : SLUICE_TAG_DEFAULT;
    }
    return net->default_tag;
}

unsigned sluice_net_classify(SluiceNet *net, const uint8_t *frame,
                             size_t length, ShaperRequest *request)
{
    SluiceFrame parsed;
    unsigned tag;

    sluice_frame_parse(frame, length, &parsed);
    request->ecn_capable = parsed.ecn != SLUICE_ECN_NOT_ECT;
    request->opens_connection = parsed.opens_connection;
    request->node.flow = sluice_frame_flow(frame, length, &parsed);
    if (parsed.kind != SLUICE_FRAME_OTHER
        && shaper_tag_of_dscp(net->n->shaper, parsed.dscp, &tag)) {
        return tag;
    }
    return default_tag(net);
}

void sluice_net_mark(ShaperRequest *request, size_t header_bytes)
{
    size_t bytes;
    uint8_t *frame = shaper_buffer_head(request, &bytes);
    SluiceFrame parsed;

    header_bytes = MIN(header_bytes, bytes);
    frame += header_bytes;
    bytes -= header_bytes;
    sluice_frame_parse(frame, bytes, &parsed);
    if (sluice_frame_mark_ce(frame, bytes, &parsed)) {
        shaper_count_mark(request);
    }
}
