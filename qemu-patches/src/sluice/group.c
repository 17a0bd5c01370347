/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Sluice group: one limit for the disks, NICs and VMs of a host.
 *
 * Model. The members of a group are engines, in any number of processes. All
 * of them map one page (group-page.h). Together they never exceed the group's
 * rate and burst; members that wait for the group at the same time are served
 * in proportion to their weights; a part that a member does not ask for is there for
 * the others. No member waits for another process: every step is a load, a store
 * or one compare-and-swap, in loops of fixed length.
 *
 * The limit: one word. The group has a clock that counts units (bytes, or
 * operations) instead of seconds: it shows the units that the rate has produced so far,
 * G(now). The bucket is the one word of bucket.c, TAT, but on that clock:
 *
 *     tokens = burst - (TAT - G)       while TAT > G, else burst
 *     a token is left  <=>  TAT - G < burst
 *     charge:  TAT = max(TAT, G) + units
 *
 * Units are whole numbers, so that nothing is rounded when members charge in
 * turn, and a change of the rate moves nothing but the clock's speed: tokens
 * and debt keep their values, in units. A request asks and is charged in one
 * compare-and-swap; a process killed before it has done nothing, a process killed
 * after it has paid.
 *
 * The shares: a virtual time for each member, as in start-time fair queueing
 * (Goyal, Vin, Cheng 1996). A request of u units moves its member's virtual
 * time on by u / weight; the member furthest behind goes first. There is no server
 * that could pick, so members judge by themselves: a member that is ahead of others
 * which wait leaves them the tokens that they need to come up to it,
 *
 *     reserve = sum over waiting members j that are behind of
 *               weight_j * (own virtual time - virtual time_j)      units,
 *
 * and goes when a token is left beyond that: TAT - G + reserve < burst. With
 * all members on time this is exactly the order of virtual times. The reserve is
 * used up by just those it is kept for: their requests move TAT on by as much
 * as they lessen the reserve. So the moment at which a member may go does not
 * change when others take their turns. Each sets its timer to its own turn,
 * and no event wakes more than one. (Members of equal virtual time queue up by
 * slot, and for the timer a request of another counts in full.)
 *
 * If a member that is behind does not come, TAT stands still while the clock
 * goes on, the reserve fills up in the bucket, and then the others go on at
 * the full rate beside it: when that member comes, the reserve is there for it. The
 * others lose nothing as long as the burst is larger than the reserve.
 *
 * Waiting. A member is waited for if its demand bit is set, it says when it
 * will have come at the latest (its turn and _GRACE_NS), and it has shown a
 * sign of life within _ALIVE_NS. A member that has nothing to send clears the
 * bit; the others notice when their timers fire, and none is set further than
 * _RECHECK_NS for each waiting member, between _RECHECK_MIN_NS and
 * _RECHECK_MAX_NS: the share of an idle, stuck or dead member goes to the
 * others within _RECHECK_MAX_NS + _GRACE_NS.
 *
 * Lag. The group's virtual time is the latest start tag admitted. A member that
 * comes late is taken up to _GRACE_NS of the whole rate behind it, one that
 * was idle up to _CREDIT_NS: a share that it missed beyond that is gone. And however
 * wrong a peer's numbers are, it is not owed more than that: so no member waits
 * longer than _GRACE_NS for each waiting member, and the time in which these
 * get their share of the request that it sent last; nor, however many they are,
 * beyond the time at which the bucket has been full for _GRACE_NS.
 *
 * Invariants.
 * - No window of length t passes more than burst + rate * t + one request, by
 *   the times with which the members asked. (TAT grows by every charge; after
 *   the first of the window it is at least G(start) + its units, before the
 *   last it is below G(end) + burst.) A process may be suspended between
 *   reading its clock and charging: by a clock on the wall it is one request
 *   for each member instead of one.
 * - Members that wait without interruption differ in service / weight by at
 *   most one largest request of each over its weight, plus _GRACE_NS of the
 *   rate if they are late.
 * - A member that is killed at any instruction leaves a page on which all this
 *   holds for the others; its slot is free again after _REAP_NS.
 *
 * Virtual times count 2^-20 units per weight, modulo 2^64, and are compared by
 * their difference: in a second none advances by more than 10^12 * 2^20 < 2^63.
 * A member that has neither asked nor waited for more than that is stale. It keeps
 * its place if it is ahead by no more than one request, the largest there is:
 * else it would pay for it with a second's absence, while others wait for that
 * debt. From anywhere else it starts anew. A member that waits, however long, is not
 * stale as long as its process runs, which its keepalives tell.
 *
 * Corrections. The real cost of a request may be known only when it is done. The
 * difference is charged or given back then, in the bucket and in its member's virtual
 * time. Other members that wait notice tokens that were given back at their next
 * keepalive, _KEEPALIVE_NS later at most. The invariant of the limit counts the charges
 * made when requests ask, less the units given back in the window; a later charge is
 * debt, for which all wait.
 *
 * Damage. With any bytes on the page no call loops, and none stands still for
 * ever. A time that lies further ahead than _AHEAD_NS of the reader's own clock
 * is not believed: a limit whose clock starts there is not taken over
 * (group-page.c), a sign of life from there is none. A debt that no charge can
 * have made becomes an empty bucket, never a full one. The group's virtual time
 * is put forward again where it went back, so that members which damage took
 * apart meet again. And a member that is refused again and again, each time within
 * _RECHECK_MIN_NS although its turn had come, asks at most every _RETRY_NS:
 * tokens that vanish, or others that are always faster, keep no processor busy.
 *
 * Limits. Members trust each other's numbers no further than said above, but
 * a member that is malicious, not only broken, can pretend to use the whole limit,
 * or not charge itself, for as long as it lives: the page is shared, writable
 * memory. The limits of the VMs themselves are private to each process and hold
 * regardless.
 */
