/* SPDX-License-Identifier: Apache-2.0 */
/* The scripts of lock libraries, read from their repositories (the tests say at which versions): a
 * form for each thing that they do, then a row for each text. Whoever adds a library adds rows, and
 * a form where it does what none here does. */
#include "proxy/engine/lockkeys/scripts.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/plain.h"
#include "proxy/engine/lockkeys/run.h"
#include "proxy/engine/scope.h"
#include "proxy/resp/resp.h"

enum { MS_PER_SECOND = 1000, FREE = -2 /* what PTTL says of a key that is not there */ };

/* Replies. */

static void reply_one(const struct lock_run *run, struct buf *out)
{
    resp_int(out, run->ok);
}

static void reply_zero(const struct lock_run *run, struct buf *out)
{
    resp_int(out, !run->ok);
}

static void reply_count(const struct lock_run *run, struct buf *out)
{
    resp_int(out, (int64_t)run->done);
}

static void reply_each(const struct lock_run *run, struct buf *out)
{
    resp_array(out, run->count);
    for (size_t i = 0; i < run->count; i++)
        resp_int(out, lock_run_item(run, i)->done);
}

static void reply_ok(const struct lock_run *run, struct buf *out)
{
    if (run->ok)
        resp_simple(out, "OK");
    else
        resp_null(out, run->resp3);
}

static void reply_true(const struct lock_run *run, struct buf *out)
{
    if (run->ok)
        resp_int(out, 1);
    else
        resp_null(out, run->resp3);
}

/* What redis.error_reply('ERROR') sends. */
static void reply_error(struct buf *out)
{
    resp_error(out, STK_ERR, "ERROR");
}

static void reply_ok_or_error(const struct lock_run *run, struct buf *out)
{
    if (run->ok)
        resp_simple(out, "OK");
    else
        reply_error(out);
}

/* A lock that nobody holds is released, too. */
static void reply_given_or_error(const struct lock_run *run, struct buf *out)
{
    if (run->ok)
        resp_int(out, 1);
    else if (!lock_run_item(run, 0)->locked)
        resp_simple(out, "OK");
    else
        reply_error(out);
}

static void reply_given_or_gone(const struct lock_run *run, struct buf *out)
{
    resp_int(out, run->ok ? 1 : lock_run_item(run, 0)->locked ? 0 : -1);
}

static void reply_extended_or_minus_one(const struct lock_run *run, struct buf *out)
{
    resp_int(out, run->ok ? 1 : -1);
}

static void reply_owner(const struct lock_run *run, struct buf *out)
{
    const struct lock_item *item = lock_run_item(run, 0);

    if (item->locked)
        resp_bulk(out, scope_name(buf_bytes(&item->owner)));
    else
        resp_null(out, run->resp3);
}

static int64_t left_of(const struct lock_item *item)
{
    return item->locked ? item->left_ms : FREE;
}

static int64_t seconds_of(int64_t left_ms)
{
    return left_ms < 0 ? left_ms : (left_ms + MS_PER_SECOND / 2) / MS_PER_SECOND;
}

static void reply_left(const struct lock_run *run, struct buf *out)
{
    resp_int(out, left_of(lock_run_item(run, 0)));
}

static void reply_left_s(const struct lock_run *run, struct buf *out)
{
    resp_int(out, seconds_of(left_of(lock_run_item(run, 0))));
}

static void reply_locked(const struct lock_run *run, struct buf *out)
{
    int64_t count = 0;

    for (size_t i = 0; i < run->count; i++)
        count += lock_run_item(run, i)->locked;
    resp_int(out, count);
}

static void reply_owner_and_left(const struct lock_run *run, struct buf *out)
{
    resp_array(out, 2);
    reply_owner(run, out);
    reply_left(run, out);
}

static void reply_owner_and_left_or_null(const struct lock_run *run, struct buf *out)
{
    if (lock_run_item(run, 0)->locked)
        reply_owner_and_left(run, out);
    else
        resp_null(out, run->resp3);
}

