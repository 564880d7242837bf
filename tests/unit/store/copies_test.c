/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and promotions, exhaustively: every history of up to DEPTH steps of a store in PostgreSQL
 * of which copies are taken, and served again, in any order: dumps elsewhere, standbys that are
 * promoted, base backups that are started in place, with a daemon that remembers or a fresh one,
 * and a lease service that remembers or not. The rules are the product's own (token.h, anew.h); the
 * rest is as small as it can be.
 *
 * - P2: each token is larger than all before it, in any history.
 * - P1: none but the newest token that was granted is accepted, but for the one case that nobody
 *   can know: older data, started in place, before a daemon that remembers nothing. */
#include <string.h>

#include "fence/token.h"
#include "store/postgresql/anew.h"
#include "tests/unit/test.h"

TESTS_HAVE_ONE_THREAD

enum { DEPTH = 7, COPIES_MAX = 3 };

#define START_US INT64_C(1790000000000000) /* 2026 */
#define STEP_US  1000                      /* between two steps: grants are far rarer than 1/us */

/* The data, with what stands in them of who served them last. */
struct copy {
    int place, timeline, run;
    bool replicated;
    int64_t floor, ended, token;
    bool live;
    uint32_t commits; /* those that are in it */
};

struct world {
    int64_t now_us;
    struct copy copies[COPIES_MAX];
    int count;
    struct copy served;
    int place, run, timeline; /* of the server, the newest ones */
    bool replicates;
    /* The daemon's memory. */
    bool witness, unreplicated;
    uint32_t told;
    /* The lease service's. */
    int64_t counter;
    /* What really happened. */
    uint32_t commits;
    int last_commit;
    int64_t granted[DEPTH];
    int grants;
    bool is_held; /* the newest grant was not given back */
    bool unknowable;
};

static unsigned long histories;

static void commit(struct world *world)
{
    uint32_t bit = UINT32_C(1) << world->last_commit++;

    world->served.commits |= bit;
    world->commits |= bit;
    world->told |= bit;
}

/* The daemon meets the server that is there now. */
static void meet(struct world *world, int place, int timeline)
{
    struct copy *served = &world->served;
    struct pg_signs signs = {
        .other = served->place != place,
        .promoted = served->timeline != timeline,
        .restarted = served->run != world->run,
        .replicated = served->replicated,
        .lost = (world->told & ~served->commits) != 0,
        .witness = world->witness,
        .unreplicated = world->unreplicated,
    };

    if (pg_anew_why(&signs) != NULL) {
        int64_t known = served->floor > served->token ? served->floor : served->token;
        served->floor = token_floor_anew(known, world->now_us, 0);
        assert_true(served->floor > known);
    }
    if (pg_anew_ends_all(&signs)) {
        served->ended = served->floor;
        world->told = 0;
        world->unknowable = false;
    }
    *served = (struct copy){.place = place,
                            .timeline = timeline,
                            .run = world->run,
                            .replicated = world->replicates,
                            .floor = served->floor,
                            .ended = served->ended,
                            .token = served->token,
                            .live = served->live,
                            .commits = served->commits};
    world->witness = true;
    world->unreplicated = !world->replicates;
    commit(world); /* the opening, or what was settled */
}

static void forget(struct world *world)
{
    world->witness = world->unreplicated = false;
    world->told = 0;
}

static struct fence fence_of(const struct copy *copy)
{
    int64_t floor = copy->floor > copy->token ? copy->floor : copy->token;

    if (copy->token == 0)
        return (struct fence){.floor = floor};
    return (struct fence){copy->token, floor,
                          copy->live && copy->token > copy->ended ? FENCE_LIVE : FENCE_REVOKED};
}

static void grant(struct world *world)
{
    struct fence fence = fence_of(&world->served);
    int64_t token =
        token_next(world->counter, fence.floor, token_believed_max(fence.floor, world->now_us));

    assert_true(fence_admits(&fence, token));
    for (int i = 0; i < world->grants; i++)
        assert_true(token > world->granted[i]);
    world->granted[world->grants++] = world->counter = world->served.token = token;
    world->served.live = world->is_held = true;
    commit(world);
}

static void release(struct world *world)
{
    world->served.live = world->is_held = false;
    commit(world);
}

static void check_fenced(const struct world *world)
{
    struct fence fence = fence_of(&world->served);

    for (int i = 0; i < world->grants && !world->unknowable; i++)
        if (i < world->grants - 1 || !world->is_held)
            assert_int_not_equal(fence_judge(&fence, world->granted[i]), STK_OK);
}

enum how { DUMPED, PROMOTED, IN_PLACE, HOWS };

/* Serve a copy. The one that was served stays as it is, as a copy, or is lost. */
static void serve(struct world *world, int copy, enum how how, bool witness)
{
    struct copy served = world->served;

    world->served = world->copies[copy];
    world->copies[copy] = served;
    world->run++;
    if (!witness)
        forget(world);
    if (how == IN_PLACE && !witness && (world->commits & ~world->served.commits) != 0)
        world->unknowable = true;
    meet(world, how == DUMPED ? ++world->place : world->served.place,
         world->served.timeline + (how == PROMOTED));
}

static void explore(const struct world *before, int depth);

static void go_on(struct world *world, int depth)
{
    check_fenced(world);
    explore(world, depth - 1);
}

static void explore(const struct world *before, int depth)
{
    struct world world;

    if (depth == 0) {
        histories++;
        return;
    }
#define STEP(condition, step)                                                                      \
    if (condition) {                                                                               \
        world = *before;                                                                           \
        world.now_us += STEP_US;                                                                   \
        step;                                                                                      \
        go_on(&world, depth);                                                                      \
    }
    STEP(true, grant(&world))
    STEP(before->served.live && before->served.token > before->served.ended, release(&world))
    STEP(before->count < COPIES_MAX, world.copies[world.count++] = world.served)
    STEP(before->counter > 0, world.counter = 0)
    STEP(before->replicates, world.replicates = world.served.replicated = false;
         world.unreplicated = true; commit(&world))
    STEP(!before->replicates, world.replicates = world.served.replicated = true;
         world.unreplicated = false; commit(&world))
    STEP(true, world.run++; meet(&world, world.served.place, world.served.timeline))
    STEP(true, forget(&world); meet(&world, world.served.place, world.served.timeline))
    for (int copy = 0; copy < before->count; copy++)
        for (enum how how = DUMPED; how < HOWS; how++)
            for (int witness = 0; witness < 2; witness++)
                STEP(true, serve(&world, copy, how, witness))
#undef STEP
}

TEST(copies_in_any_order_give_no_token_out_twice_and_keep_no_holder_that_was_overtaken)
{
    for (int replicates = 0; replicates < 2; replicates++) {
        struct world world = {.now_us = START_US,
                              .replicates = replicates,
                              .served.replicated = replicates,
                              .served.timeline = 1};
        world.witness = true;
        world.unreplicated = !replicates;
        commit(&world);
        explore(&world, DEPTH);
    }
    assert_true(histories > 1000000);
}
