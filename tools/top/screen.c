/* SPDX-License-Identifier: Apache-2.0 */
/* Five lines above the leases: which daemon, what it has, what it does, how the leases are chosen,
 * the heads; one below: the keys. Every name is escaped, so a lease cannot draw on the screen. */
#include "tools/top/screen.h"

#include <curses.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/clock.h"
#include "tools/term.h"

enum { LINES_ABOVE = 5, LINES_BELOW = 1, ESCAPE = 27, WIDTH_LEAST = 40 };
enum {
    TOKEN_LEAST = 6,
    TOKEN_MOST = 19,
    NUMBERS = 20, /* LEFT and WAITERS */
    LINE_MAX_COLUMNS = 400,
};

bool screen_open(struct screen *screen, struct failure *failure)
{
    screen->terminal = newterm(NULL, stdout, stdin);
    if (screen->terminal == NULL) {
        const char *term = getenv("TERM");
        return failure_set(failure, "a terminal of the kind \"%s\" is not known (TERM)",
                           term != NULL ? term : "");
    }
    (void)cbreak();
    (void)noecho();
    (void)nodelay(stdscr, TRUE);
    (void)keypad(stdscr, TRUE);
    (void)set_escdelay(25);
    (void)curs_set(0);
    return true;
}

void screen_close(struct screen *screen)
{
    (void)endwin();
    delscreen(screen->terminal);
}

size_t screen_rows(void)
{
    int rows = LINES - LINES_ABOVE - LINES_BELOW;
    return rows > 0 ? (size_t)rows : 0;
}

/* Print a line, cut to the screen. */
__attribute__((format(printf, 3, 4))) static void put(int line, attr_t attributes,
                                                      const char *format, ...)
{
    char text[LINE_MAX_COLUMNS];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (line < LINES) {
        (void)attrset((int)attributes);
        (void)mvaddnstr(line, 0, text, COLS);
        (void)attrset(0);
    }
}

static const char *rate_text(double rate, char out[TERM_NUMBER_MAX])
{
    if (rate < 0)
        (void)snprintf(out, TERM_NUMBER_MAX, "-");
    else
        (void)snprintf(out, TERM_NUMBER_MAX, rate < 100 ? "%.1f" : "%.0f", rate);
    return out;
}
#define RATE(watch, which) rate_text((watch)->rates[which], (char[TERM_NUMBER_MAX]){0})

static void draw_above(const struct screen *screen, const struct watch *watch, int64_t now_ms)
{
    const char *state = screen->is_paused ? "  PAUSED" : "";

    if (watch->is_away)
        put(0, A_REVERSE, "%s  AWAY for %s, trying again: %s", screen->where,
            TERM_DURATION(now_ms - watch->away_ms), TERM_NAME(bytes_of(watch->why), TERM_NAME_MAX));
    else if (watch->counted_ms == 0)
        put(0, A_BOLD, "connecting to %s", screen->where);
    else
        put(0, A_BOLD, "stockaded %s at %s  up %s%s%s%s", watch->version, screen->where,
            TERM_DURATION(watch->up_s * 1000), state, watch->troubles[0] != '\0' ? "  ! " : "",
            watch->troubles);
    put(1, 0, "%s%s leases, %" PRId64 " waiting, %" PRId64 " connections",
        TERM_NUMBER((int64_t)watch->count), watch->is_cut ? " or more" : "", watch->waiting,
        watch->clients);
    put(2, 0, "each second: %s commands, %s grants, %s writes, %s refused",
        RATE(watch, RATE_COMMANDS), RATE(watch, RATE_GRANTS), RATE(watch, RATE_WRITES),
        RATE(watch, RATE_REFUSED));
}

static void draw_choice(const struct screen *screen, const struct watch *watch)
{
    char looked[64] = "";
    size_t last = screen->from + screen_rows();

    last = last < watch->matched ? last : watch->matched;
    if (watch->looked_at < watch->count)
        text_print(looked, sizeof looked, "; %s looked at so far",
                   TERM_NUMBER((int64_t)watch->looked_at));
    put(3, 0, "%zu to %zu of %s by %s%s%s%s%s%s", last > 0 ? screen->from + 1 : 0, last,
        TERM_NUMBER((int64_t)watch->matched), watch_sort_names[watch->sort],
        watch->is_turned ? ", turned round" : "", looked,
        screen->is_typing || watch->filter[0] != '\0' ? "; filter: " : "", watch->filter,
        screen->is_typing ? "_" : "");
}

/* Widths: the token's as it needs, name and owner share what is left. */
struct columns {
    int name, owner, token;
};

static struct columns find_columns(const struct screen *screen, const struct watch *watch)
{
    struct columns columns = {.token = TOKEN_LEAST};
    int width = COLS > WIDTH_LEAST ? COLS : WIDTH_LEAST;

