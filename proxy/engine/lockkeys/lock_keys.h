/* SPDX-License-Identifier: Apache-2.0 */
/* Lock keys: programs that lock in Redis, unmodified, lock here. --lock-keys says which keys are
 * locks; commands on them, and the scripts of lock libraries, become leases whose owner is the
 * lock's value.
 *
 *   SET lock:sku:1 7f3a… NX PX 30000      ACQUIRE sku:1 30000 OWNER 7f3a…   (and no re-entry)
 *   EVALSHA <release> 1 lock:sku:1 7f3a…  RELEASE sku:1 <its token>
 *   DEL lock:sku:1                        REVOKE sku:1
 *
 *   lock_keys.c   which command is done for one on lock keys
 *      ├──▶ commands.c   SET, GET, PTTL, ...         ┐
 *      ├──▶ eval.c       EVAL, EVALSHA, SCRIPT       ├──▶ run.c ──▶ lease/ (acquire, renew, ...)
 *      │       └──▶ scripts.c  the texts there are   ┘
 *      └──▶ companion.c  keys that libraries have beside a lock key ──▶ signals.c
 *
 * Below it, for who knows nothing of lock keys: lock_pattern.h, write/lock_value.h (which token a
 * value stands for) and lease/lock_clients.h (who presents no tokens).
 *
 * No Lua runs: a script is known by the SHA1 of its text. What is not known is refused, with what
 * can be done instead. Without lock keys none of this costs anything. */
#ifndef STOCKADE_ENGINE_LOCK_KEYS_H
#define STOCKADE_ENGINE_LOCK_KEYS_H

#include "proxy/engine/internal.h"
#include "proxy/engine/lockkeys/scripts.h"
#include "proxy/engine/session/request.h"

/* engine->lock_keys */
struct lock_keys {
    struct command_index index; /* of lock_commands */
    struct lock_texts *texts;
    struct list signals; /* signals.c: who waits for an unlock by BLPOP, in order of arrival */
};

/* engine.c: from the engine's options, and at its end. */
void lock_keys_init(struct engine *engine);
void lock_keys_free(struct engine *engine);

/* commands.c: for the rows of commands on lock keys, which are in the table's file. */
command_start lock_set, lock_get, lock_pttl, lock_ttl, lock_exists, lock_del, lock_hexists,
    lock_hget, lock_refuse;
/* The same, for the table: they are about lock keys only. */
command_start lock_delifeq, lock_delex;
/* companion.c: for the same, and for the table. */
command_start lock_companion_token, lock_companion_del, lock_companion_wait;
/* signals.c */
command_start lock_signal_abandon;
/* eval.c: for the table. */
command_start lock_eval, lock_evalsha, lock_eval_prepare;
command_act lock_eval_act;
extern const struct subcommand lock_script_subcommands[];
/* run.c: the client of a command that takes a lock is gone. */
command_start lock_abandon;

/* eval.c: scripts whose text has been seen, of another SHA1 than the ones that scripts.c knows. */
struct lock_texts;
struct lock_texts *lock_texts_new(void);
void lock_texts_free(struct lock_texts *texts);

/* run.c: a command on the leases behind lock keys. */
struct lock_ask {
    const struct lock_form *form;
    const struct bytes *keys; /* the first lock key, and the others behind it; borrowed */
    size_t count;
    struct bytes value;         /* where the form has none for each key */
    const struct bytes *values; /* for each key its own; or NULL */
    int64_t ttl_ms;
    int64_t least_ms;              /* EXTEND: only where at least so much is left */
    bool adds;                     /* ttl_ms is added to what is left */
    bool extends_only;             /* a free lease is not taken, whatever the form's flags */
    struct bytes channel, message; /* where a release is published, and as what; or empty */
};
/* Do it, and finish the request with the form's reply. */
void lock_run_start(struct request *request, const struct lock_ask *ask);

#endif
