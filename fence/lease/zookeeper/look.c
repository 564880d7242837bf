/* SPDX-License-Identifier: Apache-2.0 */
/* Who is there at a resource? The lowest of its nodes, and what it says; on the way, what is over
 * or left behind is removed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/mem.h"
#include "fence/lease/zookeeper/spot.h"

#define OTHERS_TURN_MS 100 /* when to ask again while another daemon has not taken its turn yet */

struct errand *errand_of(struct zk_op *op)
{
    struct errand *errand = list_entry(op, struct errand, op);

    if (op->rc == ZOK || op->rc <= ZAPIERROR) { /* else the client says so */
        errand->spot->keeper->heard_ms = keeper_now_ms(errand->spot->keeper);
        errand->spot->keeper->silent = false;
    }
    return errand;
}

const char *errand_path(const struct errand *errand, const char *name, char out[NODE_PATH_MAX + 1])
{
    snprintf(out, NODE_PATH_MAX + 1, "%s/%s", errand->spot->path, name);
    return out;
}

static void on_stray_removed(struct zk_op *op)
{
    free(op);
}

void errand_remove_stray(struct errand *errand, const struct node_name *name)
{
    char path[NODE_PATH_MAX + 1];

    if (errand->spot->keeper->state != KEEPER_READY) {
        errand->spot->unsure = true;
        return;
    }
    struct zk_op *op = mem_zalloc(sizeof *op);
    op->done = on_stray_removed;
    zk_delete(errand->spot->keeper->session, op, errand_path(errand, name->text, path), -1);
}

/* The lowest of the nodes, the one in front of our place, and whether ours are still there. */
void errand_examine(struct errand *errand, const struct zk_op *op)
{
    struct spot *spot = errand->spot;
    bool held = false, queued = false;

    errand->head.text[0] = errand->front.text[0] = '\0';
    spot->unsure = false;
    for (int i = 0; i < op->names_count; i++) {
        struct node_name name;
        if (!node_name_parse(op->names[i], &name))
            continue;
        bool is_held = strcmp(name.text, spot->held.text) == 0,
             is_queued = strcmp(name.text, spot->queued.text) == 0;
        held |= is_held;
        queued |= is_queued;
        if (node_is_of(&name, spot->keeper->origin) && !is_held && !is_queued &&
            strcmp(name.text, errand->made.text) != 0) {
            errand_remove_stray(errand, &name);
            continue;
        }
        if (errand->head.text[0] == '\0' || node_before(&name, &errand->head))
            errand->head = name;
        if (spot->queued.text[0] != '\0' && node_before(&name, &spot->queued) &&
            (errand->front.text[0] == '\0' || node_before(&errand->front, &name)))
            errand->front = name;
    }
    if (!held)
        spot_forget_held(spot);
    if (!queued)
        spot_forget_queued(spot);
}

static void on_head_removed(struct zk_op *op)
{
    struct errand *errand = errand_of(op);

    if (op->rc == ZOK || op->rc == ZNONODE || op->rc == ZBADVERSION)
        errand_look(errand);
    else
        errand_fail(errand, op->rc);
}

void errand_remove_head(struct errand *errand, void (*done)(struct zk_op *op))
{
    char path[NODE_PATH_MAX + 1];

    errand->spot->removing |= strcmp(errand->head.text, errand->spot->held.text) == 0;
    errand->op.done = done != NULL ? done : on_head_removed;
    zk_delete(errand->spot->keeper->session, &errand->op,
              errand_path(errand, errand->head.text, path), errand->version);
}

/* The head is our own lease, as far as we know. */
void errand_see_own(struct errand *errand)
{
    const struct spot *spot = errand->spot;

    errand->sight = SEEN_LEASE;
    errand->head = spot->held;
    errand->lease = spot->lease;
    errand->version = spot->version;
    errand->left_ms = spot->held_until_ms - keeper_now_ms(spot->keeper);
}

/* Another daemon's lease is over when it has not changed for its TTL since it was first seen here:
 * no clock but our own decides about it. What is left of it by then. */
