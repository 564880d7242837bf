/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences from holds and refusals, merged in order of time. A hold has one sentence, at the time
 * of its grant, which also says how it ended. */
#include "tools/why/tell.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fence/base/log.h"
#include "tools/term.h"

enum { SECOND_MS = 1000, MINUTE_MS = 60 * SECOND_MS, HOUR_MS = 60 * MINUTE_MS };
#define DAY_MS                   (24 * (int64_t)HOUR_MS)
#define TEXT_OF(format, time_ms) text_of_time((format), (time_ms), (char[TELL_TIME_MAX]){0})

static const char *text_of_time(const char *format, int64_t time_ms, char out[TELL_TIME_MAX])
{
    time_t seconds = (time_t)(time_ms / 1000 - (time_ms % 1000 < 0));
    struct tm local;

    if (localtime_r(&seconds, &local) == NULL || strftime(out, TELL_TIME_MAX, format, &local) == 0)
        text_print(out, TELL_TIME_MAX, "at no time");
    return out;
}

const char *tell_time(int64_t time_ms, char out[TELL_TIME_MAX])
{
    char clock[TELL_TIME_MAX];

    text_print(out, TELL_TIME_MAX, "%.8s.%03d", text_of_time("%H:%M:%S", time_ms, clock),
               (int)((time_ms % 1000 + 1000) % 1000));
    return out;
}

static void append_quoted(struct buf *out, struct bytes name)
{
    char quoted[4 * 512 + 16]; /* as long as a name may be */

    buf_append_text(out, log_quoted(name, quoted, sizeof quoted));
}

/* Escaped, without quotes: for words that nobody takes for a part of the sentence. */
static void append_escaped(struct buf *out, struct bytes word)
{
    buf_append_text(out, TERM_NAME(word, TERM_NAME_MAX));
}

static bool is_known(const struct buf *text)
{
    return text->len > 0;
}

static void append_count(struct buf *out, int64_t count, const char *one, const char *many)
{
    buf_printf(out, "%" PRId64 " %s", count, count == 1 ? one : many);
}

/* Begin or go on with what stands in parentheses. */
static void append_more(struct buf *out, bool *begun, const char *text)
{
    buf_append_text(out, *begun ? ", " : " (");
    buf_append_text(out, text);
    *begun = true;
}

/* Append "ann" (client "shop-1", 127.0.0.1:5012), or what of that is known; NULL is not known. An
 * owner that the daemon made up is left out: it says nothing to people. */
static void append_who(struct buf *out, const struct buf *owner, const struct buf *client,
                       const struct buf *user, const struct buf *address)
{
    bool has_owner = owner != NULL && is_known(owner) && !story_is_nameless(buf_bytes(owner));
    bool has_client = client != NULL && is_known(client), begun = false;

    if (has_owner || has_client)
        append_quoted(out, buf_bytes(has_owner ? owner : client));
    else if (is_known(address))
        append_escaped(out, buf_bytes(address));
    else
        buf_append_text(out, "somebody");
    if (has_owner && has_client) {
        append_more(out, &begun, "client ");
        append_quoted(out, buf_bytes(client));
    }
    if (user != NULL && is_known(user) && !bytes_equal(buf_bytes(user), BYTES_LITERAL("default"))) {
        append_more(out, &begun, "user ");
        append_quoted(out, buf_bytes(user));
    }
    if ((has_owner || has_client) && is_known(address)) {
        append_more(out, &begun, "");
        append_escaped(out, buf_bytes(address));
    }
    buf_append_text(out, begun ? ")" : "");
}

/* The summary. */

static void append_state(struct buf *out, const struct story *story)
{
    const struct hold *last = story->holds_count > 0 ? &story->holds[story->holds_count - 1] : NULL;

    if (story->is_held) {
        buf_append_text(out, "held by ");
        if (last != NULL && last->token == story->token)
            append_who(out, &last->owner, &last->client, NULL, &last->address);
        else
            append_quoted(out, buf_bytes(&story->owner));
        buf_printf(out, " under token %" PRId64, story->token);
        if (last != NULL && last->token == story->token)
            buf_printf(out, " for %s",
                       TERM_DURATION(story_hold_until(story, last) - last->granted_ms));
        buf_printf(out, ", %s left", TERM_DURATION(story->left_ms));
    } else if (story->is_leased) {
        buf_printf(out, "free, newest token %" PRId64, story->token);
    } else {
        buf_append_text(out, "never leased");
    }
    if (story->waiters > 0) {
        buf_append_text(out, ", ");
        append_count(out, story->waiters, "is waiting", "are waiting");
    }
}

