/* SPDX-License-Identifier: Apache-2.0 */
/* A store moves to another one, of any kind.
 *
 *                    the old store                 the new store
 *   1.               held: nobody changes it       marked, committed: COMING, takes nothing
 *   2.               read  ──────────────────────▶ rows put, marked CAME; not committed
 *   3.               leases ended, marked GONE,
 *                    committed: takes nothing any more
 *   4.                                             committed: takes writes
 *
 * So there is no moment at which both take writes, and none at which neither has the rows. Where
 * it ends before 3, the old store goes on as if nothing had been. Where it ends between 3 and 4,
 * the old store has all rows and neither takes writes: the same call again does the rest, for both
 * have the move's id. After 4 the same call finds that it is done.
 *
 * Leases stay live, with their tokens: their holders write through the new store's daemons. A
 * daemon that starts there holds each for its full TTL, as after any restart.
 *
 * The way back from GONE is a restore of a backup, which raises the floor above all tokens. */
#include <string.h>

#include "fence/base/clock.h"
#include "fence/base/uri.h"
#include "store/kinds.h"
#include "store/sqlite/copy.h"

struct move {
    struct move_call *call;
    struct transfer *from, *to;
    struct transfer_facts source, target;
    char id[33];
    char *why;
    size_t why_size;
};

static struct transfer *open_store(const char *uri, enum transfer_use use, struct move *move)
{
    const char *name;
    const struct store_kind *kind = store_kind_find(uri, &name, move->why, move->why_size);

    return kind != NULL ? kind->transfer(name, use, move->call->watch, move->why, move->why_size)
                        : NULL;
}

static bool failed_at(const struct move *move, const struct transfer *transfer)
{
    text_print(move->why, move->why_size, "%s", transfer->why);
    return false;
}

static bool refuse(const struct move *move, const char *subject, const char *text)
{
    text_print(move->why, move->why_size, "%s %s", subject, text);
    return false;
}

/* May this store be moved? If an earlier move of it ended half-way, go on with that one. */
static bool judge_source(struct move *move)
{
    const struct transfer_mark *mark = &move->source.mark;

    if (mark->part == TRANSFER_COMING) {
        (void)transfer_is_closed(mark, move->from->label, move->why, move->why_size);
        return false;
    }
    if (move->source.strange)
        return refuse(move, move->from->label,
                      "is a copy, or on another timeline, or was started anew, and no daemon has "
                      "opened it yet: start one on it first");
    if (mark->part == TRANSFER_GONE)
        memcpy(move->id, mark->id, sizeof move->id);
    else
        chance_hex(&chance_system, move->id, sizeof move->id - 1);
    return true;
}

static bool is_of(const struct move *move, const struct transfer_mark *mark)
{
    return strcmp(mark->id, move->id) == 0;
}

/* May it move there? */
static bool judge_target(struct move *move)
{
    const struct transfer_mark *mark = &move->target.mark, *gone = &move->source.mark;
    bool again = gone->part == TRANSFER_GONE;

    move->call->done_before = again && mark->part == TRANSFER_CAME && is_of(move, mark);
    if (move->call->done_before || (mark->part == TRANSFER_COMING && is_of(move, mark)))
        return true;
    if (again) {
        (void)transfer_is_closed(gone, move->from->label, move->why, move->why_size);
        return false;
    }
    /* The same old store has begun a move here, which ended before anything was moved. */
    if (mark->part == TRANSFER_COMING && strcmp(mark->where, move->from->label) == 0)
        return true;
    if (transfer_is_closed(mark, move->to->label, move->why, move->why_size))
        return false;
    if (move->target.rows > 0 || move->target.floor > 0)
        return refuse(move, move->to->label,
                      "is in use: a store moves only to one that was never used");
    return true;
}

static bool put_mark(struct move *move, struct transfer *on, enum transfer_part part,
                     const struct transfer *other)
{
    struct transfer_mark mark = {.part = part};

    memcpy(mark.id, move->id, sizeof mark.id);
    text_print(mark.where, sizeof mark.where, "%s", other->label);
    return on->impl->mark(on, &mark);
}

/* 1. */
static bool hold(struct move *move)
{
    struct transfer *from = move->from;

    if (!from->impl->begin(from) || !from->impl->facts(from, &move->source))
        return failed_at(move, from);
    return judge_source(move);
}

static bool claim(struct move *move)
{
    struct transfer *from = move->from, *to = move->to;

    if (strcmp(from->same, to->same) == 0)
        return refuse(move, from->label, "is the store that it is to move to");
    if (!to->impl->begin(to) || !to->impl->facts(to, &move->target))
        return failed_at(move, to);
    if (!judge_target(move))
        return false;
    return move->call->done_before ||
           (put_mark(move, to, TRANSFER_COMING, from) && to->impl->commit(to)) ||
           failed_at(move, to);
}

/* `failed` has failed before the old store's commit. If that store is still open, free the new one
 * of its mark, too, so that both are as they were. */
static bool give_up(struct move *move, const struct transfer *failed)
{
    static const struct transfer_mark none = {.part = TRANSFER_NONE};
    struct transfer *to = move->to;

    move->call->closed = move->source.mark.part == TRANSFER_GONE;
    (void)failed_at(move, failed);
    to->impl->undo(to);
    if (!move->call->closed)
        (void)(to->impl->begin(to) && to->impl->mark(to, &none) && to->impl->commit(to));
    return false;
}

/* 2 to 4. */
static bool carry(struct move *move)
{
    struct transfer *from = move->from, *to = move->to;

    if (!to->impl->begin(to) || !to->impl->facts(to, &move->target) ||
        !transfer_rows(from, &move->source, to, &move->target, move->source.floor) ||
        !put_mark(move, to, TRANSFER_CAME, from))
        return give_up(move, to);
    /* Also where the same call before has closed it: its commit may not be replicated yet. */
    if (!from->impl->revoke(from, &move->call->leases) || !put_mark(move, from, TRANSFER_GONE, to))
        return give_up(move, from);
    /* A commit that fails may have been done all the same. */
    move->call->closed = true;
    if (!from->impl->commit(from))
        return failed_at(move, from);
    if (!to->impl->commit(to))
        return failed_at(move, to);
    move->call->closed = false;
    return true;
}

static bool run(struct move *move)
{
    if (!claim(move))
        return false;
    move->call->resources = move->source.resources;
    text_print(move->call->left, sizeof move->call->left, "%s", move->from->left);
    return move->call->done_before || carry(move);
}

bool store_move(struct move_call *call, char *why, size_t why_size)
{
    struct move move = {.call = call, .why = why, .why_size = why_size};
    const char *from = uri_after(call->from, "sqlite:"), *to = uri_after(call->to, "sqlite:");
    bool moved = false;

    /* Before it waits for itself. */
    if (from != NULL && to != NULL && copy_is_same_file(to, from))
        return refuse(&move, call->from, "is the store that it is to move to");
    move.from = open_store(call->from, TRANSFER_HOLD, &move);
    if (move.from == NULL)
        return false;
    if (hold(&move))
        move.to = open_store(call->to, TRANSFER_FILL, &move);
    if (move.to != NULL) {
        moved = run(&move);
        move.to->impl->close(move.to);
    }
    move.from->impl->close(move.from);
    return moved;
}
