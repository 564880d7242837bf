/* SPDX-License-Identifier: Apache-2.0 */
/* Spots: what this daemon has at a resource, and in which order it is busy there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/zookeeper/spot.h"

#define UNASKED_MS 3000 /* a place in line that nobody asks for so long is given up */
#define TURN_MS    300  /* and sooner once it is our turn */

struct spot *spot_find(struct keeper *keeper, const char *path)
{
    struct spot *spot;

    HASH_FIND_STR(keeper->spots, path, spot);
    return spot;
}

struct spot *spot_of(struct keeper *keeper, struct bytes resource)
{
    char path[NODE_PATH_MAX + 1];

    node_parent(keeper->base_path, resource, path);
    struct spot *spot = spot_find(keeper, path);
    if (spot != NULL)
        return spot;
    size_t path_len = strlen(path);
    spot = mem_zalloc(sizeof *spot + path_len + 1 + resource.len);
    spot->keeper = keeper;
    spot->path = (char *)(spot + 1);
    memcpy(spot->path, path, path_len + 1);
    char *name = spot->path + path_len + 1;
    memcpy(name, resource.data, resource.len);
    spot->resource = (struct bytes){name, resource.len};
    list_init(&spot->errands);
    HASH_ADD_KEYPTR(hh, keeper->spots, spot->path, path_len, spot);
    return spot;
}

void spot_free_if_idle(struct spot *spot)
{
    if (!list_empty(&spot->errands) || spot->held.text[0] != '\0' || spot->queued.text[0] != '\0' ||
        spot->unsure)
        return;
    HASH_DEL(spot->keeper->spots, spot);
    free(spot);
}

void spot_hold(struct spot *spot, const struct node_name *name, const struct node_lease *lease,
               int32_t version, int64_t until_ms)
{
    spot->held = *name;
    spot->lease = *lease;
    spot->version = version;
    spot->doubtful = spot->removing = spot->forced = false;
    spot->held_until_ms = until_ms;
    heap_set(&spot->keeper->ending, &spot->held_due, spot->held_until_ms);
    keeper_schedule(spot->keeper);
}

void spot_forget_held(struct spot *spot)
{
    spot->held.text[0] = '\0';
    heap_remove(&spot->keeper->ending, &spot->held_due);
}

void spot_end_held(struct spot *spot)
{
    spot->held_until_ms = keeper_now_ms(spot->keeper);
    heap_set(&spot->keeper->ending, &spot->held_due, spot->held_until_ms);
    keeper_schedule(spot->keeper);
}

void spot_asked(struct spot *spot)
{
    if (spot->queued.text[0] == '\0')
        return;
    spot->queued_until_ms = keeper_now_ms(spot->keeper) + (spot->our_turn ? TURN_MS : UNASKED_MS);
    heap_set(&spot->keeper->leaving, &spot->queued_due, spot->queued_until_ms);
    keeper_schedule(spot->keeper);
}

void spot_queue(struct spot *spot, const struct node_name *name, int64_t zxid)
{
    spot->queued = *name;
    spot->queued_zxid = zxid;
    spot_asked(spot);
}

bool spot_in_line(const struct spot *spot)
{
    return spot->queued.text[0] != '\0' && spot->watched.text[0] != '\0';
}

void spot_forget_queued(struct spot *spot)
{
    spot->queued.text[0] = spot->watched.text[0] = '\0';
    spot->our_turn = false;
    heap_remove(&spot->keeper->leaving, &spot->queued_due);
}

void spot_session_lost(struct spot *spot)
{
    struct keeper *keeper = spot->keeper;

    if (spot->held.text[0] != '\0' && keeper->on_news != NULL) {
        struct lost *lost = mem_zalloc(sizeof *lost + spot->resource.len);
        lost->token = spot->lease.token;
        lost->len = spot->resource.len;
        memcpy(lost->resource, spot->resource.data, lost->len);
        list_append(&keeper->lost, &lost->link);
    }
    spot_forget_held(spot);
    spot_forget_queued(spot);
    spot->unsure = false;
    spot_free_if_idle(spot);
}

struct errand *spot_errand_new(struct spot *spot, enum errand_kind kind)
{
    struct errand *errand = mem_zalloc(sizeof *errand);

    errand->spot = spot;
    errand->kind = kind;
    list_init(&errand->in_asked);
    return errand;
}

/* Runs errands until one has to wait for ZooKeeper. Errands that end at once do not nest. */
static void start(struct spot *spot)
{
    unsigned ended;

    if (spot->starting)
        return;
    spot->starting = true;
    do {
        ended = spot->ended;
        if (!list_empty(&spot->errands))
            errand_run(list_entry(spot->errands.next, struct errand, link));
    } while (spot->ended != ended);
    spot->starting = false;
    spot_free_if_idle(spot);
}

