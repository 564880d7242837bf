/* SPDX-License-Identifier: Apache-2.0 */
/* Each connection has a row of cells. Of more than ROWS_MAX rows, those with refused commands have
 * a place first, then those who came last; the others share one row. Crosses are drawn over bars:
 * they are what people look for. */
#include "tools/why/lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "tools/term.h"
#include "tools/why/tell.h"

enum { ROWS_MAX = 12, LABEL_MAX = 24, CELLS_MIN = 16, CELLS_MAX = 200, MIDDLE_MIN = 48 };
enum { CLOCK_LEN = 12 }; /* of 12:00:01.123 */

struct row {
    struct bytes client, address, owner; /* borrowed from the story */
    bool is_one_owner;                   /* for all of its holds */
    size_t refusals, place;              /* its place among the rows that are shown */
    int64_t last_ms;
};

struct lane {
    const struct story *story;
    struct row *rows; /* in the order in which they came */
    size_t rows_count, shown;
    size_t others; /* rows that share the last place */
    int64_t from_ms, to_ms;
    size_t cells;
    char (*grid)[CELLS_MAX]; /* ' ', '#' or 'x' */
};

/* Find who that is, or add a row. */
static struct row *row_of(struct lane *lane, const struct buf *client, const struct buf *address,
                          const struct buf *owner)
{
    struct row *row = lane->rows;

    for (; row < lane->rows + lane->rows_count; row++) {
        bool same = bytes_equal(row->client, buf_bytes(client)) &&
                    bytes_equal(row->address, buf_bytes(address));
        if (same && (address->len > 0 || bytes_equal(row->owner, buf_bytes(owner))))
            return row;
    }
    *row = (struct row){.client = buf_bytes(client),
                        .address = buf_bytes(address),
                        .owner = buf_bytes(owner),
                        .is_one_owner = true};
    lane->rows_count++;
    return row;
}

static void stretch(struct lane *lane, int64_t from_ms, int64_t to_ms)
{
    lane->from_ms = from_ms < lane->from_ms ? from_ms : lane->from_ms;
    lane->to_ms = to_ms > lane->to_ms ? to_ms : lane->to_ms;
}

/* Which row each hold and each refusal has. */
static void find_rows(struct lane *lane, size_t *of_holds, size_t *of_refusals)
{
    const struct story *story = lane->story;
    const struct buf nobody = {0};

    for (size_t i = 0; i < story->holds_count; i++) {
        const struct hold *hold = &story->holds[i];
        struct row *row = row_of(lane, &hold->client, &hold->address, &hold->owner);
        if (row->owner.len == 0)
            row->owner = buf_bytes(&hold->owner);
        row->is_one_owner &= bytes_equal(row->owner, buf_bytes(&hold->owner));
        row->last_ms = story_hold_until(story, hold);
        stretch(lane, hold->granted_ms, row->last_ms);
        of_holds[i] = (size_t)(row - lane->rows);
    }
    for (size_t i = 0; i < story->refusals_count; i++) {
        const struct refusal *refusal = &story->refusals[i];
        struct row *row = row_of(lane, &refusal->client, &refusal->address, &nobody);
        row->refusals++;
        if (refusal->time_ms > row->last_ms)
            row->last_ms = refusal->time_ms;
        stretch(lane, refusal->time_ms, refusal->time_ms);
        of_refusals[i] = (size_t)(row - lane->rows);
    }
}

/* Return whether `a` has a place before `b`. */
static bool is_before(const struct row *a, const struct row *b)
{
    if ((a->refusals > 0) != (b->refusals > 0))
        return a->refusals > 0;
    return a->last_ms != b->last_ms ? a->last_ms > b->last_ms : a < b;
}

/* Give each row its place; those for which there is none share the last one. */
static void choose_rows(struct lane *lane)
{
    bool fit = lane->rows_count <= ROWS_MAX;

    for (size_t i = 0; i < lane->rows_count; i++) {
        size_t better = 0;
        for (size_t j = 0; j < lane->rows_count && !fit; j++)
            better += is_before(&lane->rows[j], &lane->rows[i]) ? 1 : 0;
        bool has_place = fit || better < ROWS_MAX - 1;
        lane->rows[i].place = has_place ? lane->shown++ : ROWS_MAX - 1;
        lane->others += has_place ? 0 : 1;
    }
    lane->shown += lane->others > 0 ? 1 : 0;
}

static size_t cell_of(const struct lane *lane, int64_t time_ms)
{
    double length = (double)lane->to_ms - (double)lane->from_ms;
    double part = length > 0 ? ((double)time_ms - (double)lane->from_ms) / length : 0;
    size_t cell = part > 0 ? (size_t)(part * (double)lane->cells) : 0;

    return cell < lane->cells ? cell : lane->cells - 1;
}

