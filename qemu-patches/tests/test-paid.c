/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The sum of the charges of requests that have not gone on: step by step, and over
 * random stops of two queues whose class changes its buckets meanwhile, against a list
 * of receipts.
 */
#include "random.h"
#include "sluice/paid.h"
#include "tap.h"

#define STEPS           20000
#define QUEUES          2
#define RELEASED_MAX    32

static SluiceTokens given(const SluicePaid *paid, uint32_t serial_now)
{
    SluiceTokens tokens = { .bytes = -5, .operations = 7 };

    sluice_paid_give(paid, serial_now, &tokens);
    tokens.bytes += 5;
    tokens.operations -= 7;
    return tokens;
}

static void test_buckets_begin_anew(void)
{
    SluicePaid paid = { 0 };

    sluice_paid_add(&paid, 3, 4096, 3);
    sluice_paid_add(&paid, 3, 512, 3);
    check_equal(given(&paid, 3).bytes, 4608);
    check_equal(given(&paid, 3).operations, 2);
    sluice_paid_remove(&paid, 3, 4096);
    check_equal(given(&paid, 3).bytes, 512);
    check_equal(given(&paid, 3).operations, 1);
    check_equal(given(&paid, 4).bytes, 0);
    check_equal(given(&paid, 4).operations, 0);
}

/* Each queue has one that the earlier buckets were charged for, and one of these. */
static void test_queue_after_queue(void)
{
    SluicePaid paid = { 0 };

    for (unsigned queue = 0; queue < QUEUES; queue++) {
        sluice_paid_add(&paid, 3, 4096, 4);
        sluice_paid_add(&paid, 4, 65536, 4);
    }
    check_equal(given(&paid, 4).bytes, QUEUES * 65536);
    check_equal(given(&paid, 4).operations, QUEUES);
    for (unsigned queue = 0; queue < QUEUES; queue++) {
        sluice_paid_remove(&paid, 3, 4096);
        sluice_paid_remove(&paid, 4, 65536);
    }
    check_equal(given(&paid, 4).bytes, 0);
    check_equal(given(&paid, 4).operations, 0);
}

static void test_unlimited(void)
{
    SluicePaid paid = { 0 };
    SluiceTokens tokens = { .bytes = SLUICE_TOKENS_UNLIMITED,
                            .operations = SLUICE_TOKENS_UNLIMITED };

    sluice_paid_add(&paid, 0, UINT32_MAX, 0);
    sluice_paid_give(&paid, 0, &tokens);
    check(tokens.bytes == SLUICE_TOKENS_UNLIMITED);
    check(tokens.operations == SLUICE_TOKENS_UNLIMITED);
}

/* A request that was let go, and may be in the sum. */
typedef struct Released {
    uint32_t serial, bytes;
    bool added;
} Released;

typedef struct Model {
    SluicePaid paid;
    uint32_t serial_now;
    Released released[QUEUES][RELEASED_MAX];
    unsigned counts[QUEUES];
} Model;

static void let_go(Model *model, Random *random)
{
    unsigned queue = random_below(random, QUEUES);

    if (model->counts[queue] < RELEASED_MAX) {
        model->released[queue][model->counts[queue]++] = (Released){
            .serial = model->serial_now, .bytes = random_next(random),
        };
    }
}

static void stop(Model *model)
{
    for (unsigned queue = 0; queue < QUEUES; queue++) {
        for (unsigned i = 0; i < model->counts[queue]; i++) {
            Released *released = &model->released[queue][i];

            if (!released->added) {
                released->added = true;
                sluice_paid_add(&model->paid, released->serial,
                                released->bytes, model->serial_now);
            }
        }
    }
}

/* The oldest goes on. */
static void go_on(Model *model, unsigned queue)
{
    Released *all = model->released[queue];

    if (model->counts[queue] == 0) {
        return;
    }
    if (all[0].added) {
        sluice_paid_remove(&model->paid, all[0].serial, all[0].bytes);
    }
    model->counts[queue]--;
    for (unsigned i = 0; i < model->counts[queue]; i++) {
        all[i] = all[i + 1];
    }
}

static bool is_right(const Model *model)
{
    SluiceTokens tokens = given(&model->paid, model->serial_now);
    uint64_t bytes = 0, operations = 0;

    for (unsigned queue = 0; queue < QUEUES; queue++) {
        for (unsigned i = 0; i < model->counts[queue]; i++) {
            const Released *released = &model->released[queue][i];

            if (released->added && released->serial == model->serial_now) {
                bytes += released->bytes;
                operations++;
            }
        }
    }
    return check_equal(tokens.bytes, bytes)
           && check_equal(tokens.operations, operations);
}

static void test_random_stops(void)
{
    Random random = { .state = 20 };
    Model model = { .serial_now = 1 };

    for (unsigned step = 0; step < STEPS && is_right(&model); step++) {
        switch (random_below(&random, 8)) {
        case 0:
            model.serial_now++;
            break;
        case 1:
            stop(&model);
            break;
        case 2:
        case 3:
            go_on(&model, random_below(&random, QUEUES));
            break;
        default:
            let_go(&model, &random);
        }
    }
}

static const TapTest tests[] = {
    { "paid/buckets that begin anew are owed nothing", test_buckets_begin_anew },
    { "paid/queue after queue, with receipts of two serials",
      test_queue_after_queue },
    { "paid/an unlimited bucket stays it", test_unlimited },
    { "paid/property: the sum is that of the receipts", test_random_stops },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
