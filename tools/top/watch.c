/* SPDX-License-Identifier: Apache-2.0 */
/* Leases are kept in order of their names, so that the names that the daemon lists next are merged
 * with them in one pass. A look that fails leaves all as it was. */
#include "tools/top/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/clock.h"
#include "fence/base/glob.h"
#include "fence/base/mem.h"
#include "tools/answer.h"
#include "tools/term.h"

enum {
    ANSWER_MS = 3000,
    LOOK_MAX = 2000, /* leases that one look asks for */
    CHUNK = 250,     /* of these, in one exchange */
    NAMES_EVERY_MS = 900,
    NAMES_SHARE = 20, /* listing names takes a twentieth of the time at most */
};

const char *const watch_rate_names[RATES] = {"commands", "grants", "writes", "refused"};
const char *const watch_sort_names[SORTS] = {"waiters", "resource", "owner", "token", "left"};

static int64_t now(void)
{
    return clock_now_ms(&clock_monotonic);
}

/* A call has failed. What a key or a signal has cut short says nothing of the daemon. */
static enum watch_result failed(struct watch *watch, enum stk_error error)
{
    if (error == STK_CANCELLED)
        return WATCH_CUT_SHORT;
    if (!watch->is_away)
        watch->away_ms = now();
    watch->is_away = true;
    watch->error = error;
    watch->counted_ms = 0; /* it may be another process when it is back */
    for (size_t i = 0; i < RATES; i++)
        watch->rates[i] = -1;
    text_print(watch->why, sizeof watch->why, "%s", stk_message());
    return WATCH_AWAY;
}

/* What is counted. */

/* Return the value behind "name:" in INFO's text; 0 where it is not there. */
static int64_t info_number(const char *info, const char *name)
{
    size_t len = strlen(name);

    for (const char *line = info; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) == 0 && line[len] == ':')
            return strtoll(line + len + 1, NULL, 10);
    }
    return 0;
}

static void count(struct watch *watch, const char *info)
{
    const int64_t counters[RATES] = {
        info_number(info, "commands_processed"), info_number(info, "leases_granted"),
        info_number(info, "fenced_accepted"),
        info_number(info, "refused_stale") + info_number(info, "refused_unknown") +
            info_number(info, "refused_notoken")};
    int64_t now_ms = now(), up_s = info_number(info, "uptime_in_seconds");
    bool same = watch->counted_ms != 0 && up_s >= watch->up_s && now_ms > watch->counted_ms;
    const char *version = strstr(info, "stockade_version:");
    const char *troubles = strstr(info, "\ntroubles_detail:");

    for (size_t i = 0; i < RATES; i++) {
        double change = (double)(counters[i] - watch->counters[i]);
        bool known = same && change >= 0;
        watch->rates[i] = known ? change * 1000 / (double)(now_ms - watch->counted_ms) : -1;
        watch->counters[i] = counters[i];
    }
    if (version != NULL) {
        version = strchr(version, ':') + 1;
        text_print(watch->version, sizeof watch->version, "%s",
                   TERM_NAME(((struct bytes){version, strcspn(version, "\r\n")}), 31));
    }
    watch->troubles[0] = '\0';
    if (troubles != NULL) {
        troubles = strchr(troubles, ':') + 1;
        size_t len = strcspn(troubles, "\r\n");
        if (len > 0)
            text_print(watch->troubles, sizeof watch->troubles, "%s",
                       TERM_NAME(((struct bytes){troubles, len}), TERM_NAME_MAX));
    }
    watch->counted_ms = now_ms;
    watch->up_s = up_s;
    watch->clients = info_number(info, "connected_clients");
    watch->waiting = info_number(info, "acquires_waiting");
}

static enum watch_result ask_info(struct watch *watch)
{
    const char *words[] = {"INFO"};
    stk_reply *reply;

    enum stk_error error = stk_command(watch->client, 1, words, NULL, &reply);
    if (error != STK_OK)
        return failed(watch, error);
    const char *info = stk_reply_string(reply, NULL);
    count(watch, info != NULL ? info : "");
    stk_reply_free(reply);
    return WATCH_DONE;
}

/* Names. */