static void reply_own_left_or_zero(const struct lock_run *run, struct buf *out)
{
    resp_int(out, run->ok ? lock_run_item(run, 0)->left_ms : 0);
}

static void reply_own_left_or_minus_three(const struct lock_run *run, struct buf *out)
{
    resp_int(out, run->ok ? lock_run_item(run, 0)->left_ms : -3);
}

static void reply_own_left_s_or_error(const struct lock_run *run, struct buf *out)
{
    if (run->ok)
        resp_int(out, seconds_of(lock_run_item(run, 0)->left_ms));
    else
        reply_error(out);
}

static void reply_least_left(const struct lock_run *run, struct buf *out)
{
    int64_t least_ms = INT64_MAX;

    for (size_t i = 0; i < run->count; i++)
        if (lock_run_item(run, i)->left_ms < least_ms)
            least_ms = lock_run_item(run, i)->left_ms;
    if (run->ok)
        resp_int(out, least_ms);
    else
        resp_null(out, run->resp3);
}

static void reply_own(const struct lock_run *run, struct buf *out)
{
    resp_int(out, lock_run_item(run, 0)->mine);
}

static void reply_holds(const struct lock_run *run, struct buf *out)
{
    const struct lock_item *item = lock_run_item(run, 0);

    if (item->mine)
        resp_bulk_int(out, item->holds);
    else
        resp_null(out, run->resp3);
}

/* redlock-universal's: how many were taken; or which is the first one that is held. */
static void reply_taken_or_first_held(const struct lock_run *run, struct buf *out)
{
    const struct lock_item *held = lock_run_item(run, 0);

    if (run->ok) {
        resp_array(out, 2);
        resp_int(out, 1);
        resp_int(out, (int64_t)run->count);
        return;
    }
    for (size_t i = 1; i < run->count; i++) {
        const struct lock_item *item = lock_run_item(run, i);
        if (item->locked && (!held->locked || item->place < held->place))
            held = item;
    }
    resp_array(out, 3);
    resp_int(out, 0);
    resp_int(out, (int64_t)held->place);
    resp_bulk(out, held->key);
}

/* The same library's: 1, or 0 where less is left than it wants, -1 where it is another's or gone;
 * and what was left. */
static void reply_extended_and_left(const struct lock_run *run, struct buf *out)
{
    const struct lock_item *item = lock_run_item(run, 0);

    resp_array(out, 2);
    resp_int(out, run->ok ? 1 : item->locked && item->left_ms < run->least_ms ? 0 : -1);
    reply_left(run, out);
}

/* Redisson's. */

static void reply_taken_or_left(const struct lock_run *run, struct buf *out)
{
    if (run->ok)
        resp_null(out, run->resp3);
    else
        resp_int(out, lock_run_item(run, 0)->left_ms);
}

static void reply_token_or_left(const struct lock_run *run, struct buf *out)
{
    const struct lock_item *item = lock_run_item(run, 0);

    resp_array(out, 2);
    resp_int(out, run->ok ? -1 : item->left_ms);
    resp_int(out, run->ok ? item->token : -1);
}

static void reply_unlocked(const struct lock_run *run, struct buf *out)
{
    if (run->ok)
        resp_int(out, lock_run_item(run, 0)->holds == 0);
    else
        resp_null(out, run->resp3);
}

/* Forms: of plain commands first. */

#define FORM(name) static const struct lock_form name

const struct lock_form lock_form_set = {.verb = LOCK_TAKE, .reply = reply_ok};
const struct lock_form lock_form_set_again = {.verb = LOCK_EXTEND, .reply = reply_ok};
const struct lock_form lock_form_get = {.verb = LOCK_LOOK, .reply = reply_owner};
const struct lock_form lock_form_pttl = {.verb = LOCK_LOOK, .reply = reply_left};
const struct lock_form lock_form_ttl = {.verb = LOCK_LOOK, .reply = reply_left_s};
const struct lock_form lock_form_exists = {.verb = LOCK_LOOK, .reply = reply_locked};
const struct lock_form lock_form_del = {.verb = LOCK_REVOKE, .reply = reply_count};
const struct lock_form lock_form_del_own = {.verb = LOCK_GIVE, .reply = reply_one};
const struct lock_form lock_form_hexists = {.verb = LOCK_LOOK, .reply = reply_own};
const struct lock_form lock_form_hget = {.verb = LOCK_LOOK, .reply = reply_holds};

