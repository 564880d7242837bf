/* SPDX-License-Identifier: Apache-2.0 */
/* The loop's side first, then the thread's. What they share stands under the lock, which neither
 * holds while it waits for anything. */
#include "proxy/server/audit/auditor.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "fence/base/thread.h"
#include "proxy/server/audit/file.h"

enum {
    QUEUE_BYTES_MAX = 8 << 20,
    GATHER_BYTES = 64 << 10, /* so much is written at once */
    GATHER_MS = 20,
    SYNC_MS = 5000,
    UNSYNCED_MAX = 8 << 20,
    RETRY_MS = 500,
    WHY_SIZE = 320,
    PATH_SHOWN = 180, /* of a path, in what is said of it: its end */
    NAME_SIZE = 4096,
    TEXTS = 4, /* of a note: user, address, resource, reason */
};

/* What is longer is cut: nobody fills the audit with one line. */
static const uint16_t text_max[TEXTS] = {128, 80, 512, 1024};

/* A note in a queue; its texts follow. */
struct record {
    uint32_t size;
    uint16_t lens[TEXTS];
    uint16_t event, code;
    int64_t token, time_ms;
};

/* What the thread has come to know. */
struct report {
    uint64_t ticket, failures; /* synced up to this one; times that a write or a sync failed */
    uint64_t written, syncs;
    struct chain_head head; /* synced */
    char failing[WHY_SIZE]; /* "": nothing fails */
};

struct auditor {
    struct auditor_options options;
    /* The loop's. */
    struct buf fresh;
    uint64_t tickets;
    bool fresh_is_durable, finished, joined;
    size_t queued; /* bytes in the queue when it was last looked at */
    uint64_t lost, fresh_lost;
    struct report shown;
    /* Both threads', under the lock. */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct buf queue;
    uint64_t queue_ticket, queue_lost;
    bool queue_is_durable; /* the thread is to go on at once */
    bool idle;             /* it waits for the next note */
    bool reopening, stopping, ended;
    struct report report;
    /* The thread's. */
    struct audit_file *file;
    struct buf batch;
    uint64_t batch_ticket, lost_unsaid, written, syncs;
    bool sync_failed; /* since the last line that says so */
    bool reopen;      /* SIGUSR1 came, and the file has not been reopened since */
    int64_t synced_ms, rotate_at;
};

static int64_t wall_ms(void)
{
    return clock_wall_us(&clock_monotonic) / 1000;
}

/* The loop's side. */

static size_t cut(struct bytes text, size_t max)
{
    return text.len < max ? text.len : max;
}

static void append_record(struct buf *out, const struct audit_note *note)
{
    const struct bytes texts[TEXTS] = {note->user, note->address, note->resource, note->reason};
    struct record record = {.size = sizeof record,
                            .event = (uint16_t)note->event,
                            .code = (uint16_t)note->code,
                            .token = note->token,
                            .time_ms = wall_ms()};

    for (int i = 0; i < TEXTS; i++) {
        record.lens[i] = (uint16_t)cut(texts[i], text_max[i]);
        record.size += record.lens[i];
    }
    char *at = buf_reserve(out, record.size);
    memcpy(at, &record, sizeof record);
    at += sizeof record;
    for (int i = 0; i < TEXTS; i++) {
        if (record.lens[i] > 0)
            memcpy(at, texts[i].data, record.lens[i]);
        at += record.lens[i];
    }
    out->len += record.size;
}

/* As struct audit says. */
static uint64_t take_note(void *context, const struct audit_note *note)
{
    struct auditor *auditor = context;
    bool durable = (auditor->options.durable >> note->event & 1) != 0;

    if (auditor->finished || auditor->fresh.len + auditor->queued > QUEUE_BYTES_MAX) {
        auditor->lost++;
        auditor->fresh_lost++;
        return durable ? AUDIT_LOST : 0;
    }
    append_record(&auditor->fresh, note);
    if (!durable)
        return 0;
    if (auditor->shown.failing[0] != '\0')
        return AUDIT_LOST; /* it is written when the disk takes it, but nobody waits for that */
    auditor->fresh_is_durable = true;
    return ++auditor->tickets;
}

static struct audit_state state_of(void *context)
{
    const struct auditor *auditor = context;
    const struct report *shown = &auditor->shown;

    return (struct audit_state){.failing = shown->failing[0] == '\0' ? NULL : shown->failing,
                                .chain = shown->head.id,
                                .head = shown->head.hash.hex,
                                .lines = shown->head.lines,
                                .written = shown->written,
                                .lost = auditor->lost,
                                .syncs = shown->syncs,
                                .queued_bytes = auditor->queued + auditor->fresh.len};
}

