/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * QTest of the port map: the class of a frame by its local port, in both directions, for
 * every form of header; what comes after the map; and hostile maps.
 *
 * Frames go from port CLIENT to port SERVER. Each check sends one frame and looks which
 * class it was counted in.
 */
#include "qemu/osdep.h"
#include "sluice-channel.h"
#include "sluice-frames.h"
#include "sluice/frame.h"

#define CLIENT      49153
#define SERVER      80
#define UDP         65536
#define ENTRY(tag)  ((uint8_t)(0x80 | (tag)))
#define FIRST       0x20                /* more fragments */
#define LATER       0x01                /* at offset 2048 */

typedef struct Link {
    Net net;
    Channel channel;
    uint64_t buffers[64];
} Link;

/* Headers up to TCP or UDP */

typedef enum Form {
    FORM_IPV4,
    FORM_IPV6,
    FORM_VLAN,
    FORM_TWO_VLANS,
    FORM_EXTENSIONS,
    FORMS,
} Form;

static size_t put(uint8_t *frame, size_t at, const void *bytes, size_t count)
{
    memcpy(frame + at, bytes, count);
    return at + count;
}

#define PUT(...) at = put(frame, at, (const uint8_t[]){ __VA_ARGS__ },       \
                          sizeof((const uint8_t[]){ __VA_ARGS__ }))

static size_t put_ipv4(uint8_t *frame, size_t at, unsigned protocol,
                       unsigned dscp, uint8_t fragment)
{
    PUT(0x08, 0x00);
    PUT(0x45, dscp << 2, 0, 0, 0, 9, fragment, 0, 64, protocol, 0, 0,
        10, 0, 0, 1, 10, 0, 0, 2);
    return at;
}

static size_t put_ipv6(uint8_t *frame, size_t at, unsigned protocol,
                       unsigned dscp, bool extensions)
{
    PUT(0x86, 0xdd);
    PUT(0x60 | dscp >> 2, (dscp & 3) << 6, 0, 0, 0, 0,
        extensions ? 0 : protocol, 64);
    at += 32;                           /* addresses of zeroes */
    if (extensions) {
        PUT(60, 0, 1, 4, 0, 0, 0, 0);   /* hop-by-hop, then destination */
        PUT(protocol, 0, 1, 4, 0, 0, 0, 0);
    }
    return at;
}

static void make(uint8_t frame[FRAME_BYTES], Form form, unsigned protocol,
                 unsigned dscp, unsigned tcp_flags)
{
    size_t at = 12;

    memset(frame, 0, FRAME_BYTES);
    memset(frame, 0xff, 6);
    frame[6] = 0x02;
    for (int i = 0; i < (form == FORM_TWO_VLANS ? 2 : form == FORM_VLAN); i++) {
        PUT(0x81, 0x00, 0, 5);
    }
    at = form == FORM_IPV6 || form == FORM_EXTENSIONS
         ? put_ipv6(frame, at, protocol, dscp, form == FORM_EXTENSIONS)
         : put_ipv4(frame, at, protocol, dscp, 0);
    PUT(CLIENT >> 8, CLIENT & 255, SERVER >> 8, SERVER & 255);
    if (protocol == 6) {
        frame[at - 4 + 13] = tcp_flags;
    }
}

/* A card, and a channel whose map is in force; classes one, two and three, without limits. */

