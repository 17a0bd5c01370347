/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The engine's life cycle and configuration. The essay is in engine.c. */
#include <stdlib.h>
#include <string.h>

#include "engine-internal.h"

/* Lifecycle */

SluiceEngine *sluice_engine_new(uint32_t classes)
{
    SluiceEngine *engine = aligned_alloc(CACHE_LINE_BYTES, sizeof(*engine));

    assert(classes > 0 && classes <= SLUICE_CLASSES_MAX);
    if (!engine) {
        return NULL;
    }
    memset(engine, 0, sizeof(*engine));
    engine->class_count = classes;
    engine->classes = aligned_alloc(CACHE_LINE_BYTES,
                                    classes * sizeof(*engine->classes));
    if (!engine->classes) {
        free(engine);
        return NULL;
    }
    engine->due_first_ns = UINT64_MAX;
    sluice_gate_init(&engine->gate);
    for (uint32_t i = 0; i < classes; i++) {
        engine->classes[i] = (SluiceClass){ .priority = DEFAULT_PRIORITY };
        eevdf_set_weight(&engine->classes[i], SLUICE_WEIGHT_DEFAULT);
    }
    return engine;
}

void sluice_engine_free(SluiceEngine *engine)
{
    if (!engine) {
        return;
    }
    assert(!engine->due && !ready_mask(engine));
    for (uint32_t i = 0; i < engine->class_count; i++) {
        free(engine->classes[i].extra);
    }
    free(engine->classes);
    free(engine);
}

/* Validation */

static bool limit_is_valid(const SluiceLimit *limit)
{
    return limit->bytes_per_second <= SLUICE_RATE_MAX
           && limit->operations_per_second <= SLUICE_RATE_MAX
           && limit->burst_bytes <= SLUICE_BURST_MAX
           && limit->burst_operations <= SLUICE_BURST_MAX;
}

static bool window_is_valid(const SluiceWindow *window)
{
    return window->period_ns == 0
           || (window->period_ns <= SLUICE_WINDOW_PERIOD_MAX_NS
               && window->bytes > 0 && window->may_miss < window->of);
}

/* A peak belongs to its policy, and is no slower than the rate it follows. */
static bool peak_is_valid(const SluiceClassConfig *config)
{
    uint64_t peak = config->peak_bytes_per_second;

    if (config->policy != SLUICE_POLICY_TOKEN_LEAKY) {
        return peak == 0;
    }
    return peak > 0 && peak <= SLUICE_RATE_MAX
           && config->limit.bytes_per_second > 0
           && peak >= config->limit.bytes_per_second;
}

static uint64_t reservation_of(const SluiceClassConfig *config)
{
    return config->window.period_ns ? window_reservation(&config->window)
                                    : config->reservation_bytes_per_second;
}

/* A promise must be allowed by the limit, if there is one. */
static bool reservation_is_valid(const SluiceClassConfig *config)
{
    uint64_t limit = config->limit.bytes_per_second;

    return !(config->window.period_ns && config->reservation_bytes_per_second)
           && reservation_of(config) <= (limit ? limit : SLUICE_RATE_MAX);
}

static bool config_is_valid(const SluiceClassConfig *config)
{
    return limit_is_valid(&config->limit)
           && config->priority <= SLUICE_PRIORITY_MAX
           && config->policy < SLUICE_POLICIES
           && config->dynamic < SLUICE_DYNAMICS
           && config->weight <= SLUICE_WEIGHT_MAX
           && window_is_valid(&config->window)
           && peak_is_valid(config)
           && reservation_is_valid(config);
}

/* Application */

static bool needs_extra(const SluiceClassConfig *config)
{
    return config->policy == SLUICE_POLICY_TOKEN_LEAKY || config->dynamic
           || config->window.period_ns;
}

/* A reservation that is as it was keeps its turns. */
static void configure_reservation(SluiceEngine *engine, SluiceClass *class,
                                  uint64_t rate, uint64_t now_ns)
{
    SluiceBucket bucket = { 0 };

    if (rate == class->reservation_rate) {
        return;
    }
    sluice_bucket_configure(&bucket, rate, 0,
                            engine_reservations_now(engine, now_ns));
    class->reservation = (Turns){
        .due_ns = bucket.due_ns,
        .unit_ns = bucket.unit_ns,
        .unit_fraction = bucket.unit_fraction,
    };
    class->reservation_rate = rate;
}

static uint8_t special_of(const SluiceClassConfig *config)
{
    return (config->unmanaged ? SPECIAL_UNMANAGED : 0)
           | (config->policy == SLUICE_POLICY_LEAKY_BUCKET ? SPECIAL_LEAKY : 0)
           | (config->policy == SLUICE_POLICY_TOKEN_LEAKY ? SPECIAL_PEAK : 0)
           | (config->dynamic ? SPECIAL_DYNAMIC : 0)
           | (config->window.period_ns ? SPECIAL_WINDOW : 0);
}

