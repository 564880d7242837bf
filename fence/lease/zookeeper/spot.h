/* SPDX-License-Identifier: Apache-2.0 */
/* A spot is a resource that somebody here is busy with: its lease, where it is this daemon's; its
 * one place in line behind another's; the errands, one after the other, so that this daemon never
 * races with itself. A spot with none of these is gone.
 *
 * What a spot says is never an answer by itself: each is ZooKeeper's word, asked for the call. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_SPOT_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_SPOT_H

#include <uthash.h>

#include "fence/lease/zookeeper/keeper.h"

struct spot {
    UT_hash_handle hh;
    struct keeper *keeper;
    struct list errands; /* the first is running */
    /* The lease, where it is this daemon's and `held.text` is not "". */
    struct node_name held;
    struct node_lease lease;
    int32_t version;
    bool doubtful;             /* somebody else may have written it */
    bool removing;             /* by ourselves */
    bool forced;               /* another daemon has marked it as taken away by force */
    int64_t held_until_ms;     /* its end, as we count */
    struct heap_node held_due; /* when to remove it */
    /* The place in line. */
    struct node_name queued, watched; /* the node in front */
    int64_t queued_zxid;              /* of the transaction that made it */
    int64_t ahead_token;              /* of the lease that we wait for, as far as known */
    int64_t queued_until_ms;          /* nobody asks for it any more */
    struct heap_node queued_due;      /* when to remove it */
    struct node_name seen;            /* another daemon's lease; this version since seen_ms */
    int32_t seen_version;
    int64_t seen_ms;
    bool our_turn;
    bool unsure; /* a node may be left there that nobody knows of */
    bool starting;
    unsigned ended; /* errands */

    struct bytes resource;
    char *path; /* of the resource's node */
};

enum errand_kind {
    ERRAND_CALL,
    ERRAND_TIDY,    /* removes what is over */
    ERRAND_LINE_UP, /* takes a place in line, or looks at what has happened in front of it */
};

/* What errand.c sees at a resource. */
enum sight {
    SEEN_NOBODY,
    SEEN_OUR_TURN,
    SEEN_OTHERS_TURN,
    SEEN_LEASE,
};

struct errand {
    struct list link; /* in the spot */
    struct spot *spot;
    enum errand_kind kind;
    struct lease_call ask;   /* the question, copied; its resource is the spot's */
    struct lease_call *call; /* NULL: nobody waits for the answer (any more) */
    struct list in_asked;
    struct zk_op op, second;
    int steps;
    /* What the last look has seen. */
    bool no_parent;
    enum sight sight;
    struct node_name head, front; /* the lowest; the one in front of our place */
    struct node_lease lease;
    int32_t version;
    int64_t left_ms;
    /* What a create has made, by its answer. */
    int made_rc;
    struct node_name made;
    int64_t made_zxid;
    int32_t made_version;
};

struct spot *spot_of(struct keeper *keeper, struct bytes resource); /* made where missing */
struct spot *spot_find(struct keeper *keeper, const char *path);
void spot_free_if_idle(struct spot *spot);
void spot_hold(struct spot *spot, const struct node_name *name, const struct node_lease *lease,
               int32_t version, int64_t until_ms);
void spot_forget_held(struct spot *spot);
void spot_end_held(struct spot *spot); /* as if its time were over */
void spot_queue(struct spot *spot, const struct node_name *name, int64_t zxid);
void spot_asked(struct spot *spot);         /* keeps its place for a while */
bool spot_in_line(const struct spot *spot); /* has a place, and watches what is in front */
void spot_forget_queued(struct spot *spot);
/* The session is over: everything there is gone. */
void spot_session_lost(struct spot *spot);
/* Adds a errand, and starts it where it is the first. */
void spot_add(struct spot *spot, struct errand *errand);
struct errand *spot_errand_new(struct spot *spot, enum errand_kind kind);
/* Ends the running errand, and starts the next one. */
void spot_next(struct errand *errand);
/* Something is over or left behind; somebody wants a place in line. Only while ready. */
void spot_tidy(struct spot *spot);
void spot_line_up(struct spot *spot);
void spot_removed(struct keeper *keeper, const char *path);
void spot_written(struct keeper *keeper, const char *path);
/* What others do to the lease that is held there is told as news. Only while ready. */
void spot_guard(struct spot *spot);
void spot_tell(struct spot *spot, int64_t token, bool revoked);

/* Begins; ends with spot_next, maybe at once. */
void errand_run(struct errand *errand);

/* look.c: sees what is there, then calls errand_decide. */
void errand_look(struct errand *errand);
void errand_see_own(struct errand *errand); /* the lease that the spot has is the head */
void errand_examine(struct errand *errand, const struct zk_op *op); /* a list of children */
/* Removes it as it was seen; `done` NULL: and looks again. */
void errand_remove_head(struct errand *errand, void (*done)(struct zk_op *op));
void errand_remove_stray(struct errand *errand, const struct node_name *name);
/* The errand of this answer. */
struct errand *errand_of(struct zk_op *op);
const char *errand_path(const struct errand *errand, const char *name, char out[NODE_PATH_MAX + 1]);

/* upkeep.c */
void errand_tidy(struct errand *errand);
void errand_line_up(struct errand *errand);

/* errand.c */
void errand_decide(struct errand *errand);
bool errand_may_step(struct errand *errand); /* else it has ended */
void errand_fail(struct errand *errand, int rc);

#endif
