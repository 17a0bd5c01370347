/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-net: frames of both directions. A frame belongs to the class of its
 * local port, if the guest has a port map in force; or of its DSCP, where the card lets that
 * count; or of its card; or to the default class (docs/specs/channel.md). It is charged by
 * its length without the virtio header; a segmentation offload frame is charged as the
 * one large frame it is.
 */
#include "qemu/osdep.h"
#include "hw/qdev-properties.h"
#include "net-internal.h"
#include "qapi/qapi-visit-sluice.h"
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

/* Any process of the guest chooses the DSCP of a frame that goes out, and a stranger of one
 * that comes in. */
static bool dscp_counts(const SluiceNet *net, bool outbound, bool has_map)
{
    switch (net->n->shaper_dscp) {
    case SHAPER_DSCP_BOTH:
        return true;
    case SHAPER_DSCP_OUTBOUND:
        return outbound;
    case SHAPER_DSCP_AUTO:
        return outbound && !has_map;
    default:
        return false;
    }
}

/* The class that the frame itself names; false if nothing, or of none that is granted. */
static bool chosen_tag(SluiceNet *net, bool outbound, const SluiceFrame *frame,
                       uint32_t flow, unsigned *tag)
{
    SluiceFragments *fragments = outbound ? &net->sent : &net->received;
    const Shaper *shaper = net->n->shaper;
    const uint8_t *map = shaper_port_map(shaper);

    if (frame->kind == SLUICE_FRAME_OTHER) {
        return false;
    }
    if (map) {
        *tag = sluice_port_map_tag(map, fragments, frame, flow, outbound);
        if (*tag != SLUICE_PORT_NO_TAG && shaper_has_tag(shaper, *tag)) {
            return true;
        }
    }
    return dscp_counts(net, outbound, map != NULL)
           && shaper_tag_of_dscp(shaper, frame->dscp, tag);
}

unsigned sluice_net_classify(SluiceNet *net, ShaperResource resource,
                             const uint8_t *frame, size_t length,
                             ShaperRequest *request)
{
    SluiceFrame parsed;
    unsigned tag;

    sluice_frame_parse(frame, length, &parsed);
    request->ecn_capable = parsed.ecn != SLUICE_ECN_NOT_ECT;
    request->opens_connection = parsed.opens_connection;
    request->node.flow = sluice_frame_flow(frame, length, &parsed);
    request->untagged = !chosen_tag(net, resource == SHAPER_RESOURCE_NET_TX,
                                    &parsed, request->node.flow, &tag);
    return request->untagged ? default_tag(net) : tag;
}

/* shaper-dscp */

static void get_dscp(Object *obj, Visitor *v, const char *name, void *opaque,
                     Error **errp)
{
    ShaperDscp *value = object_field_prop_ptr(obj, opaque);

    visit_type_ShaperDscp(v, name, value, errp);
}

static void set_dscp(Object *obj, Visitor *v, const char *name, void *opaque,
                     Error **errp)
{
    ShaperDscp *value = object_field_prop_ptr(obj, opaque);

    visit_type_ShaperDscp(v, name, value, errp);
}

static void set_default_dscp(ObjectProperty *op, const Property *property)
{
    object_property_set_default_str(op, ShaperDscp_str(property->defval.i));
}

const PropertyInfo sluice_net_prop_dscp = {
    .type = "ShaperDscp",
    .description = "Frames whose DSCP chooses their class",
    .enum_table = &ShaperDscp_lookup,
    .get = get_dscp,
    .set = set_dscp,
    .set_default_value = set_default_dscp,
    .realized_set_allowed = true,
};

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
