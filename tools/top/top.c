/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade top`: leases, waiters and rates, on a live screen or as JSON. One thread: a look at the
 * daemon ends early where a key or a signal comes, so that a daemon that is silent never keeps
 * anybody from leaving. */
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "tools/answer.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/signals.h"
#include "tools/term.h"
#include "tools/top/screen.h"
#include "tools/top/watch.h"

enum { IDLE_MAX = 100, EVERY_LEAST_MS = 100, EVERY_MOST_MS = 3600 * 1000, DRAW_EVERY_MS = 1000 };

struct settings {
    const char *match;
    int64_t every_ms, count, rows;
    enum watch_sort sort;
    bool json;
};

static bool set_sort(void *settings, const char *text, struct failure *failure)
{
    for (size_t i = 0; i < SORTS; i++)
        if (strcmp(text, watch_sort_names[i]) == 0) {
            ((struct settings *)settings)->sort = (enum watch_sort)i;
            return true;
        }
    return failure_set(failure, "takes one of waiters, resource, owner, token, left, not \"%s\"",
                       text);
}

static const struct option_row rows[] = {
    {"every", OPTION_MS, offsetof(struct settings, every_ms), EVERY_LEAST_MS, EVERY_MOST_MS, "1s",
     "how often to look", NULL},
    {"sort", OPTION_CALL, 0, 0, 0, "KEY", "waiters, resource, owner, token or left", set_sort},
    {"json", OPTION_FLAG, offsetof(struct settings, json), 0, 0, NULL,
     "one JSON object after one interval, no screen", NULL},
    {"count", OPTION_NUMBER, offsetof(struct settings, count), 1, INT64_MAX, "N",
     "with --json: so many objects, one a line (1)", NULL},
    {"rows", OPTION_NUMBER, offsetof(struct settings, rows), 1, WATCH_LEASES_MAX, "N",
     "with --json: the first N leases (100)", NULL},
};
static const struct option_table table = {
    .command = "stockade top",
    .usage = "stockade top [MATCH] [options]",
    .about = "Shows the leases that are held, who waits, and what the daemon does each second,\n"
             "until q is pressed; MATCH is a pattern such as 'sku:*'. Of many leases it looks at\n"
             "2000 each time, and says how many it has looked at so far. Keys: / for a filter,\n"
             "w r o t l to sort by waiters, resource, owner, token or time left (again: turned\n"
             "round), arrows and page keys to scroll, p to pause, q to quit.\n\n"
             "exit codes: 0 done, 1 no terminal, or refused, 2 wrong usage, 69 (with --json) the\n"
             "server cannot be reached",
    OPTION_ROWS(rows),
    .operands = {{"MATCH", offsetof(struct settings, match)}},
    .operand_is_optional = true,
};

struct top {
    struct settings settings;
    struct answer answer;
    struct watch watch;
    struct signals signals;
};

/* JSON. */

static void append_lease(struct buf *out, const struct watch_lease *lease, int64_t now_ms)
{
    answer_text(out, "{", "resource", buf_bytes(&lease->name));
    answer_text(out, ", ", "state", bytes_of(lease->is_held ? "held" : "free"));
    answer_text(out, ", ", "owner", buf_bytes(&lease->owner));
    answer_number(out, "token", lease->token);
    answer_number(out, "ttl_ms", lease->is_held ? watch_left_ms(lease, now_ms) : 0);
    answer_number(out, "holds", lease->holds);
    answer_number(out, "waiters", lease->waiters);
    buf_append_text(out, "}");
}

static void append_snapshot(struct buf *out, const struct watch *watch, size_t rows_max)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);
    size_t shown = 0;

    buf_printf(out, "{\"time_ms\": %" PRId64, clock_wall_us(&clock_monotonic) / 1000);
    answer_text(out, ", ", "version", bytes_of(watch->version));
    answer_number(out, "up_s", watch->up_s);
    answer_number(out, "clients", watch->clients);
    answer_number(out, "waiting", watch->waiting);
    for (size_t i = 0; i < RATES; i++) {
        buf_printf(out, "%s\"%s\": ", i == 0 ? ", \"each_second\": {" : ", ", watch_rate_names[i]);
        if (watch->rates[i] < 0)
            buf_append_text(out, "null");
        else
            buf_printf(out, "%.1f", watch->rates[i]);
    }
    buf_append_text(out, "}");
    answer_number(out, "total", (int64_t)watch->count);
    answer_number(out, "looked_at", (int64_t)watch->looked_at);
    buf_append_text(out, ", \"leases\": [");
    for (size_t i = 0; i < watch->matched && shown < rows_max; i++) {
        const struct watch_lease *lease = &watch->leases[watch->order[i]];
        if (lease->seen_ms != 0) {
            buf_append_text(out, shown++ == 0 ? "" : ", ");
            append_lease(out, lease, now_ms);
        }
    }
    buf_append_text(out, "]}\n");
}

/* Rates need two looks, so the first one is not printed. */
static int print_snapshots(struct top *top)
{
    struct answer *answer = &top->answer;

    for (int64_t i = 0; i <= top->settings.count; i++) {
        if (watch_look(&top->watch, 0, 0) != WATCH_DONE)
            return top->signals.ending != 0 ? CLI_SIGNAL + top->signals.ending
                                            : answer_fail(answer, top->watch.error);
        if (i > 0) {
            append_snapshot(&answer->out, &top->watch, (size_t)top->settings.rows);
            answer_print(answer);
            (void)fflush(stdout);
        }
        if (i < top->settings.count)
            (void)signals_wait(&top->signals, -1, top->settings.every_ms);
        if (top->signals.ending != 0)
            return CLI_SIGNAL + top->signals.ending;
    }
    return CLI_OK;
}

/* The screen. */

/* A descriptor that is readable where a key or a signal came. */
static int watch_input(const struct signals *signals)
{
    const int inputs[] = {STDIN_FILENO, signals->fd};
    int fd = epoll_create1(EPOLL_CLOEXEC);

    check(fd >= 0);
    for (size_t i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN};
        check(epoll_ctl(fd, EPOLL_CTL_ADD, inputs[i], &event) == 0);
    }
    return fd;
}

/* Return the exit code. */
static int show(struct top *top, struct screen *screen)
{
    int64_t look_ms = clock_now_ms(&clock_monotonic);
    int idle = 0;

    screen_draw(screen, &top->watch);
    while (top->signals.ending == 0 && idle < IDLE_MAX) {
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        if (now_ms >= look_ms && !screen->is_paused) {
            enum watch_result result = watch_look(&top->watch, screen->from, screen_rows());
            look_ms =
                now_ms + (result == WATCH_CUT_SHORT ? EVERY_LEAST_MS : top->settings.every_ms);
        }
        screen_draw(screen, &top->watch);
        int64_t wait_ms = screen->is_paused ? DRAW_EVERY_MS : look_ms - now_ms;
        bool pressed = signals_wait(&top->signals, STDIN_FILENO,
                                    wait_ms < DRAW_EVERY_MS ? wait_ms : DRAW_EVERY_MS);
        enum screen_key key = screen_take_key(screen, &top->watch);
        idle = pressed && key == SCREEN_NOTHING ? idle + 1 : 0; /* the terminal may be gone */
        for (; key != SCREEN_NOTHING; key = screen_take_key(screen, &top->watch))
            if (key == SCREEN_QUIT)
                return CLI_OK;
    }
    return top->signals.ending != 0 ? CLI_SIGNAL + top->signals.ending : CLI_FAILED;
}

static int run_screen(struct top *top)
{
    struct buf where = {0};
    struct screen screen = {.from = 0};
    struct failure failure;
    int code = CLI_FAILED;

    if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1) {
        term_error("%s: this is no terminal; --json prints what a screen would show",
                   table.command);
        return CLI_FAILED;
    }
    uri_append_masked(&where, top->watch.uri);
    buf_append(&where, "", 1);
    screen.where = where.data;
    (void)setlocale(LC_CTYPE, "");
    if (screen_open(&screen, &failure)) {
        int input = watch_input(&top->signals);
        stk_cancel_on(input);
        code = show(top, &screen);
        stk_cancel_on(-1);
        (void)close(input);
        screen_close(&screen);
    } else {
        term_error("%s: %s", table.command, failure.text);
    }
    buf_free(&where);
    return code;
}

int top_run(struct cli *cli, int argc, char **argv)
{
    struct top top = {.settings = {.every_ms = 1000, .count = 1, .rows = 100}};
    struct failure failure;

    switch (options_parse(&table, &top.settings, cli, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    const char *uri = cli_uri(cli, &failure);
    if (uri == NULL) {
        term_error("%s: %s; see %s --help", table.command, failure.text, table.command);
        return CLI_USAGE;
    }
    if (!cli_finds_store(cli, uri, &failure)) {
        term_error("%s: %s", table.command, failure.text);
        return CLI_FAILED;
    }
    top.answer = (struct answer){.command = table.command, .json = top.settings.json, .cli = cli};
    top.watch = (struct watch){.uri = uri, .match = top.settings.match, .sort = top.settings.sort};
    signals_open(&top.signals);
    int code = top.settings.json ? print_snapshots(&top) : run_screen(&top);
    answer_print(&top.answer);
    answer_close(&top.answer);
    watch_close(&top.watch);
    signals_close(&top.signals);
    return code;
}
