/* SPDX-License-Identifier: Apache-2.0 */
#include "store/transfer.h"

#include <stdio.h>

#include "fence/base/check.h"

enum { WATCH_EVERY_ROWS = 1024 };

const char *transfer_columns(enum transfer_table table)
{
    static const char *const columns[] = {
#define X(name, columns) columns,
        TRANSFER_TABLE_MAP(X)
#undef X
    };
    return columns[table];
}

struct pump {
    struct transfer *from, *to;
    enum transfer_table table;
    int64_t id_shift, date_shift, now_ms, opening;
    int64_t done, total;
};

static bool refit(void *context, const struct transfer_cell *cells)
{
    struct pump *pump = context;
    const char *columns = transfer_columns(pump->table);
    const struct maintenance_watch *watch = &pump->to->watch;
    struct transfer_cell fit[TRANSFER_COLUMNS_MAX];

    for (int i = 0; columns[i] != '\0'; i++) {
        check(i < TRANSFER_COLUMNS_MAX);
        fit[i] = cells[i];
        switch (columns[i]) {
        case 'r': fit[i].number += pump->id_shift; break;
        case 'o': fit[i].number = pump->opening; break;
        case 'd':
            fit[i].number += pump->date_shift;
            if (fit[i].number > pump->now_ms)
                fit[i].number = pump->now_ms;
            if (fit[i].number < 0)
                fit[i].number = 0;
            break;
        default: break;
        }
    }
    if (pump->done++ % WATCH_EVERY_ROWS == 0 && watch->step != NULL &&
        !watch->step(watch->context, "copying", pump->done < pump->total ? pump->done : pump->total,
                     pump->total)) {
        text_print(pump->to->why, sizeof pump->to->why, "interrupted");
        return false;
    }
    return pump->to->impl->put(pump->to, pump->table, fit);
}

bool transfer_rows(struct transfer *from, const struct transfer_facts *source, struct transfer *to,
                   const struct transfer_facts *target, int64_t floor)
{
    struct pump pump = {
        .from = from,
        .to = to,
        .id_shift = target->ids,
        .date_shift = target->now_ms - source->now_ms,
        .now_ms = target->now_ms,
        .opening = (source->opening > target->opening ? source->opening : target->opening) + 1,
        .total = source->rows,
    };

    for (int table = 0; table < TRANSFER_TABLES; table++) {
        pump.table = (enum transfer_table)table;
        to->why[0] = from->why[0] = '\0';
        if (!from->impl->each(from, pump.table, refit, &pump)) {
            if (to->why[0] == '\0')
                text_print(to->why, sizeof to->why, "%s", from->why);
            return false;
        }
    }
    return to->impl->set(to, pump.opening, floor);
}

bool transfer_is_closed(const struct transfer_mark *mark, const char *label, char *why,
                        size_t why_size)
{
    if (mark->part == TRANSFER_GONE)
        text_print(why, why_size,
                   "%s takes nothing any more: what was in it has moved to %s; name that one",
                   label, mark->where);
    else if (mark->part == TRANSFER_COMING)
        text_print(why, why_size,
                   "%s takes nothing yet: what is in %s is to move into it; run that `stockade "
                   "move` again",
                   label, mark->where);
    return mark->part == TRANSFER_GONE || mark->part == TRANSFER_COMING;
}
