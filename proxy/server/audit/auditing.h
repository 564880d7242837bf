/* SPDX-License-Identifier: Apache-2.0 */
/* The audit in a daemon: on its loop, beside its engine and its store.
 *
 * Every HEAD_MS the chain's head, of synced lines, is kept in the store, if it has moved: so the
 * store can tell whether the audit's file was cut. Whoever can write both can forge both, so the
 * head is in the metrics and, every hour, in the log, too.
 *
 *   auditing_open ─▶ auditing_start ─▶ auditing_finish ─▶ auditing_close ─▶ auditing_free
 */
#ifndef STOCKADE_AUDIT_AUDITING_H
#define STOCKADE_AUDIT_AUDITING_H

#include <uv.h>

#include "proxy/engine/engine.h"
#include "proxy/server/audit/auditor.h"
#include "store/store.h"

struct auditing;

struct auditing_options {
    uv_loop_t *loop; /* borrowed; so the next ones */
    const struct log *log;
    struct store *store;
    const char *store_uri;
    const char *path, *durable; /* as the options say */
    int64_t bytes_max;
};

/* Open the audit. False: `why` is one line; it has to be closed and freed all the same. */
bool auditing_open(struct auditing **auditing, const struct auditing_options *options, char *why,
                   size_t why_size);
/* What the engine is given. */
struct audit auditing_audit(struct auditing *auditing);
/* The engine is there: tell it what is on disk, and the audit that the daemon has started. */
void auditing_start(struct auditing *auditing, struct engine *engine);
/* At the end of the engine's turn. */
void auditing_turned(struct auditing *auditing);
/* Go on in a new file (SIGUSR1). */
void auditing_reopen(struct auditing *auditing);
/* Write the last line, and have the store keep the head. False: it has not done so yet; call this
 * again in the next turn. */
bool auditing_finish(struct auditing *auditing);
/* Close its handles. */
void auditing_close(struct auditing *auditing);
/* After the store is closed, and the loop has run dry. */
void auditing_free(struct auditing *auditing);

#endif
