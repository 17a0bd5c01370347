/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reservation of buffer space: worked numbers, then random wishes. */
#include "sluice/pool.h"
#include "random.h"
#include "tap.h"

#define KIB         1024ULL
#define COUNT       16
#define FRAMES_MIN  (SLUICE_QUEUE_BYTES_MIN / SLUICE_QUEUE_FRAME_BYTES)
#define CHUNKS_MIN  (SLUICE_QUEUE_BYTES_MIN / SLUICE_CHUNK_BYTES + FRAMES_MIN)

static void test_by_rate(void)
{
    SluiceQueueWish wishes[] = {
        { .used = true },
        { .used = true, .bytes_per_second = 1000 },
        { .used = true, .bytes_per_second = 10000000 },
        { .used = false, .bytes_per_second = 10000000 },
        { .used = true, .bytes_per_second = 10000000, .limit_bytes = 3000 },
        { .used = true, .limit_bytes = 100 },
        { .used = true, .limit_frames = 7 },
    };
    SluiceQueueRoom rooms[7];

    sluice_reserve(wishes, rooms, 7, SLUICE_POOL_CHUNKS_MAX);
    check_equal(rooms[0].bytes, 128 * KIB);
    check_equal(rooms[0].frames, 1024);
    check_equal(rooms[1].bytes, 128 * KIB);
    check_equal(rooms[2].bytes, 500000);
    check_equal(rooms[2].frames, 500000 / 128);
    check_equal(rooms[3].bytes, 0);
    check_equal(rooms[3].frames, 0);
    check_equal(rooms[4].bytes, 3000);
    check_equal(rooms[4].frames, 23);
    check_equal(rooms[5].bytes, 100);
    check_equal(rooms[5].frames, 1);
    check_equal(rooms[6].bytes, 128 * KIB);
    check_equal(rooms[6].frames, 7);
}

/* Two queues at 3 to 1, far more than there is. */
static void test_in_proportion(void)
{
    SluiceQueueWish wishes[] = {
        { .used = true, .bytes_per_second = 30000000000 },
        { .used = true, .bytes_per_second = 10000000000 },
    };
    SluiceQueueRoom rooms[2];
    uint64_t above;

    sluice_reserve(wishes, rooms, 2, SLUICE_POOL_CHUNKS_MAX);
    above = (rooms[1].bytes - 128 * KIB) * 3;
    /* The wish of the faster misses a little less than three times as much. */
    check(rooms[0].bytes - 128 * KIB >= above);
    check(rooms[0].bytes - 128 * KIB <= above + above / 1000);
    check(sluice_room_chunks(&rooms[0]) + sluice_room_chunks(&rooms[1])
          > SLUICE_POOL_CHUNKS_MAX - 8);
}

/* Bytes left beyond whole chunks must not add up to a chunk more than
 * there is: no pool would be made for such rooms. */
static void test_odd_bytes(void)
{
    SluiceQueueWish wishes[] = {
        { .used = true, .limit_bytes = 4321791, .limit_frames = 1 },
        { .used = true, .limit_bytes = 4730879, .limit_frames = 1 },
        { .used = true, .limit_bytes = 13554408, .limit_frames = 1 },
        { .used = true, .limit_bytes = 5816831, .limit_frames = 1 },
        { .used = true, .limit_bytes = 38123263, .limit_frames = 1 },
    };
    const uint64_t pool = SLUICE_POOL_CHUNKS_MAX - COUNT * SLUICE_POOL_PIECES_MAX;
    SluiceQueueRoom rooms[5];
    uint64_t sum = 0;

    sluice_reserve(wishes, rooms, 5, pool);
    for (unsigned i = 0; i < 5; i++) {
        sum += sluice_room_chunks(&rooms[i]);
    }
    check(sum <= pool);
    check(sum > pool - 2 * 5);
}

static void random_wishes(Random *random, SluiceQueueWish *wishes)
{
    for (unsigned i = 0; i < COUNT; i++) {
        wishes[i] = (SluiceQueueWish){
            .used = random_chance(random, 70),
            .bytes_per_second = random_chance(random, 30)
                                ? 0 : random_magnitude(random, 40),
            .limit_bytes = random_chance(random, 60)
                           ? 0 : random_magnitude(random, 30),
            .limit_frames = random_chance(random, 60)
                            ? 0 : random_magnitude(random, 31),
        };
    }
}

static bool check_rooms(const SluiceQueueWish *wishes,
                        const SluiceQueueRoom *rooms,
                        const SluiceQueueRoom *wished, uint64_t pool)
{
    uint64_t sum = 0, wanted = 0;
    bool as_wished = true;

    for (unsigned i = 0; i < COUNT; i++) {
        uint64_t bytes_min = wished[i].bytes < 128 * KIB ? wished[i].bytes
                                                         : 128 * KIB;

        sum += sluice_room_chunks(&rooms[i]);
        wanted += sluice_room_chunks(&wished[i]);
        as_wished &= rooms[i].bytes == wished[i].bytes
                     && rooms[i].frames == wished[i].frames;
        if (!check(rooms[i].bytes <= wished[i].bytes)
            || !check(rooms[i].frames <= wished[i].frames)
            || !check(rooms[i].bytes >= bytes_min)
            || !check((rooms[i].frames > 0) == wishes[i].used)) {
            return false;
        }
    }
    return check(sum <= pool) && (wanted > pool || check(as_wished));
}

static void test_random(void)
{
    uint64_t seed = tap_setting("SLUICE_TEST_SEED", 1);
    uint64_t traces = tap_setting("SLUICE_TEST_TRACES", 300) * 100;
    Random random = random_seeded(seed);

    for (uint64_t i = 0; i < traces; i++) {
        uint64_t pool = COUNT * CHUNKS_MIN
                        + random_below(&random, SLUICE_POOL_CHUNKS_MAX);
        SluiceQueueWish wishes[COUNT];
        SluiceQueueRoom rooms[COUNT], wished[COUNT];

        random_wishes(&random, wishes);
        sluice_reserve(wishes, rooms, COUNT, pool);
        sluice_reserve(wishes, wished, COUNT, UINT64_MAX);
        if (!check_rooms(wishes, rooms, wished, pool)) {
            printf("# seed %" PRIu64 ", trace %" PRIu64 "\n", seed, i);
            return;
        }
    }
}

static const TapTest tests[] = {
    { "reserve/by rate", test_by_rate },
    { "reserve/in proportion", test_in_proportion },
    { "reserve/odd bytes", test_odd_bytes },
    { "reserve/property: random wishes", test_random },
};

int main(void)
{
    return tap_run(tests, sizeof(tests) / sizeof(tests[0]));
}