static int64_t see_others(struct spot *spot, const struct node_name *name, int32_t version,
                          int64_t ttl_ms)
{
    int64_t now_ms = keeper_now_ms(spot->keeper);

    if (strcmp(spot->seen.text, name->text) != 0 || spot->seen_version != version) {
        spot->seen = *name;
        spot->seen_version = version;
        spot->seen_ms = now_ms;
    }
    return spot->seen_ms + ttl_ms - now_ms;
}

/* The same by the server's clock, good enough to tell people. */
static int64_t by_clock_ms(const struct keeper *keeper, int64_t mtime_ms, int64_t ttl_ms)
{
    if (!keeper->ahead_known)
        return ttl_ms;
    return mtime_ms + ttl_ms - (keeper_now_ms(keeper) + keeper->ahead_ms);
}

static void on_head_read(struct zk_op *op)
{
    struct errand *errand = errand_of(op);
    struct spot *spot = errand->spot;
    struct keeper *keeper = spot->keeper;
    bool own = strcmp(errand->head.text, spot->held.text) == 0;

    if (op->rc == ZNONODE) {
        errand_look(errand);
        return;
    }
    if (op->rc != ZOK) {
        errand_fail(errand, op->rc);
        return;
    }
    if (!errand_may_step(errand))
        return;
    errand->version = op->version;
    errand->sight = SEEN_LEASE;
    if (!node_read((struct bytes){op->text, op->text_len}, op->zxid, &errand->lease))
        errand->lease = (struct node_lease){.ttl_ms = OTHERS_TURN_MS};
    if (errand->lease.queued) {
        errand->sight = SEEN_OTHERS_TURN;
        errand->left_ms = OTHERS_TURN_MS;
        errand_decide(errand);
        return;
    }
    if (own && spot->held_until_ms <= keeper_now_ms(keeper)) {
        errand_remove_head(errand, NULL); /* released, and that was lost: to look revives nothing */
        return;
    }
    int64_t ttl_ms = errand->lease.ttl_ms, seen_left_ms = ttl_ms;
    if (own) /* another daemon wrote it, or an answer was lost */
        spot_hold(spot, &errand->head, &errand->lease, errand->version,
                  keeper_now_ms(keeper) + ttl_ms);
    else
        seen_left_ms = see_others(spot, &errand->head, op->version, ttl_ms);
    errand->left_ms = by_clock_ms(keeper, op->mtime_ms, ttl_ms);
    if (errand->left_ms <= 0 || errand->left_ms > ttl_ms)
        errand->left_ms = seen_left_ms;
    if (seen_left_ms > 0)
        errand_decide(errand);
    else
        errand_remove_head(errand, NULL); /* its daemon is dead or asleep */
}

static void on_looked(struct zk_op *op)
{
    struct errand *errand = errand_of(op);
    struct spot *spot = errand->spot;
    char path[NODE_PATH_MAX + 1];

    if (op->rc != ZOK && op->rc != ZNONODE) {
        errand_fail(errand, op->rc);
        return;
    }
    errand->no_parent = op->rc == ZNONODE;
    errand_examine(errand, op);
    if (!errand_may_step(errand))
        return;
    if (errand->head.text[0] == '\0') {
        errand->sight = SEEN_NOBODY;
        errand_decide(errand);
    } else if (strcmp(errand->head.text, spot->queued.text) == 0) {
        errand->sight = SEEN_OUR_TURN;
        errand_decide(errand);
    } else if (errand->kind == ERRAND_LINE_UP) {
        errand->sight = SEEN_OTHERS_TURN; /* or lease: it makes no difference */
        errand_decide(errand);
    } else if (strcmp(errand->head.text, spot->held.text) == 0 && !spot->doubtful) {
        errand_see_own(errand);
        if (errand->left_ms > 0 || errand->kind == ERRAND_TIDY)
            errand_decide(errand);
        else
            errand_remove_head(errand, NULL);
    } else {
        errand->op.done = on_head_read;
        zk_get(spot->keeper->session, &errand->op, errand_path(errand, errand->head.text, path));
    }
}

void errand_look(struct errand *errand)
{
    if (!errand_may_step(errand))
        return;
    errand->op.done = on_looked;
    zk_children(errand->spot->keeper->session, &errand->op, errand->spot->path);
}