/* A peak has no burst, and ends with its policy. */
static void configure_special(SluiceClass *class,
                              const SluiceClassConfig *config, uint64_t now_ns)
{
    class->special = (class->special & SPECIAL_HOLDS) | special_of(config);
    if (class->extra) {
        sluice_bucket_configure(&class->extra->peak,
                                config->peak_bytes_per_second, 0, now_ns);
        flows_configure(class, config->dynamic);
        window_configure(class, &config->window);
    }
}

static uint64_t longest_window_ns(const SluiceEngine *engine)
{
    uint64_t longest_ns = 0;

    for (uint32_t i = 0; i < engine->class_count; i++) {
        longest_ns = later_ns(longest_ns, window_period_ns(&engine->classes[i]));
    }
    return longest_ns;
}

static void forgo_turns_before(SluiceEngine *engine, int64_t first_ns)
{
    for (uint32_t i = 0; i < engine->class_count; i++) {
        Turns *reservation = &engine->classes[i].reservation;

        reservation->due_ns = reservation->due_ns > first_ns
                              ? reservation->due_ns : first_ns;
    }
}

/*
 * When the longest period becomes shorter, reserved service may be late by less.
 * Turns that are later already are lost to their classes: were the clock to stand
 * still for them, all would lose as much.
 */
static void note_window(SluiceEngine *engine, uint64_t now_ns)
{
    uint64_t before_ns = engine->longest_window_ns;
    int64_t clock_ns = engine_reservations_now(engine, now_ns);

    engine->longest_window_ns = longest_window_ns(engine);
    if (engine->longest_window_ns < before_ns) {
        forgo_turns_before(engine, clock_ns
                                   - (int64_t)reservations_late_max_ns(engine));
    }
}

static void configure(SluiceEngine *engine, SluiceClass *class,
                      const SluiceClassConfig *config, uint64_t now_ns)
{
    static const SluiceLimit unlimited;
    const SluiceLimit *limit = config->unmanaged ? &unlimited : &config->limit;
    bool leaky = config->policy == SLUICE_POLICY_LEAKY_BUCKET;
    bool had_bytes = bucket_is_limited(&class->bytes);
    bool had_operations = bucket_is_limited(&class->operations);

    sluice_bucket_configure(&class->bytes, limit->bytes_per_second,
                            leaky ? 0 : limit->burst_bytes, now_ns);
    sluice_bucket_configure(&class->operations, limit->operations_per_second,
                            leaky ? 0 : limit->burst_operations, now_ns);
    class->bytes_per_ns = limit->bytes_per_second / 1e9;
    class->operations_per_ns = limit->operations_per_second / 1e9;
    class->serial += had_bytes != bucket_is_limited(&class->bytes)
                     || had_operations != bucket_is_limited(&class->operations);
    configure_reservation(engine, class, reservation_of(config), now_ns);
    configure_special(class, config, now_ns);
    note_window(engine, now_ns);
    class->charge_min_bytes = config->charge_min_bytes;
}

static uint32_t weight_of(const SluiceClassConfig *config)
{
    return config->weight ? config->weight : SLUICE_WEIGHT_DEFAULT;
}

/* Is the class's place among the others the same after the change? */
static bool keeps_turn(const SluiceEngine *engine, uint32_t class_index,
                       const SluiceClassConfig *config, uint64_t now_ns)
{
    const SluiceClass *class = &engine->classes[class_index];

    return class->place == PLACE_READY && class->priority == config->priority
           && class->weight == weight_of(config)
           && class->reservation_rate == reservation_of(config)
           && class_conforms(class, now_ns);
}

bool sluice_engine_set_class(SluiceEngine *engine, uint32_t class_index,
                             const SluiceClassConfig *config, uint64_t now_ns)
{
    SluiceClass *class;
    bool turn_as_before;

    if (class_index >= engine->class_count || !config_is_valid(config)) {
        return false;
    }
    class = &engine->classes[class_index];
    if (needs_extra(config) && !class->extra) {
        class->extra = calloc(1, sizeof(*class->extra));
        if (!class->extra) {
            return false;
        }
    }
    now_ns = advance_clock(engine, now_ns);
    engine_promote_due(engine, now_ns);
    engine->draining |= config->unmanaged && class->oldest;
    turn_as_before = keeps_turn(engine, class_index, config, now_ns);
    if (!turn_as_before) {
        engine_unplace(engine, class_index);
    }
    configure(engine, class, config, now_ns);
    if (turn_as_before && class_conforms(class, now_ns)) {
        eevdf_first_changed(engine, class);
        return true;
    }
    engine_unplace(engine, class_index);
    if (class->priority != config->priority) {
        class->virtual_time = 0;    /* it was another competition's */
    }
    class->priority = config->priority;
    eevdf_set_weight(class, weight_of(config));
    if (class->oldest) {
        engine_place(engine, class_index, now_ns);
    }
    return true;
}

