/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/audit/auditing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/maintenance.h"
#include "store/txn.h"

enum { HEAD_MS = 10000, SAY_EVERY = 360 /* heads */ };

/* A head on its way to the store. */
struct keeping {
    struct store_op op;
    struct auditing *auditing;
    struct chain_head head;
    bool restored; /* out */
    bool under_way;
};

struct auditing {
    const struct log *log;
    struct store *store;
    struct auditor *auditor;
    struct engine *engine; /* NULL: not yet */
    uv_async_t wake;
    uv_timer_t timer;
    unsigned ticks;
    uint64_t said_lines;
    bool finishing, finished;
    struct keeping keeping, last;
};

/* Heads. */

static enum stk_error keep_run(struct store_op *op, struct store_txn *txn)
{
    struct keeping *keeping = list_entry(op, struct keeping, op);

    return txn_audit_head(txn, bytes_of(keeping->head.id), (int64_t)keeping->head.lines,
                          bytes_of(keeping->head.hash.hex), &keeping->restored);
}

static void keep_done(struct store_op *op)
{
    struct keeping *keeping = list_entry(op, struct keeping, op);
    const struct audit audit = auditor_audit(keeping->auditing->auditor);

    keeping->under_way = false;
    if (op->error == STK_OK && keeping->restored)
        (void)audit_tell(
            &audit,
            &(struct audit_note){
                .event = AUDIT_RESTORE,
                .reason = BYTES_LITERAL(
                    "the store began anew: a backup was put in its place, or its file is a copy")});
}

/* Give the store the head. It writes nothing where it has that already. */
static void keep(struct auditing *auditing, struct keeping *keeping)
{
    keeping->auditing = auditing;
    keeping->head = auditor_head(auditing->auditor);
    keeping->op = (struct store_op){.writes = true, .run = keep_run, .done = keep_done};
    list_init(&keeping->op.link);
    keeping->under_way = store_submit(auditing->store, &keeping->op) == STK_OK;
}

static void on_timer(uv_timer_t *timer)
{
    struct auditing *auditing = timer->data;
    const struct chain_head head = auditor_head(auditing->auditor);

    if (!auditing->keeping.under_way)
        keep(auditing, &auditing->keeping);
    if (++auditing->ticks % SAY_EVERY == 0 && head.lines != auditing->said_lines) {
        log_info(auditing->log, "audit: chain %s, line %" PRIu64 ", head %s", head.id, head.lines,
                 head.hash.hex);
        auditing->said_lines = head.lines;
    }
}

/* Called on the audit's thread. */
static void wake(void *context)
{
    struct auditing *auditing = context;
    uv_async_send(&auditing->wake);
}

static void on_wake(uv_async_t *handle)
{
    struct auditing *auditing = handle->data;
    struct auditor_news news = auditor_collect(auditing->auditor);

    if (auditing->engine == NULL)
        return;
    engine_audited(auditing->engine, news.ticket);
    if (news.failed)
        engine_audit_failed(auditing->engine);
}

/* Life. */

/* The heads that the store knows, as chains have them. Allocated. */
static struct chain_head *read_heads(const char *store_uri, size_t *count, bool *read, char *why,
                                     size_t why_size)
{
    struct store_audit_head *kept;

    *read = store_audit_heads(store_uri, &kept, count, why, why_size);
    struct chain_head *heads = mem_zalloc((*count + 1) * sizeof *heads);
    for (size_t i = 0; i < *count; i++) {
        heads[i].lines = (uint64_t)kept[i].lines;
        memcpy(heads[i].id, kept[i].chain, sizeof heads[i].id);
        memcpy(heads[i].hash.hex, kept[i].hash, sizeof heads[i].hash.hex);
    }
    free(kept);
    return heads;
}

bool auditing_open(struct auditing **opened, const struct auditing_options *options, char *why,
                   size_t why_size)
{
    struct auditing *auditing = *opened = mem_zalloc(sizeof *auditing);
    struct auditor_options auditor = {
        .path = options->path,
        .bytes_max = options->bytes_max,
        .log = options->log,
        .wake = wake,
        .context = auditing,
    };
    struct bytes wrong;
    bool read;

    if (options->durable[0] != '\0')
        check(audit_events_read(options->durable, &auditor.durable, &wrong));
    auditing->log = options->log;
    auditing->store = options->store;
    check(uv_async_init(options->loop, &auditing->wake, on_wake) == 0);
    check(uv_timer_init(options->loop, &auditing->timer) == 0);
    auditing->wake.data = auditing->timer.data = auditing;
    struct chain_head *heads =
        read_heads(options->store_uri, &auditor.known_count, &read, why, why_size);
    auditor.known = heads;
    if (read)
        auditing->auditor = auditor_open(&auditor, why, why_size);
    free(heads);
    return auditing->auditor != NULL;
}

struct audit auditing_audit(struct auditing *auditing)
{
    return auditor_audit(auditing->auditor);
}

void auditing_start(struct auditing *auditing, struct engine *engine)
{
    const struct audit audit = auditor_audit(auditing->auditor);
    char reason[64];

    auditing->engine = engine;
    snprintf(reason, sizeof reason, "stockaded %s, process %ld", STOCKADE_VERSION, (long)getpid());
    (void)audit_tell(&audit,
                     &(struct audit_note){.event = AUDIT_START, .reason = bytes_of(reason)});
    check(uv_timer_start(&auditing->timer, on_timer, 0, HEAD_MS) == 0);
}

void auditing_turned(struct auditing *auditing)
{
    auditor_flush(auditing->auditor);
}

void auditing_reopen(struct auditing *auditing)
{
    auditor_reopen(auditing->auditor);
}

bool auditing_finish(struct auditing *auditing)
{
    const struct audit audit = auditor_audit(auditing->auditor);

    if (!auditing->finishing) {
        auditing->finishing = true;
        uv_timer_stop(&auditing->timer);
        (void)audit_tell(&audit, &(struct audit_note){.event = AUDIT_STOP});
    }
    if (!auditor_finish(auditing->auditor, false))
        return false;
    if (!auditing->finished) {
        auditing->finished = true;
        keep(auditing, &auditing->last);
    }
    return !auditing->keeping.under_way && !auditing->last.under_way;
}

void auditing_close(struct auditing *auditing)
{
    if (auditing->auditor != NULL && !auditing->finished)
        (void)auditor_finish(auditing->auditor, true);
    uv_close((uv_handle_t *)&auditing->timer, NULL);
    uv_close((uv_handle_t *)&auditing->wake, NULL);
}

void auditing_free(struct auditing *auditing)
{
    if (auditing == NULL)
        return;
    auditor_free(auditing->auditor);
    free(auditing);
}
