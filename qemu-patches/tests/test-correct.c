/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The charge of an admitted request afterwards: corrections and refunds, also where
 * class, ceiling or group is another by then.
 */
#include "evict.h"
#include "sluice/engine.h"
#include "group-writer.h"
#include "tap.h"

#define MS  1000000ULL

/* One unit is one millisecond; an operation takes a second. */
static const SluiceLimit kilobyte = { .bytes_per_second = 1000,
                                      .burst_bytes = 500 };
static const SluiceLimit operations = { .operations_per_second = 1,
                                        .burst_operations = 1 };
static const SluiceLimit unlimited;

static _Alignas(128) SluiceGroupPage page;

static void set_limit(SluiceEngine *engine, uint32_t class_index,
                      SluiceLimit limit)
{
    SluiceClassConfig config = { .limit = limit };

    check(sluice_engine_set_class(engine, class_index, &config, 0));
}

static void set_ceiling(SluiceEngine *engine, uint64_t rate, uint64_t burst)
{
    SluiceLimit limit = { .bytes_per_second = rate, .burst_bytes = burst };

    check(sluice_engine_set_ceiling(engine, &limit, 0));
}

/* The receipt of a request that passes. */
static SluiceReceipt pass(SluiceEngine *engine, uint32_t class_index,
                          uint32_t bytes)
{
    SluiceNode node;

    check_equal(sluice_engine_submit(engine, class_index, &node, bytes, 0),
                SLUICE_PASS);
    return sluice_engine_receipt(engine, class_index, bytes);
}

static void hold(SluiceEngine *engine, uint32_t class_index, SluiceNode *node)
{
    check_equal(sluice_engine_submit(engine, class_index, node, 1, 0),
                SLUICE_HOLD);
}

static void drain(SluiceEngine *engine)
{
    while (evict(engine)) {
        /* Only its end matters. */
    }
    sluice_engine_free(engine);
}

/* Corrections */

static void test_correction_gives_back_and_takes(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceReceipt receipt;
    SluiceNode nodes[2];

    set_ceiling(engine, 1000, 500);
    set_limit(engine, 0, kilobyte);
    receipt = pass(engine, 0, 1500);
    hold(engine, 0, &nodes[1]);
    check_equal(sluice_engine_next_event_ns(engine), 1000 * MS + 1);
    sluice_engine_correct(engine, &receipt, -500, 0);
    check_equal(sluice_engine_next_event_ns(engine), 500 * MS + 1);
    sluice_engine_correct(engine, &receipt, 700, 0);
    check_equal(sluice_engine_next_event_ns(engine), 1200 * MS + 1);
    /* Never more than a full bucket. */
    sluice_engine_correct(engine, &receipt, -1000000, 0);
    check(sluice_engine_release(engine, 0) == &nodes[1]);
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 499, 0),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &nodes[0], 1, 0), SLUICE_HOLD);
    drain(engine);
}

static void test_correction_takes_a_ready_class_back(void)
{
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceReceipt receipt;
    SluiceNode node, passed;

    set_ceiling(engine, 1000, 0);
    sluice_engine_submit(engine, 1, &passed, 100, 0);
    set_limit(engine, 0, kilobyte);
    check_equal(sluice_engine_submit(engine, 0, &node, 100, 0), SLUICE_HOLD);
    receipt = sluice_engine_receipt(engine, 0, 100);
    sluice_engine_correct(engine, &receipt, 1000, 0);
    check_equal(sluice_engine_next_event_ns(engine), 1100 * MS);
    check(!sluice_engine_release(engine, 1100 * MS - 1));
    check(sluice_engine_release(engine, 1100 * MS) == &node);
    sluice_engine_free(engine);
}