struct audit auditor_audit(struct auditor *auditor)
{
    return (struct audit){.note = take_note,
                          .state = state_of,
                          .durable = auditor->options.durable,
                          .context = auditor};
}

void auditor_flush(struct auditor *auditor)
{
    bool wake = false;

    if (auditor->fresh.len == 0 && auditor->fresh_lost == 0)
        return;
    pthread_mutex_lock(&auditor->lock);
    if (auditor->queue.len == 0) {
        struct buf empty = auditor->queue;
        auditor->queue = auditor->fresh;
        auditor->fresh = empty;
    } else {
        buf_append_bytes(&auditor->queue, buf_bytes(&auditor->fresh));
        buf_clear(&auditor->fresh);
    }
    auditor->queued = auditor->queue.len;
    auditor->queue_ticket = auditor->tickets;
    auditor->queue_lost += auditor->fresh_lost;
    auditor->queue_is_durable |= auditor->fresh_is_durable;
    wake = auditor->idle || auditor->fresh_is_durable || auditor->queued >= GATHER_BYTES;
    auditor->fresh_lost = 0;
    auditor->fresh_is_durable = false;
    pthread_mutex_unlock(&auditor->lock);
    if (wake)
        pthread_cond_signal(&auditor->news);
}

struct auditor_news auditor_collect(struct auditor *auditor)
{
    uint64_t failures = auditor->shown.failures;

    pthread_mutex_lock(&auditor->lock);
    auditor->shown = auditor->report;
    auditor->queued = auditor->queue.len;
    pthread_mutex_unlock(&auditor->lock);
    return (struct auditor_news){.ticket = auditor->shown.ticket,
                                 .failed = auditor->shown.failures != failures};
}

struct chain_head auditor_head(const struct auditor *auditor)
{
    return auditor->shown.head;
}

void auditor_reopen(struct auditor *auditor)
{
    pthread_mutex_lock(&auditor->lock);
    auditor->reopening = true;
    pthread_mutex_unlock(&auditor->lock);
    pthread_cond_signal(&auditor->news);
}

/* The thread's side. */

static void publish(struct auditor *auditor, const char *failing)
{
    struct report *report = &auditor->report;
    bool fails = failing[0] != '\0', failed = report->failing[0] != '\0';
    bool synced =
        !fails && audit_file_is_written(auditor->file) && audit_file_is_synced(auditor->file);

    pthread_mutex_lock(&auditor->lock);
    if (synced) {
        report->head = audit_file_head(auditor->file);
        report->ticket = auditor->batch_ticket;
    }
    report->failures += fails;
    report->written = auditor->written;
    report->syncs = auditor->syncs;
    text_print(report->failing, sizeof report->failing, "%s", failing);
    pthread_mutex_unlock(&auditor->lock);
    if (fails && !failed)
        log_error(auditor->options.log, "audit: %s", failing);
    else if (failed && !fails)
        log_info(auditor->options.log, "audit: lines are written again");
    if (synced || fails || failed)
        auditor->options.wake(auditor->options.context);
}

/* Make lines of the notes that were taken over. */
static void add_batch(struct auditor *auditor)
{
    struct record record;
    struct bytes texts[TEXTS];

    for (size_t at = 0; at < auditor->batch.len; at += record.size) {
        memcpy(&record, auditor->batch.data + at, sizeof record);
        const char *text = auditor->batch.data + at + sizeof record;
        for (int i = 0; i < TEXTS; i++) {
            texts[i] = (struct bytes){text, record.lens[i]};
            text += record.lens[i];
        }
        const struct audit_note note = {.event = (enum audit_event)record.event,
                                        .code = (enum stk_error)record.code,
                                        .token = record.token,
                                        .user = texts[0],
                                        .address = texts[1],
                                        .resource = texts[2],
                                        .reason = texts[3]};
        audit_file_add(auditor->file, record.time_ms, &note);
        auditor->written++;
    }
    buf_clear(&auditor->batch);
}

static void add_gap(struct auditor *auditor, const char *reason)
{
    audit_file_add(auditor->file, wall_ms(),
                   &(struct audit_note){.event = AUDIT_GAP, .reason = bytes_of(reason)});
}