#define set_class(link, text, ...)                                          \
    qmp_ok((link)->net.qts, "{'execute': 'shaper-set-class', 'arguments': " \
           "{'id': 'sluice0', " text "}}", ##__VA_ARGS__)

static void set_map(Link *link, bool on)
{
    set_register(&link->channel, SLUICE_CHANNEL_REG_DRIVER, 1);
    set_register(&link->channel, SLUICE_CHANNEL_REG_PORT_MAP, on);
}

static Link *link_new(const char *options)
{
    Link *link = g_new0(Link, 1);

    net_boot(&link->net, options, CHANNEL);
    channel_find(&link->channel, link->net.qs);
    link->net.pci = start_device(link->net.qs, SLOT);
    link->net.dev = &link->net.pci->vdev;
    link->net.without = 1ull << VIRTIO_NET_F_CTRL_VLAN;     /* all are received */
    setup_queues(&link->net);
    post_buffers(&link->net, link->buffers, ARRAY_SIZE(link->buffers));
    for (unsigned tag = 1; tag <= 3; tag++) {
        set_class(link, "'class': %s, 'tag': %u",
                  (const char *[]){ "one", "two", "three" }[tag - 1], tag);
    }
    set_map(link, true);
    return link;
}

static void link_free(Link *link)
{
    Net *net = g_memdup2(&link->net, sizeof(Net));

    channel_free(&link->channel);
    g_free(link);
    net_free(net);
}

static void set_entry(Link *link, unsigned index, uint8_t entry)
{
    write_guest(&link->channel, port_map[index], entry);
}

static void send_bytes(Link *link, const char *resource, const uint8_t *frame)
{
    Net *net = &link->net;
    QVirtQueue *vq = net->queues[TX_QUEUE];
    uint64_t address;

    if (!strcmp(resource, "net-rx")) {
        network_send_bytes(net, frame, FRAME_BYTES);
        return;
    }
    address = guest_alloc(&net->qs->alloc, BUFFER_BYTES);
    qtest_memset(net->qts, address, 0, HEADER_BYTES);
    qtest_memwrite(net->qts, address + HEADER_BYTES, frame, FRAME_BYTES);
    qvirtqueue_kick(net->qts, net->dev, vq,
                    qvirtqueue_add(net->qts, vq, address, BUFFER_BYTES, false,
                                   false));
}

/* Frames that were sent must not fill the socket. */
static void drain(Link *link)
{
    uint8_t bytes[4096];

    while (recv(link->net.socket, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
}

static void check_class(Link *link, const char *resource, const uint8_t *frame,
                        const char *class)
{
    int64_t before = admitted(&link->net, class, resource);

    send_bytes(link, resource, frame);
    wait_for(admitted(&link->net, class, resource) == before + 1);
    drain(link);
}

static void check_form(Link *link, const char *resource, Form form,
                       unsigned protocol, const char *class)
{
    uint8_t frame[FRAME_BYTES];

    make(frame, form, protocol, DSCP_OF_TAG(3), SLUICE_TCP_ACK);
    check_class(link, resource, frame, class);
}

/* The map */

static void test_forms(void)
{
    Link *link = link_new("");

    set_entry(link, CLIENT, ENTRY(1));
    set_entry(link, SERVER, ENTRY(2));
    set_entry(link, UDP + CLIENT, ENTRY(2));
    set_entry(link, UDP + SERVER, ENTRY(1));
    for (Form form = 0; form < FORMS; form++) {
        check_form(link, "net-tx", form, 6, "one");
        check_form(link, "net-rx", form, 6, "two");
        check_form(link, "net-tx", form, 17, "two");
        check_form(link, "net-rx", form, 17, "one");
    }
    link_free(link);
}

static void make_part(uint8_t frame[FRAME_BYTES], uint8_t identification,
                      uint8_t high, uint8_t low)
{
    make(frame, FORM_IPV4, 17, 0, 0);
    frame[14 + 5] = identification;
    frame[14 + 6] = high;
    frame[14 + 7] = low;
}

static void test_fragments(void)
{
    Link *link = link_new("");
    uint8_t frame[FRAME_BYTES];

    set_entry(link, UDP + CLIENT, ENTRY(1));
    set_entry(link, UDP + SERVER, ENTRY(2));
    for (unsigned i = 0; i < 2; i++) {
        const char *resource = i ? "net-rx" : "net-tx";
        const char *class = i ? "two" : "one";

        make_part(frame, 9, LATER, 0);
        check_class(link, resource, frame, "default");
        make_part(frame, 9, FIRST, 0);
        check_class(link, resource, frame, class);
        make_part(frame, 9, LATER, 0);
        check_class(link, resource, frame, class);
        make_part(frame, 10, LATER, 0);
        check_class(link, resource, frame, "default");
    }
    link_free(link);
}

/* Bytes that mean nothing, tags that no class has, and what comes after the map. */
static void test_entries(void)
{
    Link *link = link_new(",shaper-dscp=auto,shaper-class=two");

    for (unsigned entry = 0; entry < 256; entry++) {
        const char *class = entry == ENTRY(0) ? "default"
                            : entry == ENTRY(1) ? "one"
                            : entry == ENTRY(3) ? "three" : "two";

        set_entry(link, CLIENT, entry);
        check_form(link, "net-tx", FORM_IPV4, 6, class);
    }
    link_free(link);
}

static void check_untagged(Link *link, const char *class, const char *resource,
                           unsigned untagged)
{
    g_assert_cmpint(stat_of(link->net.qts, class, resource, "untagged-requests"),
                    ==, untagged);
}

/* What the card's class gets, and the default class, is nobody's choice; a map's entry is,
 * of the default class too. */
static void test_untagged(void)
{
    Link *link = link_new(",shaper-dscp=outbound,shaper-class=two");
    uint8_t frame[FRAME_BYTES] = { 0 };

    check_form(link, "net-rx", FORM_IPV4, 6, "two");
    check_form(link, "net-tx", FORM_IPV4, 6, "three");
    check_class(link, "net-tx", frame, "two");
    check_untagged(link, "two", "net-rx", 1);
    check_untagged(link, "two", "net-tx", 1);
    check_untagged(link, "three", "net-tx", 0);
    set_entry(link, SERVER, ENTRY(0));
    check_form(link, "net-rx", FORM_IPV4, 6, "default");
    check_untagged(link, "default", "net-rx", 0);
    set_entry(link, SERVER, ENTRY(2));
    check_form(link, "net-rx", FORM_IPV4, 6, "two");
    check_untagged(link, "two", "net-rx", 1);
    set_entry(link, SERVER, ENTRY(9));
    check_form(link, "net-rx", FORM_IPV4, 6, "two");
    check_untagged(link, "two", "net-rx", 2);
    link_free(link);
}

/* A limit of the receiver's class holds frames and new connections from anybody. */
static void test_inbound_limits(void)
{
    Link *link = link_new(",shaper-dscp=off");
    uint8_t frame[FRAME_BYTES];

    set_class(link, "'class': 'one', 'tag': 1, 'queues': [{'resource': 'net-rx', "
              "'connections-per-second': 1}]");
    set_class(link, "'class': 'two', 'tag': 2, 'limits': [{'resource': 'net-rx', "
              LIMIT_1MBPS "}]");
    set_entry(link, SERVER, ENTRY(1));
    make(frame, FORM_IPV4, 6, 0, SLUICE_TCP_SYN);
    check_class(link, "net-rx", frame, "one");
    for (unsigned dropped = 1; dropped < 5; dropped++) {
        send_bytes(link, "net-rx", frame);
        wait_for(drops_of(&link->net, "one", "net-rx", "connection") == dropped);
    }
    check_form(link, "net-rx", FORM_IPV4, 6, "one");

    set_entry(link, UDP + SERVER, ENTRY(2));
    make(frame, FORM_IPV4, 17, 0, 0);
    check_class(link, "net-rx", frame, "two");
    send_bytes(link, "net-rx", frame);
    wait_for(backlog(&link->net, "two", "net-rx") == 1);
    qtest_clock_step(link->net.qts, 2 * FRAME_NS);
    wait_for(backlog(&link->net, "two", "net-rx") == 0);
    link_free(link);
}

/* DSCP */

static void set_dscp(Link *link, const char *value)
{
    qmp_ok(link->net.qts, "{'execute': 'qom-set', 'arguments': {'path': "
           "'/machine/peripheral/net0', 'property': 'shaper-dscp', "
           "'value': %s}}", value);
}

static void check_dscp(Link *link, bool outbound, bool inbound)
{
    check_form(link, "net-tx", FORM_IPV4, 6, outbound ? "three" : "default");
    check_form(link, "net-rx", FORM_IPV6, 6, inbound ? "three" : "default");
}

static void test_dscp(void)
{
    Link *link = link_new(",shaper-dscp=auto");

    /* A process that chooses a DSCP gains nothing while the guest has a map. */
    check_dscp(link, false, false);
    set_map(link, false);
    check_dscp(link, true, false);
    set_dscp(link, "off");
    check_dscp(link, false, false);
    set_dscp(link, "outbound");
    check_dscp(link, true, false);
    set_dscp(link, "both");
    check_dscp(link, true, true);
    set_map(link, true);
    check_dscp(link, true, true);
    set_entry(link, CLIENT, ENTRY(1));
    check_form(link, "net-tx", FORM_IPV4, 6, "one");
    qmp_refused(link->net.qts, "{'execute': 'qom-set', 'arguments': {'path': "
                "'/machine/peripheral/net0', 'property': 'shaper-dscp', "
                "'value': 'sometimes'}}", "sometimes");
    link_free(link);
}

static void test_unmanaged(void)
{
    Link *link = link_new("");

    set_class(link, "'class': 'three', 'tag': 3, 'unmanaged': true");
    check_dscp(link, false, false);
    /* The port map is root's, and may. */
    set_entry(link, CLIENT, ENTRY(3));
    check_form(link, "net-tx", FORM_IPV4, 6, "three");
    set_class(link, "'class': 'three', 'tag': 3, 'unmanaged': false");
    check_dscp(link, true, true);
    link_free(link);
}

/* Life cycle */

static void test_map_goes(void)
{
    Link *link = link_new(",shaper-dscp=off");

    set_entry(link, CLIENT, ENTRY(1));
    check_form(link, "net-tx", FORM_IPV4, 6, "one");
    set_register(&link->channel, SLUICE_CHANNEL_REG_DRIVER, 0);
    check_form(link, "net-tx", FORM_IPV4, 6, "default");
    set_map(link, true);
    check_form(link, "net-tx", FORM_IPV4, 6, "one");
    qpci_unplug_acpi_device_test(link->net.qts, "channel0", CHANNEL_SLOT);
    check_form(link, "net-tx", FORM_IPV4, 6, "default");
    link_free(link);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qtest_add_func("/sluice/net/ports/forms", test_forms);
    qtest_add_func("/sluice/net/ports/fragments", test_fragments);
    qtest_add_func("/sluice/net/ports/entries", test_entries);
    qtest_add_func("/sluice/net/ports/untagged", test_untagged);
    qtest_add_func("/sluice/net/ports/inbound-limits", test_inbound_limits);
    qtest_add_func("/sluice/net/ports/dscp", test_dscp);
    qtest_add_func("/sluice/net/ports/unmanaged", test_unmanaged);
    qtest_add_func("/sluice/net/ports/map-goes", test_map_goes);
    return g_test_run();
}