/* Of a released request, and with the minimum of its class. */
static void test_a_receipt_says_what_was_charged(void)
{
    SluiceClassConfig config = { .limit = kilobyte, .charge_min_bytes = 600 };
    SluiceEngine *engine = sluice_engine_new(2);
    SluiceReceipt receipt;

    check(sluice_engine_set_class(engine, 1, &config, 0));
    receipt = pass(engine, 1, 10);
    check_equal(receipt.bytes, 600);
    check(receipt.charged);
    check(sluice_engine_has_charged(engine, &receipt, 1));
    check(!sluice_engine_has_charged(engine, &receipt, 0));
    config = (SluiceClassConfig){ .unmanaged = true };
    check(sluice_engine_set_class(engine, 1, &config, 0));
    check(!sluice_engine_receipt(engine, 1, 10).charged);
    sluice_engine_free(engine);
}

/* A change of the rate, or of anything else, leaves the buckets as they are. */
static void test_correction_reaches_a_class_that_was_changed(void)
{
    SluiceClassConfig config = {
        .limit = { .bytes_per_second = 2000, .burst_bytes = 500 },
        .priority = 7, .charge_min_bytes = 50, .weight = 3,
    };
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceReceipt receipt;
    SluiceNode node;

    set_limit(engine, 0, kilobyte);
    receipt = pass(engine, 0, 1500);
    check(sluice_engine_set_class(engine, 0, &config, 0));
    hold(engine, 0, &node);
    check_equal(sluice_engine_next_event_ns(engine), 500 * MS + 1);
    sluice_engine_correct(engine, &receipt, -500, 0);
    check_equal(sluice_engine_next_event_ns(engine), 250 * MS + 1);
    drain(engine);
}

/* Its limit goes with a class; the next one at its index has another. */
static void test_correction_does_not_reach_a_stranger(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceReceipt receipt;
    SluiceNode node;

    set_ceiling(engine, 1000, 100);
    set_limit(engine, 0, kilobyte);
    receipt = pass(engine, 0, 1500);
    set_limit(engine, 0, unlimited);
    check(!sluice_engine_has_charged(engine, &receipt, 0));
    set_limit(engine, 0, kilobyte);
    check(!sluice_engine_has_charged(engine, &receipt, 0));
    /* The ceiling is as it was: of 1400 bytes of debt 400 are left. */
    sluice_engine_correct(engine, &receipt, -1000, 0);
    hold(engine, 0, &node);
    check_equal(sluice_engine_next_event_ns(engine), 400 * MS + 1);
    check(sluice_engine_release(engine, 400 * MS + 1) == &node);
    /* The class has a full bucket, less the one byte. */
    sluice_engine_correct(engine, &receipt, 1000000, 400 * MS + 1);
    sluice_engine_set_ceiling(engine, &unlimited, 400 * MS + 1);
    check_equal(sluice_engine_submit(engine, 0, &node, 498, 400 * MS + 1),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &node, 1, 400 * MS + 1),
                SLUICE_PASS);
    check_equal(sluice_engine_submit(engine, 0, &node, 1, 400 * MS + 1),
                SLUICE_HOLD);
    drain(engine);
}

static void test_correction_does_not_reach_another_ceiling(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceReceipt receipt;
    SluiceNode node;

    receipt = pass(engine, 0, 1500);
    set_ceiling(engine, 1000, 500);
    check_equal(sluice_engine_submit(engine, 0, &node, 700, 0), SLUICE_PASS);
    hold(engine, 0, &node);
    check_equal(sluice_engine_next_event_ns(engine), 200 * MS + 1);
    sluice_engine_correct(engine, &receipt, -500, 0);
    check_equal(sluice_engine_next_event_ns(engine), 200 * MS + 1);
    drain(engine);
}

/* It cost nothing, so nothing is given back, also if its class is another now. */
static void test_correction_of_an_unmanaged_request(void)
{
    SluiceClassConfig config = { .unmanaged = true };
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceReceipt receipt;
    SluiceNode node;

    set_ceiling(engine, 1000, 500);
    check(sluice_engine_set_class(engine, 0, &config, 0));
    receipt = pass(engine, 0, 1500);
    config.unmanaged = false;
    check(sluice_engine_set_class(engine, 0, &config, 0));
    check_equal(sluice_engine_submit(engine, 0, &node, 700, 0), SLUICE_PASS);
    hold(engine, 0, &node);
    sluice_engine_correct(engine, &receipt, -500, 0);
    sluice_engine_refund(engine, &receipt, 0);
    check_equal(sluice_engine_next_event_ns(engine), 200 * MS + 1);
    drain(engine);
}