/* value, then what it is for. */
FORM(give_one) = {LOCK_GIVE, .keys = 1, .value = 1, .reply = reply_one};
FORM(give_or_gone) = {LOCK_GIVE, .keys = 1, .value = 1, .reply = reply_given_or_gone};
FORM(give_or_error) = {LOCK_GIVE, .keys = 1, .value = 1, .reply = reply_given_or_error};
FORM(give_each) = {LOCK_GIVE, .flags = LOCK_EACH, .value = 1, .reply = reply_count};
FORM(give_all_ok) = {LOCK_GIVE, .value = 1, .reply = reply_ok};
FORM(take_all) = {LOCK_TAKE, .value = 1, .ttl = 2, .reply = reply_count};
FORM(take_seconds) = {LOCK_TAKE, .flags = LOCK_SECONDS, .keys = 1, .value = 1,
                      .ttl = 2,  .reply = reply_ok};
FORM(take_seconds_one) = {LOCK_TAKE, .flags = LOCK_SECONDS, .keys = 1, .value = 1,
                          .ttl = 2,  .reply = reply_one};
FORM(extend_one) = {LOCK_EXTEND, .keys = 1, .value = 1, .ttl = 2, .reply = reply_one};
FORM(extend_all) = {LOCK_EXTEND, .value = 1, .ttl = 2, .reply = reply_count};
FORM(extend_all_ok) = {LOCK_EXTEND, .value = 1, .ttl = 2, .reply = reply_ok};
FORM(extend_seconds) = {LOCK_EXTEND, .flags = LOCK_SECONDS, .keys = 1, .value = 1,
                        .ttl = 2,    .reply = reply_one};
/* redis-py's extend: the third is "0" to add, "1" to set. */
FORM(extend_or_add) = {LOCK_EXTEND, .keys = 1, .value = 1, .ttl = 2, .adds = 3, .reply = reply_one};
FORM(left_if_own) = {LOCK_LOOK, .keys = 1, .value = 1, .reply = reply_own_left_or_zero};
FORM(left_if_own_3) = {LOCK_LOOK, .keys = 1, .value = 1, .reply = reply_own_left_or_minus_three};
FORM(left_or_error) = {LOCK_LOOK, .keys = 1, .value = 1, .reply = reply_own_left_s_or_error};
FORM(least_left) = {LOCK_LOOK, .value = 1, .reply = reply_least_left};
FORM(owner_and_left) = {LOCK_LOOK, .keys = 1, .reply = reply_owner_and_left};
FORM(owner_and_left_or_null) = {LOCK_LOOK, .keys = 1, .reply = reply_owner_and_left_or_null};

/* sesamecare's redlock names a database first. */
FORM(db_take_all) = {LOCK_TAKE, .db = 1, .value = 2, .ttl = 3, .reply = reply_count};
FORM(db_extend_all) = {LOCK_EXTEND, .db = 1, .value = 2, .ttl = 3, .reply = reply_count};
FORM(db_give_each) = {LOCK_GIVE, .flags = LOCK_EACH, .db = 1, .value = 2, .reply = reply_count};

/* redlock-universal */
FORM(take_batch) = {LOCK_TAKE, .flags = LOCK_VALUES | LOCK_TTL_LAST, .value = 1,
                    .reply = reply_taken_or_first_held};
FORM(extend_in_time) = {LOCK_EXTEND, .keys = 1, .value = 1,
                        .least = 2,  .ttl = 3,  .reply = reply_extended_and_left};

