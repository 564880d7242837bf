/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of one errand at a resource: look, decide, act; where another daemon was faster, look
 * again.
 *
 *   look ──▶ (get the head) ──▶ decide ──▶ create ──▶ lowest? ──▶ granted
 *    ▲                            ├─────▶ set (our turn, again, renewed)
 *    │                            ├─────▶ move (again, renewed, where it is another daemon's)
 *    │                            ├─────▶ delete (released, void, over)
 *    └──── too late ◀─────────────┴─────▶ watch the one in front
 *
 * - Each change names the version it was decided on, so it cannot undo a later one.
 * - A node that is not the lowest after its making is no lease: it is removed again. Only places in
 *   line stay, one for each daemon.
 * - A lease that another daemon took, and whose owner enters again or renews it here, moves over to
 *   this daemon with its number, in one transaction: else it would end with the other's session.
 * - A node of ours that no spot knows of (its making was not answered) is removed when seen. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/check.h"
#include "fence/lease/zookeeper/spot.h"

#define STEPS_MAX 50 /* of one errand */

/* The end of a errand. */

static void answer(struct errand *errand, enum lease_answer verdict, int64_t token, int64_t ttl_ms)
{
    keeper_answer(errand, verdict, token, ttl_ms);
    spot_next(errand);
}

static void fail(struct errand *errand, const char *why)
{
    struct spot *spot = errand->spot;
    bool owed = errand->kind == ERRAND_CALL && errand->ask.verb == LEASE_RELEASE &&
                spot->held.text[0] != '\0' && strcmp(spot->lease.nonce, errand->ask.nonce) == 0 &&
                errand->ask.token == spot->lease.token;

    if (owed)
        spot_end_held(spot);
    if (errand->kind == ERRAND_CALL)
        keeper_answer_down(errand, why);
    spot_next(errand);
}

static bool outcome_unknown(int rc)
{
    return rc == ZCONNECTIONLOSS || rc == ZOPERATIONTIMEOUT || rc == ZCLOSING;
}

void errand_fail(struct errand *errand, int rc)
{
    char why[128];

    if (outcome_unknown(rc))
        errand->spot->doubtful = true;
    keeper_refused(errand->spot->keeper, rc, why, sizeof why);
    fail(errand, why);
}

/* Does the errand go on? */
bool errand_may_step(struct errand *errand)
{
    struct keeper *keeper = errand->spot->keeper;

    if (keeper->state != KEEPER_READY)
        fail(errand, keeper_why(keeper));
    else if (++errand->steps > STEPS_MAX)
        fail(errand, "others are always faster at this resource");
    else
        return true;
    return false;
}

/* Something was written, just now by the server's clock. */
static void note_time(struct keeper *keeper, int64_t mtime_ms)
{
    keeper->ahead_ms = mtime_ms - keeper_now_ms(keeper);
    keeper->ahead_known = true;
}

/* A new node: a lease, or a place in line. */

static void make(struct errand *errand);

/* The lease lives its TTL from when it was asked for: others count from when they see it. */
static void hold(struct errand *errand, const struct node_name *name, int32_t version)
{
    spot_hold(errand->spot, name, &errand->lease, version,
              errand->ask.asked_ms + errand->lease.ttl_ms);
}

/* The time of a lease that nobody has heard of is over at once. */
static void granted(struct errand *errand, enum lease_answer verdict)
{
    struct spot *spot = errand->spot;
    int64_t token = spot->lease.token, ttl_ms = spot->lease.ttl_ms;

    if (errand->call == NULL && errand->ask.verb == LEASE_GRANT)
        spot_end_held(spot);
    answer(errand, verdict, token, ttl_ms);
}

static void on_parent_made(struct zk_op *op)
{
    struct errand *errand = errand_of(op);

    if (op->rc != ZOK && op->rc != ZNODEEXISTS && op->rc != ZNONODE) {
        errand_fail(errand, op->rc);
        return;
    }
    if (!errand_may_step(errand))
        return;
    if (op->rc == ZNONODE)
        keeper_make_base(errand->spot->keeper);
    make(errand);
}

static void make_parent(struct errand *errand)
{
    errand->op.done = on_parent_made;
    zk_create(errand->spot->keeper->session, &errand->op, errand->spot->path, "", 0, ZK_CONTAINER);
}

static void made_lease(struct errand *errand)
{
    struct spot *spot = errand->spot;

    if (strcmp(errand->head.text, errand->made.text) != 0) {
        errand_remove_stray(errand, &errand->made); /* another was faster */
        errand->made.text[0] = '\0';
        errand_look(errand);
        return;
    }
    errand->lease.token = errand->ask.verb == LEASE_RENEW
                              ? errand->ask.token
                              : node_token(errand->made_zxid, errand->ask.floor);
    hold(errand, &errand->made, errand->made_version);
    spot_guard(spot);
    granted(errand, LEASE_GRANTED);
}

static void on_made_listed(struct zk_op *op)
{
    struct errand *errand = list_entry(op, struct errand, second);
    struct spot *spot = errand->spot;

    if (errand->made_rc == ZNONODE) {
        if (errand_may_step(errand))
            make_parent(errand);
        return;
    }
    if (errand->made_rc != ZOK || op->rc != ZOK) {
        spot->unsure = errand->made_rc == ZOK || outcome_unknown(errand->made_rc);
        errand_fail(errand, errand->made_rc != ZOK ? errand->made_rc : op->rc);
        return;
    }
    if (errand->kind == ERRAND_LINE_UP)
        spot_queue(spot, &errand->made, errand->made_zxid);
    errand_examine(errand, op);
    if (!errand_may_step(errand))
        return;
    if (errand->kind != ERRAND_LINE_UP) {
        made_lease(errand);
        return;
    }
    errand->sight =
        strcmp(errand->head.text, errand->made.text) == 0 ? SEEN_OUR_TURN : SEEN_OTHERS_TURN;
    errand_decide(errand);
}

static void on_made(struct zk_op *op)
{
    struct errand *errand = errand_of(op);
    const char *slash = op->rc == ZOK ? strrchr(op->text, '/') : NULL;

    errand->made_rc = op->rc;
    if (slash == NULL)
        return;
    check(node_name_parse(slash + 1, &errand->made));
    errand->made_zxid = op->zxid;
    errand->made_version = op->version;
    note_time(errand->spot->keeper, op->mtime_ms);
}

/* Makes the node and, behind it, asks which is the lowest now. */
static void make(struct errand *errand)
{
    struct zk_session *session = errand->spot->keeper->session;
    char path[NODE_PATH_MAX + 1], name[NODE_NAME_MAX + 1], data[NODE_DATA_MAX];

    if (!errand_may_step(errand))
        return;
    snprintf(name, sizeof name, "%s-", errand->spot->keeper->origin);
    int len = node_write(&errand->lease, errand->ask.verb == LEASE_RENEW, data);
    errand->op.done = on_made;
    errand->second.done = on_made_listed;
    zk_create(session, &errand->op, errand_path(errand, name, path), data, len,
              ZK_EPHEMERAL_NUMBERED);
    zk_children(session, &errand->second, errand->spot->path);
}

static void make_lease(struct errand *errand)
{
    const struct lease_call *ask = &errand->ask;

    errand->lease = (struct node_lease){.ttl_ms = ask->ttl_ms};
    memcpy(errand->lease.nonce, ask->nonce, sizeof errand->lease.nonce);
    errand->lease.token = ask->verb == LEASE_RENEW ? ask->token : node_token(0, ask->floor);
    if (errand->lease.token == 0)
        fail(errand, "the tokens of this resource are used up");
    else if (errand->no_parent)
        make_parent(errand);
    else
        make(errand);
}

/* A node that is there becomes a lease, or lives longer. */

static void kept(struct errand *errand)
{
    if (errand->ask.verb == LEASE_RENEW)
        answer(errand, LEASE_GRANTED, errand->lease.token, errand->lease.ttl_ms);
    else if (errand->sight == SEEN_OUR_TURN)
        granted(errand, LEASE_GRANTED);
    else
        answer(errand, LEASE_OWN, errand->lease.token, errand->lease.ttl_ms);
}

static void on_set(struct zk_op *op)
{
    struct errand *errand = errand_of(op);
    struct spot *spot = errand->spot;

    if (op->rc == ZNONODE || op->rc == ZBADVERSION) {
        spot->doubtful = true;
        if (errand->sight == SEEN_OUR_TURN)
            spot_forget_queued(spot);
        errand_look(errand);
        return;
    }
    if (op->rc != ZOK) {
        errand_fail(errand, op->rc);
        return;
    }
    note_time(spot->keeper, op->mtime_ms);
    if (errand->sight == SEEN_OUR_TURN)
        spot_forget_queued(spot);
    hold(errand, &errand->head, op->version);
    if (errand->sight == SEEN_OUR_TURN)
        spot_guard(spot);
    kept(errand);
}

static void set(struct errand *errand)
{
    char path[NODE_PATH_MAX + 1], data[NODE_DATA_MAX];
    int len = node_write(&errand->lease, true, data);

    errand->op.done = on_set;
    zk_set(errand->spot->keeper->session, &errand->op, errand_path(errand, errand->head.text, path),
           data, len, errand->version);
}

static void take_turn(struct errand *errand)
{
    const struct lease_call *ask = &errand->ask;

    errand->lease = (struct node_lease){.ttl_ms = ask->ttl_ms};
    memcpy(errand->lease.nonce, ask->nonce, sizeof errand->lease.nonce);
    errand->lease.token =
        ask->verb == LEASE_RENEW ? ask->token : node_token(errand->spot->queued_zxid, ask->floor);
    errand->version = -1; /* nobody else writes it */
    if (errand->lease.token == 0)
        fail(errand, "the tokens of this resource are used up");
    else
        set(errand);
}

static void on_moved(struct zk_op *op)
{
    struct errand *errand = errand_of(op);

    if (op->rc == ZOK) {
        hold(errand, &errand->made, 0);
        spot_guard(errand->spot);
        kept(errand);
    } else if (op->rc == ZNONODE || op->rc == ZBADVERSION || op->rc == ZNODEEXISTS) {
        errand_look(errand);
    } else {
        errand->spot->unsure = outcome_unknown(op->rc);
        errand_fail(errand, op->rc);
    }
}

static void move(struct errand *errand)
{
    char gone[NODE_PATH_MAX + 1], path[NODE_PATH_MAX + 1], data[NODE_DATA_MAX];
    int len = node_write(&errand->lease, true, data);

    errand->made = node_name_at(&errand->head, errand->spot->keeper->origin);
    errand->op.done = on_moved;
    zk_move(errand->spot->keeper->session, &errand->op,
            errand_path(errand, errand->head.text, gone), errand->version,
            errand_path(errand, errand->made.text, path), data, len);
}

static void extend(struct errand *errand)
{
    errand->lease.ttl_ms = errand->ask.ttl_ms;
    if (node_is_of(&errand->head, errand->spot->keeper->origin))
        set(errand);
    else
        move(errand);
}

/* Deciding. */

static void on_released(struct zk_op *op)
{
    struct errand *errand = errand_of(op);
    struct spot *spot = errand->spot;
    bool gone = op->rc == ZOK || op->rc == ZNONODE;

    if (gone && strcmp(errand->head.text, spot->held.text) == 0)
        spot_forget_held(spot);
    if (op->rc == ZOK) {
        answer(errand, LEASE_FREE, 0, 0);
    } else if (gone || op->rc == ZBADVERSION) { /* over, or with another daemon now */
        spot->doubtful = true;
        errand_look(errand);
    } else {
        errand_fail(errand, op->rc);
    }
}

/* Its daemon is to know that this is by force (spot.c). */
static void on_marked(struct zk_op *op)
{
    struct errand *errand = errand_of(op);

    if (op->rc != ZOK) {
        on_released(op);
    } else if (errand_may_step(errand)) {
        errand->version = op->version;
        errand_remove_head(errand, on_released);
    }
}

static void release(struct errand *errand)
{
    char path[NODE_PATH_MAX + 1];

    if (!errand->ask.revoked || node_is_of(&errand->head, errand->spot->keeper->origin)) {
        errand_remove_head(errand, on_released);
        return;
    }
    errand->op.done = on_marked;
    zk_set(errand->spot->keeper->session, &errand->op, errand_path(errand, errand->head.text, path),
           "x", 1, errand->version);
}

/* Another has it: where somebody waits for it, this daemon lines up. */
static void held(struct errand *errand)
{
    struct spot *spot = errand->spot;
    bool waits = errand->ask.verb == LEASE_GRANT && !errand->ask.reentry_only && errand->ask.waits;
    int64_t token = errand->sight == SEEN_LEASE ? errand->lease.token : 0;

    if (waits) {
        spot->ahead_token = token;
        spot_asked(spot);
        if (!spot_in_line(spot))
            spot_line_up(spot);
    }
    answer(errand, LEASE_HELD, token, errand->left_ms > 0 ? errand->left_ms : 1);
}

static void decide_grant(struct errand *errand, bool mine)
{
    if (mine && errand->lease.token != errand->ask.void_token)
        extend(errand);
    else if (errand->sight == SEEN_OTHERS_TURN || (errand->sight == SEEN_LEASE && !mine))
        held(errand);
    else if (errand->ask.reentry_only)
        answer(errand, LEASE_FREE, 0, 0);
    else if (mine)
        errand_remove_head(errand, NULL);
    else if (errand->sight == SEEN_OUR_TURN)
        take_turn(errand);
    else
        make_lease(errand);
}

static void decide_call(struct errand *errand)
{
    const struct lease_call *ask = &errand->ask;
    bool lease = errand->sight == SEEN_LEASE;
    bool mine = lease && strcmp(errand->lease.nonce, ask->nonce) == 0;
    bool named = mine && errand->lease.token == ask->token;

    if (ask->verb == LEASE_GRANT)
        decide_grant(errand, mine);
    else if (ask->verb == LEASE_RENEW && named)
        extend(errand);
    else if (ask->verb == LEASE_RENEW && errand->sight == SEEN_OUR_TURN)
        take_turn(errand);
    else if (ask->verb == LEASE_RENEW && errand->sight == SEEN_NOBODY)
        make_lease(errand);
    else if (ask->verb == LEASE_RELEASE && named)
        release(errand);
    else if (lease || (ask->verb == LEASE_RENEW && errand->sight == SEEN_OTHERS_TURN))
        held(errand);
    else
        answer(errand, LEASE_FREE, 0, 0);
}

void errand_decide(struct errand *errand)
{
    if (errand->kind == ERRAND_CALL)
        decide_call(errand);
    else if (errand->kind == ERRAND_TIDY)
        errand_tidy(errand);
    else
        errand_line_up(errand);
}

/* Who holds it here and asks for it again needs no look: the change itself is refused where
 * ZooKeeper knows better. */
static bool knows_enough(const struct errand *errand)
{
    const struct spot *spot = errand->spot;
    const struct lease_call *ask = &errand->ask;
    int64_t token = spot->lease.token;

    if (spot->held.text[0] == '\0' || spot->doubtful ||
        spot->held_until_ms <= keeper_now_ms(spot->keeper) ||
        strcmp(spot->lease.nonce, ask->nonce) != 0)
        return false;
    return ask->verb == LEASE_GRANT ? token != ask->void_token
                                    : ask->verb != LEASE_QUERY && token == ask->token;
}

void errand_run(struct errand *errand)
{
    if (errand->kind == ERRAND_TIDY) {
        errand_tidy(errand);
    } else if (!errand_may_step(errand)) {
        return;
    } else if (errand->kind == ERRAND_LINE_UP && errand->spot->queued.text[0] == '\0') {
        errand->lease = (struct node_lease){.queued = true};
        make(errand);
    } else if (errand->kind == ERRAND_CALL && knows_enough(errand)) {
        errand_see_own(errand);
        errand_decide(errand);
    } else {
        errand_look(errand);
    }
}