#include "sluice/engine.h"
#include "bucket-inline.h"
#include "group-internal.h"
#include "hot.h"

#define CHARGE_ATTEMPTS     16
#define REFUSALS_FREE       8           /* that happen where all mean well */
#define RESERVE_MAX         (1LL << 61)

static uint64_t later_ns(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How far a is ahead of b, where numbers wrap. */
static int64_t ahead(uint64_t a, uint64_t b)
{
    return (int64_t)(a - b);
}

/* Virtual time */

static uint64_t virtual_of(const SluiceGroupMember *member, uint64_t units)
{
    return (uint64_t)((SluiceWide)units * member->reciprocal
                      >> GROUP_FRACTION_BITS);
}

/*
 * The group's virtual time only goes forward: where the page shows less than
 * this member has seen, a slower one or damage has put it back, and it is set
 * right. So all come to one time again, also after damage, and no member is waited for
 * that lives in another.
 */
static void show_group_time(SluiceGroupMember *member)
{
    SluiceWord *word = &member->page->virtual_time;
    uint64_t shown = group_load(word);

    if (ahead(member->group_time, shown) > 0) {
        /* If another member is faster, the next look does. */
        atomic_compare_exchange_strong_explicit(
            word, &shown, member->group_time, memory_order_relaxed,
            memory_order_relaxed);
    }
}

/*
 * The start tag of the member's next request: where its last one ended, but
 * no further behind the group than it may lag, and after an absence no further
 * ahead than one request can have taken it.
 */
SLUICE_HOT static uint64_t start_tag(SluiceGroupMember *member, uint64_t now_ns)
{
    bool stale = !group_is_recent(member->active_ns, now_ns,
                                  GROUP_STALE_NS);
    uint64_t lag_units = member->demanding ? member->clock.grace_units
                                           : member->clock.credit_units;
    uint64_t shown, floor, above_max;
    int64_t above;

    shown = group_load(&member->page->virtual_time);
    if (UNLIKELY(!stale && ahead(member->group_time, shown) > 0)) {
        show_group_time(member);
    } else {
        member->group_time = shown;
    }
    floor = member->group_time - virtual_of(member, lag_units);
    above = ahead(member->virtual_time, floor);
    above_max = virtual_of(member, member->clock.request_max + lag_units);
    if (above < 0 || (stale && (uint64_t)above > above_max)) {
        member->virtual_time = floor;
    }
    member->active_ns = now_ns;
    return member->virtual_time;
}

/* After a request with this start tag was charged. */
static void advance(SluiceGroupMember *member, uint64_t start, uint64_t units,
                    uint64_t now_ns)
{
    SluiceWide step = (SluiceWide)units * member->reciprocal
                      + member->virtual_fraction;

    member->virtual_time = start + (uint64_t)(step >> GROUP_FRACTION_BITS);
    member->virtual_fraction = (uint32_t)step;
    member->requests++;
    member->units += units;
    member->refusals = 0;
    member->due_ns = 0;
    group_publish(member, now_ns);
    if (ahead(start, member->group_time) > 0) {
        member->group_time = start;
        show_group_time(member);
    }
}

/* The others */

typedef struct Rivals {
    uint64_t reserve;           /* units kept for those behind us */
    uint64_t turns;             /* units after which it is our turn */
    unsigned count;             /* of those that wait, behind us or not */
} Rivals;

static uint64_t add_capped(uint64_t a, SluiceWide b)
{
    return b < RESERVE_MAX && a + (uint64_t)b < RESERVE_MAX ? a + (uint64_t)b
                                                            : RESERVE_MAX;
}

/* The units that a member `lead` behind us needs to come up: not more than its due. */
static SluiceWide owed_units(const SluiceGroupMember *member, uint64_t start,
                             uint64_t weight, uint64_t lead)
{
    int64_t own_lead = ahead(start, member->group_time);
    uint64_t over = own_lead < 0 ? 0 : lesser(own_lead, lead);
    SluiceWide lag = (SluiceWide)(lead - over) * weight;
    SluiceWide lag_max = (SluiceWide)member->clock.grace_units
                         << GROUP_VIRTUAL_BITS;

    lag = lag < lag_max ? lag : lag_max;
    return (lag + (SluiceWide)over * weight) >> GROUP_VIRTUAL_BITS;
}

/* A sign of life from the future is none: it would count for too long. */
static bool is_alive(const SluiceGroupSlot *slot, uint64_t now_ns)
{
    uint64_t heartbeat_ns = group_load(&slot->heartbeat_ns);

    return group_is_recent(heartbeat_ns, now_ns, SLUICE_GROUP_ALIVE_NS)
           && group_can_be(heartbeat_ns, now_ns);
}

static void count_rival(const SluiceGroupMember *member, uint32_t index,
                        uint64_t start, uint64_t now_ns, Rivals *rivals)
{
    const SluiceGroupSlot *slot = &member->page->slots[index];
    uint64_t weight = group_load(&slot->weight);
    int64_t lead = ahead(start, group_load(&slot->virtual_time));
    SluiceWide owed, head;

    if (group_load(&slot->owner) == 0 || weight < 1
        || weight > SLUICE_GROUP_WEIGHT_MAX
        || group_load(&slot->demand_until_ns) <= now_ns
        || !is_alive(slot, now_ns)) {
        return;
    }
    rivals->count++;
    if (lead > 0 || (lead == 0 && index < member->index)) {
        owed = owed_units(member, start, weight, lead);
        head = lesser(group_load(&slot->head_units),
                      member->clock.request_max);
        rivals->reserve = add_capped(rivals->reserve, owed);
        rivals->turns = add_capped(rivals->turns, owed > head ? owed : head);
    }
}

/*
 * Where the bucket has been full for _GRACE_NS, those that we wait for have had
 * all the tokens that they could ask for, and did not come: they are waited for no
 * longer, even if they say that they wait.
 */
static void bound_patience(const SluiceGroupMember *member, Rivals *rivals)
{
    uint64_t most = member->clock.burst + member->clock.grace_units;

    rivals->reserve = lesser(rivals->reserve, most);
    rivals->turns = lesser(rivals->turns, most);
}

SLUICE_HOT static Rivals look_around(const SluiceGroupMember *member,
                                     uint64_t start, uint64_t now_ns)
{
    Rivals rivals = { 0 };

    for (uint32_t word = 0; word < SLUICE_GROUP_DEMAND_WORDS; word++) {
        uint64_t bits = atomic_load_explicit(&member->page->demand[word],
                                             memory_order_acquire);

        if (member->slot && member->index / 64 == word) {
            bits &= ~group_demand_bit(member);
        }
        for (; bits; bits &= bits - 1) {
            count_rival(member, word * 64 + __builtin_ctzll(bits), start,
                        now_ns, &rivals);
        }
    }
    if (rivals.count > 0) {
        bound_patience(member, &rivals);
    }
    return rivals;
}

/* The bucket */

/*
 * The units taken from the bucket: negative if it has been full for a while,
 * more than the burst if it is in debt. A debt that no charge can have made is
 * damage, or a bucket that was untouched until the numbers wrapped. For how
 * long it has been full tells only whether a reserve has filled up, so that
 * ends where reserves do.
 *
 * The bound: a charge or a correction leaves at most a request beyond the burst;
 * additions without a look as much again, see correct_bucket(); and the rate of a
 * second, by which the clock of the member that looks may be behind that of the member
 * that charged.
 */
static int64_t used_units(const SluiceGroupMember *member, uint64_t tat_units,
                          uint64_t clock_units, bool *damaged)
{
    const SluiceGroupClock *clock = &member->clock;
    int64_t used = ahead(tat_units, clock_units);

    *damaged = used > (int64_t)(clock->burst + 2 * clock->request_max
                                + clock->rate);
    used = used > -RESERVE_MAX ? used : -RESERVE_MAX;
    return *damaged ? (int64_t)member->clock.burst : used;
}

static bool charge(SluiceGroupMember *member, uint64_t units, uint64_t reserve,
                   uint64_t now_ns)
{
    SluiceWord *tat = &member->page->tat_units;
    uint64_t tat_units = group_load(tat);
    uint64_t fraction;
    uint64_t clock_units = group_clock_units(&member->clock, now_ns, &fraction);

    for (unsigned i = 0; i < CHARGE_ATTEMPTS; i++) {
        bool damaged;
        int64_t used = used_units(member, tat_units, clock_units, &damaged);
        uint64_t next = (used > 0 ? tat_units : clock_units) + units;

        if (damaged) {
            atomic_compare_exchange_strong(tat, &tat_units,
                                           clock_units + member->clock.burst);
            return false;
        }
        if (used + (int64_t)reserve >= (int64_t)member->clock.burst) {
            return false;
        }
        if (atomic_compare_exchange_weak_explicit(tat, &tat_units, next,
                                                  memory_order_acq_rel,
                                                  memory_order_relaxed)) {
            return true;
        }
    }
    return false;               /* under such contention: see patience_ns() */
}

/* When the group's clock will show `need` units more than now. */
static uint64_t when_shown_ns(const SluiceGroupMember *member, int64_t need,
                              uint64_t now_ns)
{
    const SluiceGroupClock *clock = &member->clock;
    SluiceWide step = ((SluiceWide)clock->step_units << 64)
                      + clock->step_fraction;
    SluiceWide wait_ns;
    uint64_t fraction;

    if (need <= 0) {
        return now_ns;
    }
    now_ns = later_ns(now_ns, clock->base_ns);  /* it stands still until then */
    group_clock_units(clock, now_ns, &fraction);
    wait_ns = (((SluiceWide)need << 64) - fraction + step - 1) / step;
    return wait_ns < SLUICE_CLOCK_MAX_NS ? now_ns + (uint64_t)wait_ns
                                         : now_ns + SLUICE_CLOCK_MAX_NS;
}

/* Data path */

static uint64_t units_of(const SluiceGroupMember *member, uint32_t bytes)
{
    return member->clock.unit == SLUICE_GROUP_OPERATIONS ? 1 : bytes;
}

/* A member that asks after its next recheck has been patient enough. */
static void note_refusal(SluiceGroupMember *member, uint64_t units,
                         uint64_t now_ns)
{
    bool soon = now_ns - member->refused_ns < SLUICE_GROUP_RECHECK_MIN_NS;

    member->refusals = soon ? member->refusals + 1 : 0;
    member->refused_units = units;
    member->refused_ns = now_ns;
}

SLUICE_HOT bool sluice_group_admit(SluiceGroupMember *member, uint32_t bytes,
                                   uint64_t now_ns)
{
    uint64_t units, start;
    Rivals rivals;

    group_refresh(member, now_ns);
    units = units_of(member, bytes);
    if (member->demanding && now_ns < member->due_ns) {
        return false;           /* all of its requests wait for that turn */
    }
    start = start_tag(member, now_ns);
    rivals = look_around(member, start, now_ns);
    if (!charge(member, units, rivals.reserve, now_ns)) {
        note_refusal(member, units, now_ns);
        return false;
    }
    advance(member, start, units, now_ns);
    return true;
}

/*
 * One compare-and-swap, too: units that a bucket cannot hold, or owe, are cut off. A
 * request that is refused asks again, a correction does not: where others are
 * faster every time it adds, which cannot fail. TAT is above G after so many
 * charges, and if that takes it below, the bucket is just full.
 */
static void correct_bucket(SluiceGroupMember *member, int64_t units,
                           uint64_t now_ns)
{
    SluiceWord *tat = &member->page->tat_units;
    uint64_t tat_units = group_load(tat);
    int64_t owed_max = (int64_t)(member->clock.burst
                                 + member->clock.request_max);
    uint64_t fraction;
    uint64_t clock_units = group_clock_units(&member->clock, now_ns, &fraction);

    for (unsigned i = 0; i < CHARGE_ATTEMPTS; i++) {
        bool damaged;
        int64_t used = used_units(member, tat_units, clock_units, &damaged);

        used = (used > 0 ? used : 0) + units;
        used = used < 0 ? 0 : used > owed_max ? owed_max : used;
        if (damaged
            || atomic_compare_exchange_weak_explicit(
                   tat, &tat_units, clock_units + (uint64_t)used,
                   memory_order_acq_rel, memory_order_relaxed)) {
            return;             /* the next charge repairs the damage */
        }
    }
    if (units > (int64_t)member->clock.request_max) {
        units = (int64_t)member->clock.request_max;
    }
    atomic_fetch_add_explicit(tat, (uint64_t)units, memory_order_acq_rel);
}

static void correct(SluiceGroupMember *member, int64_t units, uint64_t now_ns)
{
    SluiceI128 step = (SluiceI128)units * (int64_t)member->reciprocal
                      + member->virtual_fraction;

    correct_bucket(member, units, now_ns);
    member->virtual_time += (uint64_t)(step >> GROUP_FRACTION_BITS);
    member->virtual_fraction = (uint32_t)step;
    member->due_ns = 0;         /* it was reckoned without it */
    group_publish(member, now_ns);
}

void sluice_group_correct(SluiceGroupMember *member, int64_t bytes,
                          uint64_t now_ns)
{
    group_refresh(member, now_ns);
    /* An operation is one, however long it took. */
    if (member->clock.unit == SLUICE_GROUP_BYTES) {
        correct(member, bytes, now_ns);
    }
}

void sluice_group_refund(SluiceGroupMember *member, uint32_t bytes,
                         uint64_t now_ns)
{
    group_refresh(member, now_ns);
    correct(member, -(int64_t)units_of(member, bytes), now_ns);
}

static uint64_t clamp(uint64_t value, uint64_t min, uint64_t max)
{
    return value < min ? min : lesser(value, max);
}

/* Nothing at first, then twice as long after each refusal, up to _RETRY_NS. */
static uint64_t patience_ns(const SluiceGroupMember *member)
{
    unsigned doublings = member->refusals - REFUSALS_FREE;

    if (member->refusals < REFUSALS_FREE) {
        return 0;
    }
    return SLUICE_GROUP_RETRY_NS >> (doublings < 10 ? 10 - doublings : 0);
}

static void demand(SluiceGroupMember *member, uint64_t now_ns)
{
    if (!member->slot) {
        return;
    }
    group_publish(member, now_ns);
    group_store(&member->slot->head_units, member->refused_units);
    group_store(&member->slot->demand_until_ns,
                member->due_ns + SLUICE_GROUP_GRACE_NS);
    if (!(group_load(group_demand_word(member)) & group_demand_bit(member))) {
        atomic_fetch_or_explicit(group_demand_word(member),
                                 group_demand_bit(member),
                                 memory_order_release);
    }
}

uint64_t sluice_group_next_ns(SluiceGroupMember *member, uint64_t now_ns)
{
    uint64_t start, fraction, clock_units, tat_units, recheck_ns, turn_ns;
    int64_t missing;
    bool damaged;
    Rivals rivals;

    group_refresh(member, now_ns);
    if (member->demanding && now_ns < member->due_ns) {
        return member->due_ns;
    }
    start = start_tag(member, now_ns);
    rivals = look_around(member, start, now_ns);
    clock_units = group_clock_units(&member->clock, now_ns, &fraction);
    tat_units = group_load(&member->page->tat_units);
    missing = used_units(member, tat_units, clock_units, &damaged)
              - (int64_t)member->clock.burst + 1;
    turn_ns = when_shown_ns(member, missing + (int64_t)rivals.turns, now_ns);
    recheck_ns = now_ns + clamp(rivals.count * SLUICE_GROUP_RECHECK_NS,
                                SLUICE_GROUP_RECHECK_MIN_NS,
                                SLUICE_GROUP_RECHECK_MAX_NS);
    recheck_ns = later_ns(recheck_ns, when_shown_ns(member, missing, now_ns));
    member->due_ns = later_ns(lesser(turn_ns, recheck_ns),
                              now_ns + patience_ns(member));
    member->due_sequence = member->clock.sequence;
    member->due_tat_units = tat_units;
    member->demanding = true;
    demand(member, now_ns);
    return member->due_ns;
}