static int64_t latest_by(const struct story *story)
{
    int64_t late = STORY_NONE;

    for (size_t i = 0; i < story->refusals_count; i++)
        if (story->refusals[i].late_ms > late)
            late = story->refusals[i].late_ms;
    return late;
}

static void append_refusals_count(struct buf *out, const struct story *story)
{
    int64_t late = latest_by(story);

    append_count(out, (int64_t)story->refusals_count, "refused command", "refused commands");
    if (late != STORY_NONE)
        buf_printf(out, " (%s%s late)", story->refusals_count > 1 ? "up to " : "",
                   TERM_DURATION(late));
}

static int64_t first_ms(const struct story *story)
{
    int64_t first = story->holds_count > 0 ? story->holds[0].granted_ms : INT64_MAX;

    return story->refusals_count > 0 && story->refusals[0].time_ms < first
               ? story->refusals[0].time_ms
               : first;
}

void tell_summary(struct buf *out, const struct story *story)
{
    if (story->resource != NULL) {
        append_quoted(out, bytes_of(story->resource));
        buf_append_text(out, ": ");
    }
    if (story->log == NULL) {
        append_state(out, story);
        buf_append_text(out, "; ");
    }
    if (story->log == NULL || (story->is_audit && story->resource != NULL)) {
        if (story->holds_count + story->refusals_count == 0) {
            buf_append_text(out, "nothing of it is in the daemon's history");
        } else {
            append_count(out, (int64_t)story->holds_count, "lease", "leases");
            buf_append_text(out, " and ");
            append_refusals_count(out, story);
        }
    } else {
        append_refusals_count(out, story);
    }
    if (story->holds_count + story->refusals_count > 0)
        buf_printf(out, " since %s", TEXT_OF("%Y-%m-%d %H:%M:%S", first_ms(story)));
    buf_append_text(out, ".\n");
}

/* The sentences. */

/* Begin a line, and before it name the day where it is another one than `*day`. */
static void begin_line(struct buf *out, int64_t time_ms, char day[TELL_TIME_MAX])
{
    char today[TELL_TIME_MAX], clock[TELL_TIME_MAX];

    if (strcmp(text_of_time("%Y-%m-%d (UTC%z)", time_ms, today), day) != 0) {
        buf_printf(out, "%s\n", today);
        memcpy(day, today, TELL_TIME_MAX);
    }
    buf_printf(out, "  %s  ", tell_time(time_ms, clock));
}

/* The daemon's word for how a hold ended, and ours: in the hold's sentence, and in a refusal's. */
static const struct {
    const char *end, *of_hold, *of_lease;
} ends[] = {
    {"released", "released it after ", "was released"},
    {"expired", "it expired after ", "had expired"},
    {"revoked", "it was revoked after ", "was revoked"},
    {"taken", "another took it over after ", "was taken over"},
    {"given back", "it was given back after ", "was given back"},
};
enum { ENDS = sizeof ends / sizeof *ends };

static size_t end_of(const struct buf *end)
{
    size_t i = 0;

    while (i < ENDS && !bytes_equal(buf_bytes(end), bytes_of(ends[i].end)))
        i++;
    return i;
}

static void append_end(struct buf *out, const struct story *story, const struct hold *hold)
{
    size_t end = end_of(&hold->end);
    int64_t held_ms = story_hold_until(story, hold) - hold->granted_ms;

    if (hold->ended_ms != STORY_NONE) {
        buf_printf(out, "%s%s", end < ENDS ? ends[end].of_hold : "it ended after ",
                   TERM_DURATION(held_ms));
        if (is_known(&hold->reason)) {
            buf_append_text(out, ", the reason given: ");
            append_quoted(out, buf_bytes(&hold->reason));
        }
    } else if (story_is_on(story, hold)) {
        buf_printf(out, "holds it still, for %s now", TERM_DURATION(held_ms));
    } else {
        buf_append_text(out, "its end is not known");
    }
}