static int compare_names(const void *a, const void *b)
{
    const struct watch_lease *left = a, *right = b;

    return bytes_compare(buf_bytes(&left->name), buf_bytes(&right->name));
}

static void lease_free(struct watch_lease *lease)
{
    buf_free(&lease->name);
    buf_free(&lease->owner);
}

/* Take the names that are there now; what was known of them stays. */
static void merge_names(struct watch *watch, const stk_reply *names)
{
    size_t count = stk_reply_count(names), old = 0;
    struct watch_lease *leases = mem_zalloc((count + 1) * sizeof *leases);

    for (size_t i = 0; i < count; i++)
        buf_append_bytes(&leases[i].name, answer_string(stk_reply_at(names, i)));
    qsort(leases, count, sizeof *leases, compare_names);
    watch->looked_at = 0;
    for (size_t i = 0; i < count; i++) {
        int order = -1;
        while (old < watch->count && (order = compare_names(&watch->leases[old], &leases[i])) < 0)
            lease_free(&watch->leases[old++]);
        if (old < watch->count && order == 0) {
            lease_free(&leases[i]);
            leases[i] = watch->leases[old++];
        }
        watch->looked_at += leases[i].seen_ms != 0;
    }
    while (old < watch->count)
        lease_free(&watch->leases[old++]);
    free(watch->leases);
    watch->leases = leases;
    watch->count = count;
    watch->order = mem_realloc(watch->order, (count + 1) * sizeof *watch->order);
    watch->matched = 0;
}

static enum watch_result ask_names(struct watch *watch)
{
    char most[12];
    const char *words[] = {"LEASES", "COUNT", most, "MATCH", watch->match};
    int64_t begun_ms = now();
    stk_reply *names;

    if (begun_ms < watch->names_due_ms)
        return WATCH_DONE;
    (void)snprintf(most, sizeof most, "%d", WATCH_LEASES_MAX);
    enum stk_error error =
        stk_command(watch->client, watch->match != NULL ? 5 : 3, words, NULL, &names);
    if (error != STK_OK)
        return failed(watch, error);
    merge_names(watch, names);
    watch->is_cut = watch->count == WATCH_LEASES_MAX;
    stk_reply_free(names);
    int64_t took_ms = now() - begun_ms;
    watch->names_due_ms = begun_ms + (took_ms * NAMES_SHARE > NAMES_EVERY_MS ? took_ms * NAMES_SHARE
                                                                             : NAMES_EVERY_MS);
    return WATCH_DONE;
}

/* The state of leases. */

static void see(struct watch *watch, struct watch_lease *lease, const stk_reply *said)
{
    watch->looked_at += lease->seen_ms == 0;
    lease->seen_ms = now();
    lease->is_held = bytes_equal(answer_entry_text(said, "state"), BYTES_LITERAL("held"));
    lease->token = answer_entry_number(said, "token");
    lease->left_ms = answer_entry_number(said, "ttl_ms");
    lease->holds = answer_entry_number(said, "holds");
    lease->waiters = answer_entry_number(said, "waiters");
    buf_clear(&lease->owner);
    buf_append_bytes(&lease->owner, answer_entry_text(said, "owner"));
}

/* Ask for the leases `which`, at most CHUNK. */
static enum watch_result ask_leases(struct watch *watch, const size_t *which, size_t count)
{
    stk_words commands[CHUNK] = {{0}};
    const char *argv[CHUNK][2];
    size_t lens[CHUNK][2];
    stk_reply *replies;

    for (size_t i = 0; i < count; i++) {
        const struct buf *name = &watch->leases[which[i]].name;
        argv[i][0] = "LEASE";
        argv[i][1] = name->data;
        lens[i][0] = 5;
        lens[i][1] = name->len;
        commands[i] = (stk_words){2, argv[i], lens[i]};
    }
    if (count == 0)
        return WATCH_DONE;
    enum stk_error error = stk_command_all(watch->client, commands, count, &replies);
    if (error != STK_OK)
        return failed(watch, error);
    for (size_t i = 0; i < count; i++)
        see(watch, &watch->leases[which[i]], stk_reply_at(replies, i));
    stk_reply_free(replies);
    return WATCH_DONE;
}