static void add_gaps(struct auditor *auditor)
{
    char reason[96];

    if (auditor->lost_unsaid > 0) {
        snprintf(reason, sizeof reason,
                 "%" PRIu64 " events are missing here: there was no room for them",
                 auditor->lost_unsaid);
        add_gap(auditor, reason);
    }
    if (auditor->sync_failed)
        add_gap(auditor, "a sync failed: the lines before this one were written again");
    auditor->lost_unsaid = 0;
    auditor->sync_failed = false;
}

/* Write, and sync where somebody waits for that or it is time. False: `why` says why not. */
static bool put(struct auditor *auditor, bool sync, char why[WHY_SIZE])
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    if (!audit_file_write(auditor->file)) {
        snprintf(why, WHY_SIZE, "%s cannot be written: %s",
                 text_end(auditor->options.path, PATH_SHOWN), plain_errno(errno));
        return false;
    }
    if (!sync && now_ms - auditor->synced_ms < SYNC_MS &&
        audit_file_unsynced(auditor->file) < UNSYNCED_MAX)
        return true;
    if (audit_file_is_synced(auditor->file))
        return true;
    if (!audit_file_sync(auditor->file)) {
        snprintf(why, WHY_SIZE, "%s cannot be synced: %s",
                 text_end(auditor->options.path, PATH_SHOWN), plain_errno(errno));
        auditor->sync_failed = true;
        return false;
    }
    auditor->synced_ms = now_ms;
    auditor->syncs++;
    return true;
}

static void say_head(const struct auditor *auditor, const char *what)
{
    struct chain_head head = audit_file_head(auditor->file);

    log_info(auditor->options.log, "audit: %s; chain %s, line %" PRIu64 ", head %s", what, head.id,
             head.lines, head.hash.hex);
}

/* Return whether the lines are to go on in a new file: SIGUSR1 came, or this one is full. */
static bool wants_rotation(const struct auditor *auditor)
{
    return auditor->reopen ||
           (auditor->options.bytes_max > 0 && audit_file_size(auditor->file) >= auditor->rotate_at);
}

/* Go on in a new file, once all is written and synced. Return whether there is a new one. */
static bool rotate(struct auditor *auditor)
{
    char name[NAME_SIZE], why[WHY_SIZE] = "", text[WHY_SIZE];
    int64_t bytes_max = auditor->options.bytes_max;
    struct chain_head head = audit_file_head(auditor->file);
    enum audit_rotation rotation =
        auditor->reopen ? audit_file_reopen(auditor->file, name, sizeof name, why, sizeof why)
                        : audit_file_rotate(auditor->file, name, sizeof name, why, sizeof why);
    auditor->reopen = false;
    if (rotation == AUDIT_UNCHANGED) {
        log_error(auditor->options.log, "audit: the file stays: %s", why);
        auditor->rotate_at = audit_file_size(auditor->file) + bytes_max;
        return false;
    }
    auditor->rotate_at = bytes_max;
    text_print(text, sizeof text, "its lines up to %" PRIu64 " are in %s", head.lines,
               text_end(name, PATH_SHOWN));
    say_head(auditor, text);
    return true;
}

/* Under the lock: wait until there is something to do. */
static void wait_for(struct auditor *auditor, int64_t ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(&auditor->news, &auditor->lock, &until);
}

static bool has_work(const struct auditor *auditor)
{
    return auditor->queue.len > 0 || auditor->queue_lost > 0 || auditor->reopening ||
           auditor->stopping || auditor->sync_failed || auditor->reopen;
}

/* What the thread has been asked for. */
struct asked {
    bool sync, stop;
};

/* Wait for work, and take it over. Where the last attempt failed, take nothing: only wait until it
 * is time to try again. */
static struct asked take_work(struct auditor *auditor, bool failing)
{
    struct asked asked;

    pthread_mutex_lock(&auditor->lock);
    if (failing && !auditor->stopping) {
        wait_for(auditor, RETRY_MS);
    } else {
        auditor->idle = true;
        while (!has_work(auditor)) {
            if (audit_file_is_synced(auditor->file)) {
                pthread_cond_wait(&auditor->news, &auditor->lock);
                continue;
            }
            wait_for(auditor, SYNC_MS);
            break; /* to sync what is there */
        }
        auditor->idle = false;
        if (!auditor->queue_is_durable && auditor->queue.len < GATHER_BYTES &&
            !auditor->reopening && !auditor->stopping)
            wait_for(auditor, GATHER_MS);
    }
    asked = (struct asked){auditor->queue_is_durable, auditor->stopping};
    if (!failing) {
        struct buf empty = auditor->batch;
        auditor->batch = auditor->queue;
        auditor->queue = empty;
        auditor->batch_ticket = auditor->queue_ticket;
        auditor->lost_unsaid += auditor->queue_lost;
        auditor->queue_lost = 0;
        auditor->queue_is_durable = false;
        auditor->reopen |= auditor->reopening;
        auditor->reopening = false;
    }
    pthread_mutex_unlock(&auditor->lock);
    return asked;
}

