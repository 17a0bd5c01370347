/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Deferred calls: step by step, and over random traces against a model that keeps every
 * call that was ever written, and counts what became of it.
 */
#include <stdlib.h>
#include <string.h>

#include "random.h"
#include "sluice/channel.h"
#include "tap.h"

#define MS          1000000ULL
#define TRACES      200
#define STEPS       60

static SluiceChannelGuest *guest;
static SluiceRing ring;

static void begin(uint64_t entries_per_second)
{
    free(guest);
    guest = calloc(1, sizeof(*guest));
    memset(&ring, 0, sizeof(ring));
    sluice_bucket_configure(&ring.bucket, entries_per_second,
                            entries_per_second ? SLUICE_CHANNEL_RING : 0, 0);
}

static void write_call(uint32_t kind, uint32_t delay_ms, uint64_t word)
{
    uint32_t head = SLUICE_LE32(guest->ring_head);

    guest->ring[head % SLUICE_CHANNEL_RING] = (SluiceChannelCall){
        .service = SLUICE_LE32(1), .key = SLUICE_LE32(kind),
        .delay_ms = SLUICE_LE32(delay_ms), .arguments = { SLUICE_LE64(word) },
    };
    guest->ring_head = SLUICE_LE32(head + 1);
}

static void test_in_order(void)
{
    begin(0);
    check(!sluice_ring_waits(&ring, guest));
    check_equal(sluice_ring_take(&ring, guest, 0), 0);
    write_call(0, 0, 11);
    write_call(0, 0, 12);
    check(sluice_ring_waits(&ring, guest));
    check_equal(sluice_ring_take(&ring, guest, 0), 2);
    check_equal(ring.batch[0].arguments[0], 11);
    check_equal(ring.batch[1].arguments[0], 12);
    check(!sluice_ring_waits(&ring, guest));
}

/* Of a kind only the newest counts; without a kind each does. */
static void test_newest_of_a_kind(void)
{
    begin(0);
    write_call(7, 0, 1);
    write_call(0, 0, 2);
    write_call(7, 0, 3);
    write_call(255, 0, 4);
    write_call(0, 0, 5);
    check_equal(sluice_ring_take(&ring, guest, 0), 4);
    check_equal(ring.batch[0].arguments[0], 2);
    check_equal(ring.batch[1].arguments[0], 3);
    check_equal(ring.batch[2].arguments[0], 4);
    check_equal(ring.batch[3].arguments[0], 5);
    check_equal(ring.replaced, 1);
    /* Not those of an earlier taking. */
    write_call(7, 0, 6);
    check_equal(sluice_ring_take(&ring, guest, 0), 1);
    check_equal(ring.replaced, 1);
}

static void test_delayed(void)
{
    begin(0);
    check_equal(sluice_ring_due_ns(&ring), SLUICE_NEVER);
    write_call(7, 20, 1);
    write_call(0, 10, 2);
    check_equal(sluice_ring_take(&ring, guest, 5 * MS), 0);
    check_equal(sluice_ring_due_ns(&ring), 15 * MS);
    check_equal(sluice_ring_due(&ring, 15 * MS - 1), 0);
    check_equal(sluice_ring_due(&ring, 15 * MS), 1);
    check_equal(ring.batch[0].arguments[0], 2);
    /* A newer one of its kind takes its place, delayed or not. */
    write_call(7, 50, 3);
    check_equal(sluice_ring_take(&ring, guest, 16 * MS), 0);
    check_equal(ring.replaced, 1);
    check_equal(sluice_ring_due(&ring, 30 * MS), 0);
    write_call(7, 0, 4);
    check_equal(sluice_ring_take(&ring, guest, 31 * MS), 1);
    check_equal(ring.batch[0].arguments[0], 4);
    check_equal(ring.replaced, 2);
    check_equal(sluice_ring_due(&ring, UINT64_MAX), 0);
}

static void test_too_many_wait(void)
{
    begin(0);
    for (unsigned i = 0; i <= SLUICE_CHANNEL_DELAYED; i++) {
        write_call(0, SLUICE_CHANNEL_DELAY_MAX_MS, i);
    }
    check_equal(sluice_ring_take(&ring, guest, 0), 0);
    check_equal(ring.delayed_count, SLUICE_CHANNEL_DELAYED);
    check_equal(ring.refused, 1);
}

static void test_out_of_range(void)
{
    begin(0);
    write_call(SLUICE_CHANNEL_KINDS, 0, 1);
    write_call(0, SLUICE_CHANNEL_DELAY_MAX_MS + 1, 2);
    write_call(UINT32_MAX, UINT32_MAX, 3);
    write_call(3, 0, 4);
    write_call(3, UINT32_MAX, 5);       /* replaces none, for it does not count */
    check_equal(sluice_ring_take(&ring, guest, 0), 1);
    check_equal(ring.batch[0].arguments[0], 4);
    check_equal(ring.refused, 4);
    check_equal(ring.replaced, 0);
}