/* The value's own lives on, and what nobody has is taken. */
#define EXTEND_OR_TAKE LOCK_EXTEND, .flags = LOCK_TAKES_FREE, .value = 1
FORM(extend_or_take) = {EXTEND_OR_TAKE, .keys = 1, .ttl = 2, .reply = reply_one};
FORM(take_or_error) = {EXTEND_OR_TAKE, .keys = 1, .ttl = 2, .reply = reply_ok_or_error};
FORM(net_extend) = {EXTEND_OR_TAKE, .keys = 1, .ttl = 2, .reply = reply_extended_or_minus_one};
FORM(rb_lock) = {EXTEND_OR_TAKE, .keys = 1, .ttl = 2, .if_yes = 3, .reply = reply_ok};
/* The second is the length of the value's part that makes it the owner; here all of it does. */
FORM(obtain) = {EXTEND_OR_TAKE, .ttl = 3, .reply = reply_ok};
FORM(spring_obtain) = {EXTEND_OR_TAKE, .keys = 1, .ttl = 2, .reply = reply_true};
FORM(spring_renew) = {LOCK_EXTEND, .keys = 1, .value = 1, .ttl = 2, .reply = reply_true};
FORM(spring_unlock) = {LOCK_GIVE, .keys = 1, .value = 1, .reply = reply_true};
FORM(spring_unlock_told) = {LOCK_GIVE, .keys = 1, .value = 1, .channel = 2, .reply = reply_true};

/* python-redis-lock: 0 is well. Its second key is the list on which its waiters wait. */
FORM(unlock_signal) = {LOCK_GIVE, .keys = 1, .value = 1, .reply = reply_zero};
FORM(extend_zero) = {LOCK_EXTEND, .flags = LOCK_SECONDS, .keys = 1, .value = 1,
                     .ttl = 2,    .reply = reply_zero};
FORM(reset) = {LOCK_REVOKE, .keys = 1, .reply = reply_count};

/* Redisson: a hash with the holder's uuid:threadId and its entries, and a channel. */
#define REDISSON_LOCK LOCK_TAKE, .flags = LOCK_REENTERS, .keys = 1, .value = 2, .ttl = 1
FORM(redisson_lock) = {REDISSON_LOCK, .reply = reply_taken_or_left};
FORM(redisson_fenced_lock) = {REDISSON_LOCK, .reply = reply_token_or_left};
FORM(redisson_unlock) = {LOCK_GIVE, .flags = LOCK_ONE_HOLD, .keys = 1,    .value = 3,
                         .ttl = 2,  .channel_key = 2,       .message = 1, .reply = reply_unlocked};
FORM(redisson_force_unlock) = {LOCK_REVOKE, .keys = 1, .channel_key = 2, .message = 1,
                               .reply = reply_count};
/* Its spin lock tells nobody: who waits asks again. */
FORM(redisson_spin_unlock) = {LOCK_GIVE, .flags = LOCK_ONE_HOLD, .keys = 1, .value = 2,
                              .ttl = 1,  .reply = reply_unlocked};
FORM(redisson_spin_force_unlock) = {LOCK_REVOKE, .keys = 1, .reply = reply_count};
FORM(redisson_renew) = {LOCK_EXTEND, .keys = 1, .value = 2, .ttl = 1, .reply = reply_one};
FORM(redisson_renew_each) = {LOCK_EXTEND, .flags = LOCK_EACH | LOCK_VALUES, .value = 2, .ttl = 1,
                             .reply = reply_each};

/* Known, and not done. Where one that extends or gives back is not, the one that acquires is not,
 * either: a lock that nobody could give back would stand until its time is over. */
FORM(reset_all) = {LOCK_REVOKE, .refused = "it would end those of everybody; REVOKE resource ends "
                                           "one"};
#define SEMAPHORE                                                                                  \
    .refused = "a semaphore lets several in at once, so none of them is fenced: let each take a "  \
               "lease of its own, such as one of resource#1 to resource#n"