void spot_add(struct spot *spot, struct errand *errand)
{
    bool idle = list_empty(&spot->errands);

    list_append(&spot->errands, &errand->link);
    if (idle)
        start(spot);
}

void spot_next(struct errand *errand)
{
    struct spot *spot = errand->spot;

    check(spot->errands.next == &errand->link && errand->call == NULL);
    list_remove(&errand->link);
    free(errand);
    spot->ended++;
    start(spot);
}

static bool has_errand(const struct spot *spot, enum errand_kind kind)
{
    for (const struct list *at = spot->errands.next; at != &spot->errands; at = at->next)
        if (at != spot->errands.next && list_entry(at, struct errand, link)->kind == kind)
            return true;
    return false;
}

static void add_once(struct spot *spot, enum errand_kind kind)
{
    if (!has_errand(spot, kind)) /* one that is running may have looked already */
        spot_add(spot, spot_errand_new(spot, kind));
}

void spot_tidy(struct spot *spot)
{
    add_once(spot, ERRAND_TIDY);
}

void spot_line_up(struct spot *spot)
{
    add_once(spot, ERRAND_LINE_UP);
}

/* The spot whose node this is, and the node's name. */
static struct spot *spot_at(struct keeper *keeper, const char *path, const char **name)
{
    char parent[NODE_PATH_MAX + 1];
    const char *slash = strrchr(path, '/');

    if (slash == NULL || strlen(path) > NODE_PATH_MAX)
        return NULL;
    memcpy(parent, path, (size_t)(slash - path));
    parent[slash - path] = '\0';
    *name = slash + 1;
    return spot_find(keeper, parent);
}

static bool holds(const struct spot *spot, const char *name)
{
    return spot->held.text[0] != '\0' && !spot->removing && strcmp(spot->held.text, name) == 0;
}

/* Something happened to the node in front of us: a watch tells once. */
static void look_ahead(struct spot *spot, const char *name)
{
    if (strcmp(spot->watched.text, name) == 0)
        spot->watched.text[0] = '\0';
    if (spot->queued.text[0] != '\0' && spot->keeper->state == KEEPER_READY)
        spot_line_up(spot);
}

void spot_removed(struct keeper *keeper, const char *path)
{
    const char *name;
    struct spot *spot = spot_at(keeper, path, &name);

    if (spot == NULL)
        return;
    look_ahead(spot, name);
    if (holds(spot, name))
        spot_tell(spot, spot->lease.token, spot->forced);
}

/* A guard on its way: a request and the path, which outlive the spot. */
struct guard {
    struct zk_op op;
    struct keeper *keeper;
    bool written; /* the node was there, and somebody has written it */
    char path[];
};

/* Who takes a lease away by force writes the node before he removes it. */
static void on_guarded(struct zk_op *op)
{
    struct guard *guard = list_entry(op, struct guard, op);
    const char *name;
    struct spot *spot = spot_at(guard->keeper, guard->path, &name);

    if (spot != NULL && holds(spot, name)) {
        spot->forced |= op->rc == ZOK && op->version != spot->version;
        if (op->rc == ZNONODE)
            spot_tell(spot, spot->lease.token, guard->written);
    }
    free(guard);
}

static void set_guard(struct keeper *keeper, const char *path, bool written)
{
    size_t size = strlen(path) + 1;
    struct guard *guard = mem_zalloc(sizeof *guard + size);

    memcpy(guard->path, path, size);
    guard->keeper = keeper;
    guard->written = written;
    guard->op.done = on_guarded;
    zk_watch(keeper->session, &guard->op, path);
}

void spot_guard(struct spot *spot)
{
    char path[NODE_PATH_MAX + 1];

    if (spot->keeper->on_news == NULL || spot->keeper->state != KEEPER_READY)
        return;
    snprintf(path, sizeof path, "%s/%s", spot->path, spot->held.text);
    set_guard(spot->keeper, path, false);
}

void spot_written(struct keeper *keeper, const char *path)
{
    const char *name;
    struct spot *spot = spot_at(keeper, path, &name);

    if (spot != NULL && holds(spot, name))
        set_guard(keeper, path, true); /* it was we, or we are about to lose it */
    else if (spot != NULL)
        look_ahead(spot, name);
}

void spot_tell(struct spot *spot, int64_t token, bool revoked)
{
    struct keeper *keeper = spot->keeper;
    const struct lease_news news = {.revoked = revoked, .resource = spot->resource, .token = token};

    if (keeper->on_news == NULL || keeper->state == KEEPER_CLOSING)
        return;
    keeper->news++;
    keeper->on_news(keeper->news_context, &news);
}