static void test_overtaken(void)
{
    begin(0);
    for (unsigned i = 0; i < SLUICE_CHANNEL_RING; i++) {
        write_call(0, 0, i);
    }
    check_equal(sluice_ring_take(&ring, guest, 0), SLUICE_CHANNEL_RING);
    guest->ring_head = SLUICE_LE32(2 * SLUICE_CHANNEL_RING + 1);
    check_equal(sluice_ring_take(&ring, guest, 0), 0);
    check_equal(ring.refused, SLUICE_CHANNEL_RING + 1);
    check(!sluice_ring_waits(&ring, guest));
    /* The count begins again after 2^32. */
    guest->ring_head = SLUICE_LE32(UINT32_MAX);
    sluice_ring_forget(&ring, guest);
    write_call(0, 0, 1);
    write_call(0, 0, 2);
    check_equal(sluice_ring_take(&ring, guest, 0), 2);
    check_equal(ring.batch[1].arguments[0], 2);
    check_equal(ring.tail, 1);
}

/* What is too much stays in the ring. */
static void test_limit(void)
{
    begin(1000);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < SLUICE_CHANNEL_RING; i++) {
            write_call(0, 0, i);
        }
        check_equal(sluice_ring_take(&ring, guest, 0),
                    round == 0 ? SLUICE_CHANNEL_RING : 0);
    }
    check(sluice_ring_waits(&ring, guest));
    check_equal(sluice_ring_take(&ring, guest, 10 * MS), 10);
    check_equal(ring.batch[9].arguments[0], 9);
    check_equal(ring.refused, 0);
}

static void test_forget(void)
{
    begin(0);
    write_call(0, 5, 1);
    check_equal(sluice_ring_take(&ring, guest, 0), 0);
    write_call(0, 0, 2);
    sluice_ring_forget(&ring, guest);
    check_equal(sluice_ring_take(&ring, guest, 0), 0);
    check_equal(sluice_ring_due(&ring, 10 * MS), 0);
}

/* Every call written is taken, replaced, refused, or waits; and comes once. */
typedef struct Model {
    Random random;
    uint64_t now_ns, written, taken;
    uint64_t last_of_kind[SLUICE_CHANNEL_KINDS];        /* numbers, from 1 */
    uint64_t due_ns[TRACES * STEPS];                    /* of each number */
} Model;

static void write_some(Model *model)
{
    for (unsigned i = random_below(&model->random, 9); i > 0; i--) {
        uint32_t kind = random_below(&model->random, 5);
        uint32_t delay_ms = random_chance(&model->random, 40)
                            ? 1 + random_below(&model->random, 50) : 0;

        write_call(kind, delay_ms, ++model->written);
        model->due_ns[model->written] = model->now_ns + delay_ms * MS;
        if (kind) {
            model->last_of_kind[kind] = model->written;
        }
    }
}

static bool check_batch(Model *model, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const SluiceChannelCall *call = &ring.batch[i];
        uint64_t number = call->arguments[0];

        model->taken++;
        if (!check(number >= 1 && number <= model->written)
            || !check(model->due_ns[number] <= model->now_ns)
            || !check(!call->key || model->last_of_kind[call->key] == number)) {
            return false;
        }
        model->due_ns[number] = UINT64_MAX;     /* not again */
    }
    return check_equal(model->taken + ring.replaced + ring.refused
                       + ring.delayed_count, model->written);
}

static void test_traces(void)
{
    static Model model;

    for (unsigned trace = 0; trace < TRACES; trace++) {
        memset(&model, 0, sizeof(model));
        model.random = random_seeded(trace);
        begin(0);
        for (unsigned step = 0; step < STEPS; step++) {
            write_some(&model);
            if (!check_batch(&model, sluice_ring_take(&ring, guest,
                                                      model.now_ns))
                || !check_batch(&model, sluice_ring_due(&ring,
                                                        model.now_ns))) {
                printf("# in trace %u, step %u\n", trace, step);
                return;
            }
            model.now_ns += random_below(&model.random, 10) * MS;
        }
    }
}

int main(void)
{
    static const TapTest tests[] = {
        { "ring: in order", test_in_order },
        { "ring: newest of a kind", test_newest_of_a_kind },
        { "ring: delayed", test_delayed },
        { "ring: too many wait", test_too_many_wait },
        { "ring: out of range", test_out_of_range },
        { "ring: overtaken", test_overtaken },
        { "ring: what is too much stays", test_limit },
        { "ring: forgotten", test_forget },
        { "ring: random traces", test_traces },
    };
    int status = tap_run(tests, sizeof(tests) / sizeof(tests[0]));

    free(guest);
    return status;
}
