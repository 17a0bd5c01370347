/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Shaping in virtio-net: the life cycle of a device, above its two directions (net-tx.c,
 * net-rx.c). Migration is in net-state.c.
 */
#include "qemu/osdep.h"
#include "hw/qdev-properties.h"
#include "hw/virtio/virtio-bus.h"
#include "migration/misc.h"             /* first: the next needs its types */
#include "migration/client-options.h"
#include "net-internal.h"
#include "net/vhost_net.h"
#include "qapi/error.h"
#include "qemu/main-loop.h"
#include "system/runstate.h"

/* Release, stop and resume */

static void pair_ready(ShaperClient *client)
{
    SluiceNetPair *pair = container_of(client, SluiceNetPair, client);

    if (shaper_client_has_ready(client, SHAPER_RESOURCE_NET_TX)) {
        sluice_net_tx_kick(pair);
    }
    if (shaper_client_has_ready(client, SHAPER_RESOURCE_NET_RX)) {
        sluice_net_rx_deliver(pair->net->n, pair->index);
    }
}

static void vm_state_changed(void *opaque, bool running, RunState state)
{
    SluiceNet *net = opaque;
    unsigned active = net->n->multiqueue ? net->count : 1;

    for (unsigned i = 0; i < active; i++) {
        if (running) {
            sluice_net_tx_kick(&net->pairs[i]);
        } else {
            sluice_net_tx_withdraw(&net->pairs[i]);
        }
    }
}

/*
 * Received frames go by another way from now on: the target's. A background
 * snapshot ends with the same event, but the machine stays, running or stopped.
 */
static int migration_changed(NotifierWithReturn *notifier,
                             MigrationEvent *event, Error **errp)
{
    SluiceNet *net = container_of(notifier, SluiceNet, migration);

    if (event->type == MIG_EVENT_PRECOPY_DONE && !runstate_is_running()
        && !migrate_background_snapshot()) {
        for (unsigned i = 0; i < net->count; i++) {
            sluice_net_rx_drop(&net->pairs[i]);
        }
    }
    return 0;
}

void sluice_net_reset(VirtIONet *n, unsigned index)
{
    sluice_net_tx_reset(n, index);
    sluice_net_rx_drop(&n->sluice->pairs[index]);
}

/* Life cycle */

static bool check_peers(VirtIONet *n, Error **errp)
{
    DeviceState *proxy = DEVICE(qdev_get_parent_bus(DEVICE(n))->parent);

    for (int i = 0; i < n->nic_conf.peers.queues; i++) {
        NetClientState *peer = n->nic_conf.peers.ncs[i];

        if (peer->info->type == NET_CLIENT_DRIVER_VHOST_USER
            || peer->info->type == NET_CLIENT_DRIVER_VHOST_VDPA
            || get_vhost_net(peer)) {
            g_autofree char *name = qdev_get_human_name(proxy);

            error_setg(errp, "device '%s': shaper '%s' cannot shape netdev "
                       "'%s', whose vhost backend bypasses QEMU; use a tap "
                       "with vhost=off (libvirt: <driver name='qemu'/>)",
                       name, shaper_id(n->shaper), peer->name);
            return false;
        }
    }
    return true;
}

bool sluice_net_check(VirtIONet *n, Error **errp)
{
    if (!n->shaper && n->shaper_class) {
        error_setg(errp, "shaper-class '%s' needs a shaper; give the device "
                   "shaper= too", n->shaper_class);
        return false;
    }
    return shaper_check_queues(n->shaper, n->shaper_queues,
                               MAX(n->nic_conf.peers.queues, 1), errp)
           && (!n->shaper || check_peers(n, errp));
}

void sluice_net_realize(VirtIONet *n)
{
    SluiceNet *net = g_malloc0(sizeof(SluiceNet)
                               + n->max_queue_pairs * sizeof(SluiceNetPair));

    net->n = n;
    net->count = n->max_queue_pairs;
    net->default_generation = UINT64_MAX;
    net->scratch = g_malloc(SLUICE_POOL_FRAME_BYTES_MAX);
    net->retry = virtio_bh_new_guarded(DEVICE(n), sluice_net_rx_retry, net);
    n->sluice = net;
    for (unsigned i = 0; i < net->count; i++) {
        SluiceNetPair *pair = &net->pairs[i];

        pair->net = net;
        pair->index = i;
        shaper_client_init(&pair->client, n->shaper, DEVICE(n), pair_ready);
        shaper_client_set_queue(&pair->client, n->shaper_queues, i);
        sluice_net_tx_init(pair);
        sluice_net_rx_init(pair);
    }
    net->change = qdev_add_vm_change_state_handler(DEVICE(n), vm_state_changed,
                                                   net);
    migration_add_notifier(&net->migration, migration_changed);
}

void sluice_net_unrealize(VirtIONet *n)
{
    SluiceNet *net = n->sluice;

    migration_remove_notifier(&net->migration);
    qemu_del_vm_change_state_handler(net->change);
    for (unsigned i = 0; i < net->count; i++) {
        SluiceNetPair *pair = &net->pairs[i];

        sluice_net_tx_destroy(pair);
        sluice_net_rx_destroy(pair);
        shaper_client_destroy(&pair->client);
    }
    qemu_bh_delete(net->retry);
    g_free(net->scratch);
    g_free(net);
    n->sluice = NULL;
}