/* Refunds */

static void test_refund_gives_back_bytes_and_operation(void)
{
    SluiceEngine *engine = sluice_engine_new(1);
    SluiceReceipt receipt;
    SluiceNode node;

    set_limit(engine, 0, (SluiceLimit){
        .bytes_per_second = 1000, .burst_bytes = 500,
        .operations_per_second = 1, .burst_operations = 1 });
    check(sluice_engine_set_ceiling(engine, &operations, 0));
    receipt = pass(engine, 0, 1500);
    hold(engine, 0, &node);
    check_equal(sluice_engine_next_event_ns(engine), 1000 * MS + 1);
    sluice_engine_refund(engine, &receipt, 0);
    check_equal(sluice_engine_next_event_ns(engine), 0);
    check(sluice_engine_release(engine, 0) == &node);
    drain(engine);
}

/* Groups */

static void new_page(SluiceGroupUnit unit)
{
    SluiceGroupLimit limit = { .unit = unit, .rate = 1000, .burst = 10000 };

    check(group_page_init(&page, "test", &limit, 0));
}

static SluiceEngine *new_member(SluiceGroupMember *member)
{
    SluiceEngine *engine = sluice_engine_new(1);

    check_equal(sluice_group_join(member, &page, sizeof(page), 1, "vm", 100, 0),
                SLUICE_GROUP_OK);
    sluice_engine_set_group(engine, member);
    return engine;
}

static void test_refund_reaches_the_group(void)
{
    static const SluiceGroupUnit units[] = { SLUICE_GROUP_BYTES,
                                             SLUICE_GROUP_OPERATIONS };

    for (unsigned i = 0; i < 2; i++) {
        SluiceGroupMember member;
        SluiceEngine *engine;
        SluiceReceipt receipt;

        new_page(units[i]);
        engine = new_member(&member);
        receipt = pass(engine, 0, 4000);
        pass(engine, 0, 3000);
        check_equal(page.tat_units, i ? 2 : 7000);
        sluice_engine_refund(engine, &receipt, 0);
        check_equal(page.tat_units, i ? 1 : 3000);
        sluice_engine_set_group(engine, NULL);
        sluice_engine_free(engine);
    }
}

/* Of requests that went before the engine joined, or joined again. */
static void test_correction_does_not_reach_another_group(void)
{
    SluiceGroupMember member;
    SluiceEngine *engine;
    SluiceReceipt receipt;

    new_page(SLUICE_GROUP_BYTES);
    engine = new_member(&member);
    receipt = pass(engine, 0, 4000);
    sluice_engine_set_group(engine, NULL);
    sluice_engine_correct(engine, &receipt, 1000, 0);
    sluice_engine_set_group(engine, &member);
    pass(engine, 0, 3000);
    sluice_engine_correct(engine, &receipt, -4000, 0);
    sluice_engine_correct(engine, &receipt, 16000, 0);
    sluice_engine_refund(engine, &receipt, 0);
    check_equal(page.tat_units, 7000);
    sluice_engine_set_group(engine, NULL);
    sluice_engine_free(engine);
}

static const TapTest tests[] = {
    { "correct/gives back and takes", test_correction_gives_back_and_takes },
    { "correct/takes a ready class back",
      test_correction_takes_a_ready_class_back },
    { "correct/a receipt says what was charged",
      test_a_receipt_says_what_was_charged },
    { "correct/reaches a class that was changed",
      test_correction_reaches_a_class_that_was_changed },
    { "correct/does not reach a stranger",
      test_correction_does_not_reach_a_stranger },
    { "correct/does not reach another ceiling",
      test_correction_does_not_reach_another_ceiling },
    { "correct/an unmanaged request cost nothing",
      test_correction_of_an_unmanaged_request },
    { "correct/a refund gives back bytes and operation",
      test_refund_gives_back_bytes_and_operation },
    { "correct/a refund reaches the group", test_refund_reaches_the_group },
    { "correct/does not reach another group",
      test_correction_does_not_reach_another_group },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
