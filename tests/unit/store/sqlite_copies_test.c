/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a store in a file, exhaustively: every history of up to DEPTH steps in which images of
 * it are taken and served again, in any order: as another file, in the same file, on a disk that is
 * put back and booted, by `stockade restore`; one after the other or at once, with restarts,
 * reboots and a lease service that remembers or not. The rules are the product's own (token.h,
 * anew.h, names.h); the rest is as small as it can be. copies_test.c is the same for PostgreSQL.
 *
 * - P2: a token is larger than all that were given out before its file was served first, and no
 *   other file has given it out. Once two files are served they are two stores, each with a lease
 *   service of its own: neither hears of the other's later tokens.
 * - P1: a file accepts no token but the newest that was granted in it, and not given back.
 *
 * Two cases nobody can know, and OPERATIONS.md says what to do: older contents in the same file
 * under the same boot (both promises), and on a disk that was put back and booted (P1 only). */
#include <string.h>

#include "fence/token.h"
#include "store/sqlite/anew.h"
#include "store/sqlite/names.h"
#include "tests/unit/test.h"

TESTS_HAVE_ONE_THREAD

enum { DEPTH = 7, FILES_MAX = 2, IMAGES_MAX = 2 };

#define START_US INT64_C(1790000000000000) /* 2026 */
#define STEP_US  1000                      /* between two steps: grants are far rarer than 1/us */

struct contents {
    bool noted;
    struct names_file file; /* the one that it says it is */
    int boot;
    int64_t floor, token;
    bool live;
};

struct file {
    bool exists, served; /* by a daemon, at present */
    struct names_file is;
    struct contents contents;
    int64_t counter; /* of its lease service, which stays where the file is replaced */
    /* What really happened. */
    unsigned covers; /* grants that its tokens have to be larger than, one bit each */
    int64_t held;    /* the newest token that was granted in it and not given back; 0: none */
    bool is_older;   /* than what was told of it, and that may not be known */
    bool is_unknown; /* the same, and tokens may come twice */
};

struct world {
    int64_t now_us;
    bool no_boot; /* the system does not say which one it is */
    int boot, born;
    struct file files[FILES_MAX];
    struct contents images[IMAGES_MAX];
    int count; /* of images */
    int64_t granted[DEPTH + 1];
    int grants;
};

static unsigned long histories;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void begin_anew(struct world *world, struct file *file, int64_t known, bool ends_all)
{
    struct contents *contents = &file->contents;

    contents->floor = token_floor_anew(known, world->now_us, 0);
    assert_true(contents->floor > known);
    file->covers = (1U << world->grants) - 1;
    file->is_unknown = false;
    if (ends_all) {
        contents->live = file->is_older = false;
        file->held = 0;
    }
}

static int64_t known_in(const struct contents *contents)
{
    return larger(contents->floor, contents->token);
}

static void note(const struct world *world, struct file *file)
{
    file->contents.noted = true;
    file->contents.file = file->is;
    file->contents.boot = world->boot;
    file->served = true;
}

/* A daemon opens the file. */
static void serve(struct world *world, struct file *file)
{
    const struct contents *contents = &file->contents;
    struct anew_signs signs = {
        .unnoted = !contents->noted,
        .other = contents->noted && !names_are_one(&contents->file, &file->is),
        .rebooted = world->no_boot || contents->boot != world->boot,
    };

    if (anew_why(&signs) != NULL)
        begin_anew(world, file, known_in(contents), anew_ends_all(&signs));
    note(world, file);
}

static void reboot(struct world *world)
{
    world->boot++;
    for (int i = 0; i < FILES_MAX; i++)
        world->files[i].served = false;
}

/* An image is served as a new file in that place, which may well have the number of the old one. */
static void serve_copy(struct world *world, struct file *file, const struct contents *image)
{
    *file = (struct file){.exists = true,
                          .is = {.inode = file->is.inode, .born_ns = ++world->born},
                          .contents = *image,
                          .counter = file->counter};
    serve(world, file);
}