/* Those on the screen. */
static enum watch_result ask_shown(struct watch *watch, size_t from, size_t rows)
{
    size_t left = from < watch->matched ? watch->matched - from : 0;

    rows = rows < left ? rows : left;
    return ask_leases(watch, watch->order + from, rows < CHUNK ? rows : CHUNK);
}

/* The next ones that match, round and round. */
static enum watch_result ask_next(struct watch *watch)
{
    size_t which[CHUNK], count = 0, most = LOOK_MAX;

    for (size_t passed = 0; passed < watch->count && most > 0; passed++) {
        watch->next = watch->next + 1 < watch->count ? watch->next + 1 : 0;
        if (watch->leases[watch->next].matches) {
            which[count++] = watch->next;
            most--;
        }
        if (count == CHUNK || most == 0) {
            enum watch_result result = ask_leases(watch, which, count);
            if (result != WATCH_DONE)
                return result;
            count = 0;
        }
    }
    return ask_leases(watch, which, count);
}

/* What is shown, and in which order. */

/* `glob`: of the filter; NULL: it is a part of a name. */
static bool passes(const struct watch *watch, const struct glob *glob, struct bytes name)
{
    return glob != NULL ? glob_matches(glob, name)
                        : memmem(name.data, name.len, watch->filter, strlen(watch->filter)) != NULL;
}

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int compare_leases(const void *left, const void *right, void *context)
{
    const struct watch *watch = context;
    size_t i = *(const size_t *)left, j = *(const size_t *)right;
    const struct watch_lease *a = &watch->leases[i], *b = &watch->leases[j];
    int order = 0;

    switch (watch->sort) {
    case SORT_WAITERS: order = compare_numbers(b->waiters, a->waiters); break;
    case SORT_OWNER: order = bytes_compare(buf_bytes(&a->owner), buf_bytes(&b->owner)); break;
    case SORT_TOKEN: order = compare_numbers(b->token, a->token); break;
    case SORT_LEFT:
        order = compare_numbers(a->left_ms + a->seen_ms, b->left_ms + b->seen_ms);
        break;
    case SORT_RESOURCE:
    case SORTS: break;
    }
    if (order == 0) /* they are kept by name */
        order = (i > j) - (i < j);
    return watch->is_turned ? -order : order;
}

void watch_sort(struct watch *watch)
{
    struct glob *glob =
        strpbrk(watch->filter, "*?[") != NULL ? glob_new(bytes_of(watch->filter)) : NULL;

    watch->matched = 0;
    for (size_t i = 0; i < watch->count; i++) {
        watch->leases[i].matches = passes(watch, glob, buf_bytes(&watch->leases[i].name));
        if (watch->leases[i].matches)
            watch->order[watch->matched++] = i;
    }
    glob_free(glob);
    if (watch->matched > 1)
        qsort_r(watch->order, watch->matched, sizeof *watch->order, compare_leases, watch);
}

enum watch_result watch_look(struct watch *watch, size_t from, size_t rows)
{
    enum watch_result result = WATCH_DONE;
    enum stk_error error =
        watch->client != NULL ? STK_OK : stk_client_open(watch->uri, ANSWER_MS, &watch->client);

    if (error != STK_OK)
        return failed(watch, error);
    if ((result = ask_info(watch)) == WATCH_DONE && (result = ask_names(watch)) == WATCH_DONE) {
        watch_sort(watch);
        result = watch->matched > LOOK_MAX ? ask_shown(watch, from, rows) : WATCH_DONE;
    }
    if (result == WATCH_DONE) {
        result = ask_next(watch);
        watch_sort(watch);
    }
    if (result == WATCH_DONE)
        watch->is_away = false;
    return result;
}

int64_t watch_left_ms(const struct watch_lease *lease, int64_t now_ms)
{
    int64_t left_ms = lease->left_ms - (now_ms - lease->seen_ms);

    return left_ms > 0 ? left_ms : 0;
}

void watch_close(struct watch *watch)
{
    for (size_t i = 0; i < watch->count; i++)
        lease_free(&watch->leases[i]);
    free(watch->leases);
    free(watch->order);
    stk_client_close(watch->client);
    *watch = (struct watch){.uri = NULL};
}
