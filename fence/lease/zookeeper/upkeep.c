/* SPDX-License-Identifier: Apache-2.0 */
/* What this daemon does at a resource by itself: it removes what is over or left behind, and sees
 * to its place in line. Where that fails it is tried again, at the spot's next turn. */
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "fence/lease/zookeeper/spot.h"

static void on_place_left(struct zk_op *op)
{
    struct errand *errand = errand_of(op);

    if (op->rc == ZOK || op->rc == ZNONODE) {
        spot_forget_queued(errand->spot);
        errand_tidy(errand);
    } else {
        errand_fail(errand, op->rc);
    }
}

static void on_ended(struct zk_op *op)
{
    struct errand *errand = errand_of(op);
    struct spot *spot = errand->spot;

    if (op->rc == ZOK || op->rc == ZNONODE) {
        spot_forget_held(spot);
        errand_tidy(errand);
    } else if (op->rc == ZBADVERSION) {
        spot->doubtful = true;
        errand_look(errand);
    } else {
        errand_fail(errand, op->rc);
    }
}

void errand_tidy(struct errand *errand)
{
    struct spot *spot = errand->spot;
    int64_t now_ms = keeper_now_ms(spot->keeper);
    char path[NODE_PATH_MAX + 1];

    if (!errand_may_step(errand))
        return;
    if (spot->held.text[0] != '\0' && spot->held_until_ms <= now_ms) {
        errand_see_own(errand);
        errand_remove_head(errand, on_ended);
    } else if (spot->queued.text[0] != '\0' && spot->queued_until_ms <= now_ms) {
        errand->op.done = on_place_left;
        zk_delete(spot->keeper->session, &errand->op, errand_path(errand, spot->queued.text, path),
                  -1);
    } else if (spot->unsure) {
        errand_look(errand);
    } else {
        spot_next(errand);
    }
}

static void on_watched(struct zk_op *op)
{
    struct errand *errand = errand_of(op);

    if (op->rc == ZNONODE) {
        errand_look(errand);
    } else if (op->rc == ZOK) {
        errand->spot->watched = errand->front;
        spot_next(errand);
    } else {
        errand_fail(errand, op->rc);
    }
}

void errand_line_up(struct errand *errand)
{
    struct spot *spot = errand->spot;
    char path[NODE_PATH_MAX + 1];

    if (errand->sight == SEEN_OUR_TURN) {
        spot->our_turn = true;
        spot_asked(spot);
        spot_tell(spot, spot->ahead_token, false);
        spot_next(errand);
    } else if (spot->queued.text[0] == '\0' || errand->front.text[0] == '\0' ||
               strcmp(errand->front.text, spot->watched.text) == 0) {
        spot_next(errand); /* the place is lost, or all is done */
    } else {
        errand->op.done = on_watched;
        zk_watch(spot->keeper->session, &errand->op, errand_path(errand, errand->front.text, path));
    }
}