bool sluice_engine_set_ceiling(SluiceEngine *engine, const SluiceLimit *limit,
                               uint64_t now_ns)
{
    bool had_bytes = bucket_is_limited(&engine->ceiling_bytes);
    bool had_operations = bucket_is_limited(&engine->ceiling_operations);

    if (!limit_is_valid(limit)) {
        return false;
    }
    now_ns = advance_clock(engine, now_ns);
    sluice_bucket_configure(&engine->ceiling_bytes, limit->bytes_per_second,
                            limit->burst_bytes, now_ns);
    sluice_bucket_configure(&engine->ceiling_operations,
                            limit->operations_per_second,
                            limit->burst_operations, now_ns);
    engine->ceiling_limited = limit->bytes_per_second > 0
                              || limit->operations_per_second > 0;
    engine->ceiling_serial += had_bytes != (limit->bytes_per_second > 0)
                              || had_operations
                                 != (limit->operations_per_second > 0);
    return true;
}

void sluice_engine_set_group(SluiceEngine *engine, SluiceGroupMember *group)
{
    engine->group = group;
    engine->group_serial++;
    engine->ready_priorities &= ~GROUP_BIT;
    engine->ready_priorities |= group ? GROUP_BIT : 0;
}

/* Queries */

const SluiceClassStats *sluice_engine_stats(const SluiceEngine *engine,
                                            uint32_t class_index)
{
    return &class_at(engine, class_index)->stats;
}

/*
 * For people, at every decision: one multiplication in place of the division
 * that takes the rate from the bucket, off by less than one in 2^50.
 */
static int64_t gauge_of(const SluiceBucket *bucket, double per_ns,
                        uint64_t now_ns)
{
    int64_t left_ns = (int64_t)now_ns - bucket_start_ns(bucket, now_ns);
    double tokens = ((double)left_ns + 1) * per_ns;

    if (!bucket_is_limited(bucket)) {
        return SLUICE_TOKENS_UNLIMITED;
    }
    tokens = tokens > -SLUICE_TOKENS_OWED_MAX ? tokens
                                              : -SLUICE_TOKENS_OWED_MAX;
    return (int64_t)(tokens < 0 ? tokens - 0.5 : tokens + 0.5);
}

SluiceTokens sluice_engine_tokens(const SluiceEngine *engine,
                                  uint32_t class_index, uint64_t now_ns)
{
    const SluiceClass *class = class_at(engine, class_index);

    now_ns = later_ns(engine->now_ns, now_ns);
    return (SluiceTokens){
        .bytes = gauge_of(&class->bytes, class->bytes_per_ns, now_ns),
        .operations = gauge_of(&class->operations, class->operations_per_ns,
                               now_ns),
        .at_ns = now_ns,
    };
}

static double per_ns(const SluiceBucket *bucket)
{
    return sluice_bucket_rate(bucket) / 1e9;
}

SluiceTokens sluice_engine_ceiling_tokens(const SluiceEngine *engine,
                                          uint64_t now_ns)
{
    const SluiceBucket *bytes = &engine->ceiling_bytes;
    const SluiceBucket *operations = &engine->ceiling_operations;

    now_ns = later_ns(engine->now_ns, now_ns);
    return (SluiceTokens){
        .bytes = gauge_of(bytes, per_ns(bytes), now_ns),
        .operations = gauge_of(operations, per_ns(operations), now_ns),
        .at_ns = now_ns,
    };
}

SluiceWindowStats sluice_engine_window_stats(const SluiceEngine *engine,
                                             uint32_t class_index)
{
    const SluiceClass *class = class_at(engine, class_index);

    return class->extra ? class->extra->window_stats : (SluiceWindowStats){ 0 };
}

/* Tokens from elsewhere */

static void lower_bucket(SluiceBucket *bucket, int64_t tokens, uint64_t now_ns)
{
    int64_t held = gauge_of(bucket, per_ns(bucket), now_ns);

    tokens = tokens > -SLUICE_TOKENS_OWED_MAX ? tokens
                                              : -SLUICE_TOKENS_OWED_MAX;
    if (bucket_is_limited(bucket) && tokens < held) {
        sluice_bucket_charge(bucket, (uint64_t)held - (uint64_t)tokens, now_ns);
    }
}

void sluice_engine_lower_tokens(SluiceEngine *engine, uint32_t class_index,
                                const SluiceTokens *tokens, uint64_t now_ns)
{
    SluiceClass *class = class_at(engine, class_index);

    now_ns = advance_clock(engine, now_ns);
    engine_promote_due(engine, now_ns);
    engine_unplace(engine, class_index);
    lower_bucket(&class->bytes, tokens->bytes, now_ns);
    lower_bucket(&class->operations, tokens->operations, now_ns);
    if (class->oldest) {
        engine_place(engine, class_index, now_ns);
    }
}

void sluice_engine_lower_ceiling_tokens(SluiceEngine *engine,
                                        const SluiceTokens *tokens,
                                        uint64_t now_ns)
{
    now_ns = advance_clock(engine, now_ns);
    lower_bucket(&engine->ceiling_bytes, tokens->bytes, now_ns);
    lower_bucket(&engine->ceiling_operations, tokens->operations, now_ns);
}