static void tell_hold(struct buf *out, const struct story *story, const struct hold *hold)
{
    append_who(out, &hold->owner, &hold->client, &hold->user, &hold->address);
    buf_printf(out, " got token %" PRId64 " for %s, ", hold->token, TERM_DURATION(hold->ttl_ms));
    append_end(out, story, hold);
    if (hold->writes != STORY_NONE) {
        buf_append_text(out, "; ");
        append_count(out, hold->writes > 0 ? hold->writes : 0, "write", "writes");
    }
    if (hold->refused > 0)
        buf_printf(out, "%s%" PRId64 " refused", hold->writes != STORY_NONE ? ", " : "; ",
                   hold->refused);
    buf_append_text(out, ".\n");
}

static void append_successor(struct buf *out, const struct refusal *refusal)
{
    if (refusal->newest == STORY_NONE || refusal->newest == 0)
        return;
    if (refusal->newest == refusal->token) {
        buf_append_text(out, " Nobody had overtaken it.");
    } else if (refusal->newest > refusal->token) {
        buf_printf(out, " Token %" PRId64, refusal->newest);
        if (is_known(&refusal->newest_owner) || is_known(&refusal->newest_address)) {
            buf_append_text(out, " of ");
            append_who(out, &refusal->newest_owner, NULL, NULL, &refusal->newest_address);
        }
        buf_append_text(out, " had overtaken it.");
    } else {
        buf_printf(out, " The newest was %" PRId64 ".", refusal->newest);
    }
}

static void tell_refusal(struct buf *out, const struct story *story, const struct refusal *refusal)
{
    bool has_token = refusal->token != STORY_NONE && refusal->token != 0;

    buf_append_text(out, "Refused: ");
    append_escaped(out, buf_bytes(&refusal->command));
    if (story->resource == NULL) {
        buf_append_text(out, " of ");
        append_quoted(out, buf_bytes(&refusal->resource));
    }
    buf_append_text(out, " by ");
    append_who(out, NULL, &refusal->client, &refusal->user, &refusal->address);
    if (has_token) {
        buf_printf(out, " with token %" PRId64, refusal->token);
        if (story->log != NULL && story->holds_count == 0 && refusal->granted_ms != STORY_NONE)
            buf_printf(out, ", granted at %s",
                       tell_time(refusal->granted_ms, (char[TELL_TIME_MAX]){0}));
    } else {
        buf_append_text(out, " without a token");
    }
    buf_append_text(out, " (");
    append_escaped(out, buf_bytes(&refusal->code));
    buf_append_text(out, ")");
    if (refusal->late_ms != STORY_NONE) {
        size_t end = end_of(&refusal->ended);
        buf_printf(out, ", %s after its lease %s", TERM_DURATION(refusal->late_ms),
                   end < ENDS ? ends[end].of_lease : "had ended");
    }
    buf_append_text(out, ".");
    append_successor(out, refusal);
    buf_append_text(out, "\n");
}

void tell_events(struct buf *out, const struct story *story)
{
    char day[TELL_TIME_MAX] = "";
    size_t hold = 0, refusal = 0;

    while (hold < story->holds_count || refusal < story->refusals_count) {
        bool is_hold = hold < story->holds_count;
        if (is_hold && refusal < story->refusals_count)
            is_hold = story->holds[hold].granted_ms <= story->refusals[refusal].time_ms;
        if (is_hold) {
            begin_line(out, story->holds[hold].granted_ms, day);
            tell_hold(out, story, &story->holds[hold++]);
        } else {
            begin_line(out, story->refusals[refusal].time_ms, day);
            tell_refusal(out, story, &story->refusals[refusal++]);
        }
    }
}

void tell_waiters(struct buf *out, const struct story *story)
{
    if (story->line_count == 0)
        return;
    buf_append_text(out, "\nIn line now:\n");
    for (size_t i = 0; i < story->line_count; i++) {
        const struct waiter *waiter = &story->line[i];
        buf_printf(out, "  %" PRId64 ". ", waiter->place);
        append_who(out, &waiter->owner, &waiter->client, NULL, &waiter->address);
        bool queued = bytes_equal(buf_bytes(&waiter->way), BYTES_LITERAL("queue"));
        buf_printf(out, ", for %s%s.\n", TERM_DURATION(waiter->waited_ms),
                   queued ? ", by QUEUE" : "");
    }
    if (story->waiters > (int64_t)story->line_count)
        buf_printf(out, "  and %" PRId64 " more; --count N shows more.\n",
                   story->waiters - (int64_t)story->line_count);
}