/* In the same file, by `cp` or by a disk that is put back. */
static void serve_in_place(struct world *world, struct file *file, const struct contents *image)
{
    file->contents = *image;
    file->is_older = file->is_unknown = true;
    serve(world, file);
}

static void restore(struct world *world, struct file *file, const struct contents *image)
{
    int64_t known = larger(known_in(&file->contents), known_in(image));

    file->contents = *image;
    begin_anew(world, file, known, true);
    note(world, file);
}

static struct fence fence_of(const struct contents *contents)
{
    if (contents->token == 0)
        return (struct fence){.floor = contents->floor};
    return (struct fence){contents->token, known_in(contents),
                          contents->live ? FENCE_LIVE : FENCE_REVOKED};
}

static void grant(struct world *world, struct file *file)
{
    struct fence fence = fence_of(&file->contents);
    int64_t token =
        token_next(file->counter, fence.floor, token_believed_max(fence.floor, world->now_us));

    assert_true(fence_admits(&fence, token));
    for (int i = 0; i < world->grants && !file->is_unknown; i++) {
        assert_true(token != world->granted[i]);
        assert_true(token > world->granted[i] || (file->covers & 1U << i) == 0);
    }
    file->covers |= 1U << world->grants;
    world->granted[world->grants++] = file->counter = file->contents.token = file->held = token;
    file->contents.live = true;
}

static void release(struct file *file)
{
    file->contents.live = false;
    file->held = 0;
}

static void check_fenced(const struct world *world)
{
    for (int f = 0; f < FILES_MAX; f++) {
        const struct file *file = &world->files[f];
        struct fence fence = fence_of(&file->contents);
        for (int i = 0; i < world->grants && file->served && !file->is_older; i++)
            assert_int_equal(fence_judge(&fence, world->granted[i]) == STK_OK,
                             world->granted[i] == file->held);
    }
}

static void explore(const struct world *before, int depth)
{
    if (depth == 0) {
        histories++;
        return;
    }
#define STEP(condition, step)                                                                      \
    if (condition) {                                                                               \
        struct world world = *before;                                                              \
        struct file *file = &world.files[f];                                                       \
        (void)file;                                                                                \
        world.now_us += STEP_US;                                                                   \
        step;                                                                                      \
        check_fenced(&world);                                                                      \
        explore(&world, depth - 1);                                                                \
    }
    for (int f = 0; f < FILES_MAX; f++) {
        const struct file *is = &before->files[f];
        STEP(is->counter > 0, file->counter = 0)
        STEP(is->served, grant(&world, file))
        STEP(is->served && is->contents.live, release(file))
        STEP(is->exists && before->count < IMAGES_MAX, world.images[world.count++] = file->contents)
        STEP(is->exists, serve(&world, file))
        STEP(is->exists, reboot(&world); serve(&world, file))
        for (int i = 0; i < before->count; i++) {
            const struct contents *image = &before->images[i];
            STEP(true, serve_copy(&world, file, image))
            STEP(is->exists, serve_in_place(&world, file, image))
            STEP(is->exists, reboot(&world); serve_in_place(&world, file, image))
            STEP(is->exists, restore(&world, file, image))
        }
    }
#undef STEP
}

TEST(copies_of_a_file_in_any_order_give_no_token_out_twice_and_keep_no_holder_that_was_overtaken)
{
    for (int kind = 0; kind < 4; kind++) {
        struct world world = {.now_us = START_US, .no_boot = (kind & 1) != 0, .boot = 1, .born = 1};
        for (int f = 0; f < FILES_MAX; f++)
            world.files[f].is.inode = 100; /* each number is given again at once */
        world.files[0].is.born_ns = 1;
        world.files[0].exists = true;
        world.files[0].contents.boot = 1;
        if ((kind & 2) != 0) /* else an earlier version has served it last */
            note(&world, &world.files[0]);
        serve(&world, &world.files[0]);
        explore(&world, DEPTH);
    }
    assert_true(histories > 1000000);
}