static void *run(void *context)
{
    struct auditor *auditor = context;
    bool failing = false;

    for (;;) {
        char why[WHY_SIZE] = "";
        struct asked asked = take_work(auditor, failing);
        if (!failing) {
            add_batch(auditor);
            add_gaps(auditor);
        }
        bool rotating = !failing && wants_rotation(auditor);
        bool put_down = put(auditor, asked.sync || asked.stop || failing || rotating, why);
        if (put_down && rotating && rotate(auditor))
            put_down = put(auditor, asked.sync || asked.stop, why);
        bool more = failing && put_down; /* the queue has still to be taken over */
        failing = !put_down;
        publish(auditor, why);
        if (asked.stop && !more)
            break;
    }
    pthread_mutex_lock(&auditor->lock);
    auditor->ended = true;
    pthread_mutex_unlock(&auditor->lock);
    auditor->options.wake(auditor->options.context);
    return NULL;
}

/* Life. */

static void init_locks(struct auditor *auditor)
{
    pthread_condattr_t attributes;

    pthread_mutex_init(&auditor->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&auditor->news, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void release(struct auditor *auditor)
{
    audit_file_close(auditor->file);
    pthread_mutex_destroy(&auditor->lock);
    pthread_cond_destroy(&auditor->news);
    buf_free(&auditor->fresh);
    buf_free(&auditor->queue);
    buf_free(&auditor->batch);
    free(auditor);
}

static void say_opened(const struct auditor_options *options, const struct audit_opened *opened)
{
    if (opened->is_new && options->known_count > 0)
        log_warn(options->log, "audit: %s begins a new chain; the store knows %zu before it",
                 options->path, options->known_count);
    if (opened->torn_bytes > 0)
        log_warn(options->log,
                 "audit: %s ended in %" PRIu64
                 " torn bytes, as after a crash; a line says so, and the chain goes on",
                 options->path, opened->torn_bytes);
    if (opened->mismatch[0] != '\0')
        log_error(options->log,
                  "audit: %s is not as the store has seen it: %s; a line says so, and the chain "
                  "goes on",
                  options->path, opened->mismatch);
}

struct auditor *auditor_open(const struct auditor_options *options, char *why, size_t why_size)
{
    struct audit_opened opened;
    struct audit_file *file = audit_file_open(options->path, options->known, options->known_count,
                                              &opened, why, why_size);

    if (file == NULL)
        return NULL;
    say_opened(options, &opened);
    struct auditor *auditor = mem_zalloc(sizeof *auditor);
    auditor->options = *options;
    auditor->options.known = NULL;
    auditor->file = file;
    auditor->rotate_at = options->bytes_max;
    auditor->report.head = (struct chain_head){.lines = 0};
    init_locks(auditor);
    /* Before anything is told: what is in the file so far is on disk. */
    char reason[WHY_SIZE] = "";
    if (!put(auditor, true, reason)) {
        snprintf(why, why_size, "%s", reason);
        release(auditor);
        return NULL;
    }
    auditor->report.head = audit_file_head(file);
    auditor->shown = auditor->report;
    say_head(auditor, opened.is_new ? "begins" : "goes on");
    if (!thread_start(&auditor->thread, "audit", run, auditor)) {
        snprintf(why, why_size, "audit: no thread can be started");
        release(auditor);
        return NULL;
    }
    return auditor;
}

bool auditor_finish(struct auditor *auditor, bool wait)
{
    auditor_flush(auditor);
    auditor->finished = true;
    pthread_mutex_lock(&auditor->lock);
    auditor->stopping = true;
    bool ended = auditor->ended;
    pthread_mutex_unlock(&auditor->lock);
    pthread_cond_signal(&auditor->news);
    if (auditor->joined || (!ended && !wait))
        return auditor->joined;
    pthread_join(auditor->thread, NULL);
    auditor->joined = true;
    (void)auditor_collect(auditor);
    if (auditor->shown.failing[0] != '\0')
        log_error(auditor->options.log, "audit: its last lines are missing: %s",
                  auditor->shown.failing);
    say_head(auditor, "ends");
    return true;
}

void auditor_free(struct auditor *auditor)
{
    if (auditor != NULL)
        release(auditor);
}