FORM(semaphore_take) = {LOCK_TAKE, SEMAPHORE};
FORM(semaphore_extend) = {LOCK_EXTEND, SEMAPHORE};
FORM(semaphore_give) = {LOCK_GIVE, SEMAPHORE};

/* One row for each text; tools/lock-scripts prints those of an installed library. */
static const struct lock_script scripts[] = {
    {"c3f8721cbb97f72bc19e972846bd7aaf91901658", "3ad9a162dace07271ecd3d4fb06ce2c770f0a4f0",
     "redis-py", &give_one},
    {"a4e8783852e6b949f9ef3a97212805108459a890", "568f251ae144c32659f1faa8c727866b755df9e0",
     "redis-py", &extend_or_add},
    {"1cac51482acf5858da00f6d685d68f886cd6b6b2", "7bac02815679914e98a2d3abfc299e10f958a8cd",
     "redis-py", &extend_one},
    {"e5a322e2634ef59a516e8ea150cb085afafee684", "dabf71ca8feea8fda43b541043961dd85111c0ff",
     "node-redlock 4", &take_all},
    {"ce46f80993d5dac20dd066eb301a4e37994bdbed", "1d19cbe619988ab0fe4d04f981665b72b5ff0fc8",
     "node-redlock 4", &extend_all},
    {"0f0f23b9048b36752b5be114f357ba083449f908", "b8a572004b8f5257717e2186f940cbb9cde7e809",
     "node-redlock 4", &give_each},
    {"96da70f7716f27d278a5218544df37fd8b0a5e4c", "dabf71ca8feea8fda43b541043961dd85111c0ff",
     "node-redlock 5", &take_all},
    {"aed6f382e410db8ba7926d4e5e9aab410bf2a78a", "1d19cbe619988ab0fe4d04f981665b72b5ff0fc8",
     "node-redlock 5", &extend_all},
    {"e4612211c9f8f51c257e26e056b0a654b3187242", "b8a572004b8f5257717e2186f940cbb9cde7e809",
     "node-redlock 5", &give_each},
    {"1b77b94aa78451d55dfa97e18819bfbfc596cb5b", "e169e419e73924242ddfa62ac1713b7d4c4e8f56",
     "sesamecare redlock", &db_take_all},
    {"820e9778d2b6733e9ed771e4be90ae73a95a6f3b", "18ba8ad79f5e1a58333ecbbd6c5403891ca8da3b",
     "sesamecare redlock", &db_extend_all},
    {"df51f6837dcfe303d334e6abea9aeae192bab216", "8157ac3c940a009cd44f263e10ba21743bb244dc",
     "sesamecare redlock", &db_give_each},
    {"fd83166fb3d7235e3ace652b700c9e217c1adc1f", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "redlock-universal", &give_one},
    {"e218d686a8f90368e5cd45074f06ce766cad9987", "9a986bcc6034fd4f6b064f07ab6b02d8bd2631e2",
     "redlock-universal", &extend_one},
    {"c000e088bd4aca36ab429d3b7a16fc736f4cb6f1", "e628e9f90935d1ede18b38a3f470bc414c0958fe",
     "redlock-universal", &extend_in_time},
    {"514d8d1b08387624661da2a9098d3949b633eb3a", "5739e5899fff39326f33dda1afa36f031f6b894c",
     "redlock-universal", &take_batch},
    {"994908155dadb1bed08a5af6dee7fedf956c4826", "61dbff4f38e4e2da5a0f43231b188d230becc043",
     "redlock-universal", &owner_and_left_or_null},
    {"da225123b2af4a41136fdba7ffac1e045e344da1", "3282598eeef4f5ca8a72be45b5abf53cb8a8d738",
     "ioredis-lock", &give_one},
    {"bf3108245472c550b02852e1e425128e5eb399c4", "32f422988fa05890e7a585ffaa4b1d2a68afd30e",
     "ioredis-lock", &extend_one},
    {"594683e49a64ebaf975caf5f8079a1d097c438f1", "0a922d0c81055bff477819e2a84d57cbad924bf3",
     "redis-semaphore", &extend_one},
    {"7157921a7cc7cfba979acf6d63f073151df17d12", "af6e9c30e6590645797ac380b57c47aae48fd1d3",
     "redis-semaphore", &give_one},
    {"43ebdb49120d170e08af560cb4e46e36f8585936", "deef514c4e50d6fb7bf68ebc70b2cb05bbe897e3",
     "redis-semaphore\'s semaphores", &semaphore_take},
    {"999a49a1d07671a8027165641001f5bad44608b3", "94944e61efd7e73f2709609a0ddf1db07036fe30",
     "redis-semaphore\'s semaphores", &semaphore_extend},
    {"10c1c2e05e7c48aa5824d227b8c51abcde87b18e", "7857d5b2f75933dc1b8f9dd1b1b7f7b102e90c21",
     "redis-semaphore\'s semaphores", &semaphore_take},
    {"2327bcdc5edb5b8687f6d19b5e1f42b815ebddab", "540d82932b9da3b855e9283ce94e98d40f959533",
     "redis-semaphore\'s semaphores", &semaphore_extend},
    {"0bd1010c98f1ddd70a6024fd374489a8ea3d2c12", "6e9e63e85cad488669e0ceecb9884a9853d04414",
     "redis-semaphore\'s semaphores", &semaphore_give},
    {"e950836ed1e694540c503ef9972b8de518044d3b", "1eee6b413e1fa4fe71225373c1f8c91b73cf1778",
     "redsync", &give_or_gone},
    {"00583931c4e4d483f6233879c133c71ed5393f9d", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "redsync", &give_one},
    {"b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", "4750e06642e703bcef2e1abefcca484d491d5fb2",
     "redsync", &extend_or_take},
    {"d75bb8b5bd13532ddedd17762e772346e39b321e", "9a986bcc6034fd4f6b064f07ab6b02d8bd2631e2",
     "redsync", &extend_one},
    {"194f3902b2dd08557818d09fc2e7682d91480e53", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "ShedLock", &give_one},
    {"67256370c2d1c87e2250898075542b1a7fa5b917", "9a986bcc6034fd4f6b064f07ab6b02d8bd2631e2",
     "ShedLock", &extend_one},
    {"a08c9c69b7c07ae2485190873b90d128a23e502d", "9aa8e60551ab75a4d94692c485adf86ec8f15048",
     "Laravel", &take_seconds},
    {"d5f94f1848f0c54fff99d99dbc4d54184a157c02", "c18ce6fcdfb385b62453d15eb6755426764fcb82",
     "Laravel", &extend_seconds},
    {"647c65a442733a1aa440f99908d249d13b4d6c4a", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "Laravel", &give_one},
    {"eb0c00d98f6f33b4262419a509002884540f30be", "164e7d7e59d6465db19570f81ba52fda7ca863a8",
     "bsm/redislock", &obtain},
    {"9470c810040e272ee6c579d8d4331aaf6332a7b1", "ab9f842cc3a5e9de21501d93c43172aecab4979a",
     "bsm/redislock", &give_all_ok},
    {"5a22d7e8431313862816d4416b5e46dd70fc340d", "8c278200502cf5c47d46ccf291cb32717279a879",
     "bsm/redislock", &extend_all_ok},
    {"66e1084c2d842a7e8c271925aae90219fac4e129", "637a25a432a0bfb691b02eb5a5b65e35ee043bd3",
     "bsm/redislock", &least_left},
    {"a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf", "9a986bcc6034fd4f6b064f07ab6b02d8bd2631e2",
     "bsm/redislock", &extend_one},
    {"cf0e94b2e9ffc7e04395cf88f7583fc309985910", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "bsm/redislock", &give_one},
    {"6484da7d58920897fdc22b7f9afd1a3d47524ea8", "2335bee820b82932635c2ca369028a6886abe812",
     "bsm/redislock", &left_if_own_3},
    {"80a1b5f2cfccec3b7119ba7721d2127682b691a7", "26b1cb659037ea8e6a92058ba7bb07f1cb05629d",
     "bsm/redislock", &obtain},
    {"90da91872223f85eb1376a17e3c4df21ace8c54b", "77019bcdce9ad7fa7389fb65be43f83d7dfc23c9",
     "python-redis-lock", &unlock_signal},
    {"fed16109024d968d9496e4140fe1355bac05ebff", "3946090a824e7dfb50a18d135fa3935ef504303a",
     "python-redis-lock", &extend_zero},
    {"afbc8014508f92e446b56567e8ba600e811c1bd5", "3986acd439827adb910fe5dfad40513147966a69",
     "python-redis-lock", &reset},
    {"b121d3548d693116c3851b63befe947e49f28c7c", "69ad966398192f65419b57f6ce6c399d5ce53fb8",
     "python-redis-lock", &reset_all},
    {"149c5a8bf18676fd99e9e6e24923bd64d9b62f94", "a8388253106717f5f6fb465270243702f4b0cab9",
     "Redisson", &redisson_lock},
    {"dad0f8d619e548e04f21fb48d50be5034df3adae", "f83d2d2fba6bfdd37b344b65dbdc81307a15400c",
     "Redisson", &redisson_lock},
    {"9401052d872adfd0179ef8c8e8c028512707629a", "f7042282c631e31b8d9897b302bad2180f28ab5a",
     "Redisson", &redisson_lock},
    {"46b5551ba403d6152a7a6eca122e08728d6c8c66", "454598c93f55029476b888a69b156c0c28d92e1e",
     "Redisson", &redisson_lock},
    {"49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45", "bf31033001d2fbb8355d51f8ae7704dd686478d2",
     "Redisson", &redisson_fenced_lock},
    {"6866459238a13a701d42f4971f12d9f3a50e2442", "b12935af92a7b3f7e4f5eb631fd701c5ec05cda3",
     "Redisson", &redisson_unlock},
    {"778cea8aada230ae060b432fc333adaec85f2f4c", "656734d977bd67edbc804f53edaecbd2de2975f0",
     "Redisson", &redisson_unlock},
    {"3ffe249c16dee540ac8ab32e39bd408626b9aff7", "d338ef5b7d3a198e37c77db5634c87cc96af9870",
     "Redisson", &redisson_unlock},
    {"605e338249a7a1d40df83b04f7658354f883b41b", "3f57c392ae2f466d150a6107e8c5d3be15e8571a",
     "Redisson", &redisson_force_unlock},
    {"7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1", "d1ab91c9befce0c58d796e00a2897ba41eed446a",
     "Redisson", &redisson_force_unlock},
    {"73ac2729af29ea9a975f95e8097f7ee9a74cce3d", "dd8c8e5736b541f07a94220a1375671410877dc4",
     "Redisson", &redisson_spin_unlock},
    {"51b433c3cc9a6ca991b3aefec63d23490c246318", "c57d8cc03b635cc1f5d50a61a656ac03d568709d",
     "Redisson", &redisson_spin_force_unlock},
    {"6a3d31570dc6f4b0bd32bcdc8e75667747c6f635", "2ea93aac85d47c39ceb49cb08bc03cb11197435e",
     "Redisson", &redisson_renew_each},
    {"8e19a1ddbdee9138df9f32a480c57addab4353d1", "7d8576101f14ab1399bbfbdb165ced79d01cbb94",
     "Redisson", &redisson_renew},
    {"175897a4e379e99e79a54937be09226f76cdcfe5", "48defdfeaeac4758b6f99a2a0dfd5de6da67b3a3",
     "spring-integration", &spring_obtain},
    {"879e0f7b8d83c3266d4e996627438c05dbda0b89", "b8c6f161c1cc7cf41a4860969ff767adf141b5ca",
     "spring-integration", &spring_renew},
    {"f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2", "90a27c4e582140567be5d5e909c3ca00df324b27",
     "spring-integration", &spring_unlock},
    {"7a71e9443a2a41539fb115a5a27d5a748a871aed", "3d9738dffef55ee7c6ad2aab7be54ec7f2b990cc",
     "spring-integration", &spring_unlock_told},
    {"7bcdefae3714859f68f1f2377bddae74a1af9391", "4b62ac80b3d7292ca2511b5d964a36360bbdff6d",
     "sherlock", &take_seconds_one},
    {"8a7fdef25bdef981900f982f5773edaf35000372", "63358e2fbdd0ee11c2e759a533b87c59c871e309",
     "sherlock", &extend_seconds},
    {"bfb9f817b2e860fe4fc58656b2bf657d3fdc2be1", "35eb908ec45c403d471b637cde42f388217ffda1",
     "sherlock", &give_one},
    {"ceb2b2062e40c51a2b3963fd078bc71f11bdc65c", "e96232a4312f75f900cf1828943c9c1337bd8797",
     "redlock-rb", &rb_lock},
    {"8e4905cee18e7c3188d10f2b8b170e403baed34f", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "redlock-rb", &give_one},
    {"78d2ca48a6dc9ef6892059792a3a0c5237733d64", "7a6d31cd57132c725785ec8cbd548c61489df119",
     "redlock-rb", &owner_and_left},
    {"f5f7bd3a3aa4a63c507c1155c5ea1219b350d992", "ba8cbf0ef0d6ff0f14425c1ef69027c818650568",
     "pottery", &left_if_own},
    {"ba015a80261b616e7a62d35df0b8e3edbe6c9414", "9a986bcc6034fd4f6b064f07ab6b02d8bd2631e2",
     "pottery", &extend_one},
    {"a4aada0b36710970eedaaaeec4a6b7d8c78c4f80", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "pottery", &give_one},
    {"aecadef15d24ccd9360d8641cdec8e0337a0d343", "e5a98a0e55c87e5b714f1ccd1374bfc938a60e9f",
     "aioredlock", &take_or_error},
    {"0e084295a6567dabd5b7d5b4c99018cff95fceff", "d018f8e52fd99497e21047bbe5251f1d842a9eca",
     "aioredlock", &give_or_error},
    {"2239e3d89e276c90ec523515c30bcf0071823c7e", "954572dbd553f2150c0530eee16869da441d6783",
     "aioredlock", &left_or_error},
    {"9f614a785a5f9ae8c6396c6b4bf94d2087342603", "3365e76a2651e7ddd291523ede515cfb6c59350d",
     "RedLock.net", &net_extend},
    {"18b2a577dbe847b16bebde190d69a1613d68e60e", "68861aa8724846c4d49fb1b44ff4aa7d57e0fe5c",
     "RedLock.net", &give_one},
};

const struct lock_script *lock_script_at(size_t i)
{
    return i < sizeof scripts / sizeof *scripts ? &scripts[i] : NULL;
}

const struct lock_script *lock_script_find(const char *sha1)
{
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(scripts[i].sha1, sha1) == 0)
            return &scripts[i];
    return NULL;
}

const struct lock_script *lock_script_find_plain(const char *plain)
{
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++)
        if (strcmp(scripts[i].plain, plain) == 0)
            return &scripts[i];
    return NULL;
}

/* The texts. */

void lock_sha1(struct bytes text, char sha1[LOCK_SHA1_SIZE])
{
    unsigned char digest[SHA_DIGEST_LENGTH];

    SHA1((const unsigned char *)text.data, text.len, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(sha1 + 2 * i, 3, "%02x", digest[i]);
}

void lock_plain_sha1(struct bytes text, char sha1[LOCK_SHA1_SIZE])
{
    struct buf plain = {0};

    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        char taken = c == '"' ? '\'' : plain_lower(c);
        if (!plain_is_space(c))
            buf_append(&plain, &taken, 1);
    }
    lock_sha1(buf_bytes(&plain), sha1);
    buf_free(&plain);
}