static void fill_grid(struct lane *lane, const size_t *of_holds, const size_t *of_refusals)
{
    const struct story *story = lane->story;

    memset(lane->grid, ' ', lane->shown * sizeof *lane->grid);
    for (size_t i = 0; i < story->holds_count; i++) {
        const struct hold *hold = &story->holds[i];
        size_t first = cell_of(lane, hold->granted_ms);
        size_t last = cell_of(lane, story_hold_until(story, hold) - 1);
        if (last < first) /* too short, or the clock was set back */
            last = first;
        memset(lane->grid[lane->rows[of_holds[i]].place] + first, '#', last - first + 1);
    }
    for (size_t i = 0; i < story->refusals_count; i++) {
        size_t cell = cell_of(lane, story->refusals[i].time_ms);
        lane->grid[lane->rows[of_refusals[i]].place][cell] = 'x';
    }
}

/* Write what stands before a row: the client's name, its owner's or its address. */
static void label_of(const struct lane *lane, size_t place, char label[LABEL_MAX + 1])
{
    if (lane->others > 0 && place == ROWS_MAX - 1) {
        text_print(label, LABEL_MAX + 1, "%zu others", lane->others);
        return;
    }
    const struct row *row = lane->rows;
    while (row->place != place)
        row++;
    bool has_owner = row->is_one_owner && row->owner.len > 0 && !story_is_nameless(row->owner);
    struct bytes name = row->client.len > 0    ? row->client
                        : has_owner            ? row->owner
                        : row->address.len > 0 ? row->address
                                               : BYTES_LITERAL("?");
    text_print(label, LABEL_MAX + 1, "%s", TERM_NAME(name, LABEL_MAX));
}

static void append_cells(struct buf *out, const char *cells, size_t count, bool utf8)
{
    while (count > 0 && cells[count - 1] == ' ')
        count--;
    for (size_t i = 0; i < count; i++)
        switch (cells[i]) {
        case '#': buf_append_text(out, utf8 ? "\u2588" : "#"); break;
        case 'x': buf_append_text(out, utf8 ? "\u00d7" : "x"); break;
        default: buf_append(out, &cells[i], 1);
        }
    buf_append_text(out, "\n");
}

/* A line with ticks, and the times under them. */
static void append_axis(struct buf *out, const struct lane *lane, size_t label_width)
{
    char line[CELLS_MAX], times[CELLS_MAX + 1], clock[TELL_TIME_MAX];
    size_t last = lane->cells - 1, middle = lane->cells / 2;
    bool has_middle = lane->cells >= MIDDLE_MIN;
    int64_t length_ms = lane->to_ms - lane->from_ms;

    memset(line, '-', sizeof line);
    memset(times, ' ', sizeof times);
    line[0] = line[last] = '+';
    memcpy(times, tell_time(lane->from_ms, clock), CLOCK_LEN);
    if (has_middle) {
        line[middle] = '+';
        memcpy(times + middle - CLOCK_LEN / 2, tell_time(lane->from_ms + length_ms / 2, clock),
               CLOCK_LEN);
    }
    if (lane->cells >= 2 * CLOCK_LEN + 1)
        memcpy(times + lane->cells - CLOCK_LEN, tell_time(lane->to_ms, clock), CLOCK_LEN);
    buf_printf(out, "%*s  ", (int)label_width, "");
    append_cells(out, line, lane->cells, false);
    buf_printf(out, "%*s  ", (int)label_width, "");
    append_cells(out, times, lane->cells, false);
}

static void append_picture(struct buf *out, struct lane *lane, size_t label_width, bool utf8)
{
    char label[LABEL_MAX + 1];

    for (size_t place = 0; place < lane->shown; place++) {
        label_of(lane, place, label);
        buf_printf(out, "%-*.*s  ", (int)label_width, (int)label_width, label);
        append_cells(out, lane->grid[place], lane->cells, utf8);
    }
    append_axis(out, lane, label_width);
}

void lane_draw(struct buf *out, const struct story *story, size_t width, bool utf8)
{
    size_t most = story->holds_count + story->refusals_count, label_width = 1;
    size_t *of_holds = mem_zalloc((story->holds_count + 1) * sizeof *of_holds);
    size_t *of_refusals = mem_zalloc((story->refusals_count + 1) * sizeof *of_refusals);
    struct lane lane = {.story = story,
                        .rows = mem_zalloc((most + 1) * sizeof *lane.rows),
                        .from_ms = INT64_MAX,
                        .to_ms = INT64_MIN};
    char label[LABEL_MAX + 1];

    find_rows(&lane, of_holds, of_refusals);
    choose_rows(&lane);
    for (size_t place = 0; place < lane.shown; place++) {
        label_of(&lane, place, label);
        label_width = strlen(label) > label_width ? strlen(label) : label_width;
    }
    label_width = label_width > width / 3 ? width / 3 : label_width;
    if (most > 0 && width >= label_width + 2 + CELLS_MIN) {
        lane.cells = width - label_width - 2;
        lane.cells = lane.cells < CELLS_MAX ? lane.cells : CELLS_MAX;
        lane.grid = mem_alloc(lane.shown * sizeof *lane.grid);
        fill_grid(&lane, of_holds, of_refusals);
        append_picture(out, &lane, label_width, utf8);
        free(lane.grid);
    }
    free(of_holds);
    free(of_refusals);
    free(lane.rows);
}