    for (size_t i = screen->from; i < watch->matched && i < screen->from + screen_rows(); i++) {
        char digits[TERM_NUMBER_MAX];
        int length =
            snprintf(digits, sizeof digits, "%" PRId64, watch->leases[watch->order[i]].token);
        columns.token = length > columns.token ? length : columns.token;
    }
    columns.token = columns.token < TOKEN_MOST ? columns.token : TOKEN_MOST;
    int rest = width - columns.token - NUMBERS - 2;
    columns.name = rest * 3 / 5;
    columns.owner = rest - columns.name - 1;
    return columns;
}

static void draw_lease(int line, const struct watch_lease *lease, const struct columns *columns,
                       int64_t now_ms)
{
    const char *name = TERM_NAME(buf_bytes(&lease->name), (size_t)columns->name);
    char left[TERM_NUMBER_MAX] = "ended";

    if (lease->seen_ms == 0) {
        put(line, A_DIM, "%-*s %-*s", columns->name, name, columns->owner, "not looked at yet");
        return;
    }
    if (lease->is_held)
        (void)term_duration(watch_left_ms(lease, now_ms), left);
    put(line, lease->waiters > 0 ? A_BOLD : 0, "%-*s %-*s %*" PRId64 " %10s %8" PRId64,
        columns->name, name, columns->owner,
        TERM_NAME(buf_bytes(&lease->owner), (size_t)columns->owner), columns->token, lease->token,
        left, lease->waiters);
}

void screen_draw(struct screen *screen, const struct watch *watch)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    if (screen->from >= watch->matched)
        screen->from = watch->matched > screen_rows() ? watch->matched - screen_rows() : 0;
    const struct columns columns = find_columns(screen, watch);
    (void)erase();
    draw_above(screen, watch, now_ms);
    draw_choice(screen, watch);
    put(4, A_REVERSE, "%-*s %-*s %*s %10s %8s", columns.name, "RESOURCE", columns.owner, "OWNER",
        columns.token, "TOKEN", "LEFT", "WAITERS");
    for (size_t i = 0; i < screen_rows() && screen->from + i < watch->matched; i++)
        draw_lease((int)i + LINES_ABOVE, &watch->leases[watch->order[screen->from + i]], &columns,
                   now_ms);
    put(LINES - 1, A_REVERSE, "%s",
        screen->is_typing
            ? "type a part of the name, or a pattern; Enter: keep it, Esc: no filter"
            : "q quit  p pause  / filter  sort by: w r o t l (again: turned)  arrows PgUp PgDn");
    (void)refresh();
}

static void scroll_by(struct screen *screen, const struct watch *watch, int rows)
{
    int64_t most = (int64_t)watch->matched - (int64_t)screen_rows();
    int64_t from = (int64_t)screen->from + rows;

    from = from < most ? from : most;
    screen->from = from > 0 ? (size_t)from : 0;
}

static void sort_by(struct watch *watch, enum watch_sort sort)
{
    watch->is_turned = watch->sort == sort && !watch->is_turned;
    watch->sort = sort;
    watch_sort(watch);
}

/* A key while the filter is typed. */
static void type_key(struct screen *screen, struct watch *watch, int key)
{
    size_t len = strlen(watch->filter);

    if (key == '\n' || key == '\r' || key == KEY_ENTER) {
        screen->is_typing = false;
    } else if (key == ESCAPE) {
        screen->is_typing = false;
        watch->filter[0] = '\0';
    } else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && len > 0) {
        watch->filter[len - 1] = '\0';
    } else if (key >= ' ' && key < 127 && len + 1 < sizeof watch->filter) {
        watch->filter[len] = (char)key;
        watch->filter[len + 1] = '\0';
    }
    screen->from = 0;
    watch_sort(watch);
}

static enum screen_key press(struct screen *screen, struct watch *watch, int key)
{
    int page = (int)screen_rows();

    switch (key) {
    case 'q': return SCREEN_QUIT;
    case 'p': screen->is_paused = !screen->is_paused; break;
    case '/': screen->is_typing = true; break;
    case 'w': sort_by(watch, SORT_WAITERS); break;
    case 'r': sort_by(watch, SORT_RESOURCE); break;
    case 'o': sort_by(watch, SORT_OWNER); break;
    case 't': sort_by(watch, SORT_TOKEN); break;
    case 'l': sort_by(watch, SORT_LEFT); break;
    case KEY_UP: scroll_by(screen, watch, -1); break;
    case KEY_DOWN: scroll_by(screen, watch, 1); break;
    case KEY_PPAGE: scroll_by(screen, watch, -page); break;
    case KEY_NPAGE:
    case ' ': scroll_by(screen, watch, page); break;
    case KEY_HOME: screen->from = 0; break;
    case KEY_END: scroll_by(screen, watch, WATCH_LEASES_MAX); break;
    default: break; /* also KEY_RESIZE: draw again */
    }
    return SCREEN_CHANGED;
}

enum screen_key screen_take_key(struct screen *screen, struct watch *watch)
{
    int key = getch();

    if (key == ERR)
        return SCREEN_NOTHING;
    if (screen->is_typing && key != KEY_RESIZE) {
        type_key(screen, watch, key);
        return SCREEN_CHANGED;
    }
    return press(screen, watch, key);
}
