/* SPDX-License-Identifier: Apache-2.0 */
/* Why these parts:
 *
 * - AFTER INSERT and AFTER UPDATE judge the row as it is now: keys that SQLite makes are known only
 *   then. BEFORE UPDATE and BEFORE DELETE judge whose row it was; the latter sees REPLACE too.
 * - BEFORE INSERT adds no safety. It refuses INSERT OR IGNORE and ON CONFLICT DO NOTHING where the
 *   row exists, which would otherwise look as if it had been allowed to. A key to come reads NULL
 * or -1 there, and a computed one may be computed from that, so these wait for AFTER INSERT.
 * - Names in a trigger's body mean objects of the trigger's own file, whatever else the connection
 *   has attached or shadowed: the token is looked up where the row is, in the same transaction.
 * - RAISE makes SQLite keep what it needs to undo the whole statement, and refuses where some other
 *   program's function of this name says nothing.
 * - The index holds no row. But SQLite lets nobody write into a table that has an index on an
 *   expression through incremental blob I/O, which fires no triggers. */
#include "store/sqlite/guard_text.h"

#include <sqlite3.h>

#include "fence/base/check.h"

static const struct {
    const char *name, *when, *row; /* row NULL: the index */
} parts[GUARD_PARTS] = {
    {"insert", "BEFORE INSERT", "NEW"}, {"inserted", "AFTER INSERT", "NEW"},
    {"update", "BEFORE UPDATE", "OLD"}, {"updated", "AFTER UPDATE", "NEW"},
    {"delete", "BEFORE DELETE", "OLD"}, {"blob", NULL, NULL},
};

enum { PART_BEFORE_INSERT = 0 };

static char *trigger_sql(const struct guard *guard, size_t which, const char *name)
{
    const char *row = parts[which].row;
    char *condition = which == PART_BEFORE_INSERT
                          ? sqlite3_mprintf(" WHEN NEW.\"%w\" IS NOT NULL AND NEW.\"%w\" <> -1",
                                            guard->column, guard->column)
                          : sqlite3_mprintf("");
    if (condition == NULL)
        return NULL;
    char *sql = sqlite3_mprintf(
        "CREATE TRIGGER \"%w\" %s ON \"%w\"%s BEGIN SELECT CASE WHEN stockade_guard(%Q, %s.\"%w\", "
        "(SELECT token FROM stockade_resource WHERE name = CAST(%Q || %s.\"%w\" AS BLOB) "
        "AND state = 1), (SELECT value FROM stockade_meta WHERE key = 'file')) "
        "THEN 1 ELSE RAISE(ABORT, 'GUARDED stockade_guard is not Stockade''s') END; END",
        name, parts[which].when, guard->table, condition, guard->prefix, row, guard->column,
        guard->prefix, row, guard->column);

    sqlite3_free(condition);
    return sql;
}

bool guard_part_make(const struct guard *guard, size_t which, struct guard_part *part)
{
    check(which < GUARD_PARTS);
    if (which == PART_BEFORE_INSERT && guard->generated)
        return false;
    /* The word comes before the table's name: no two guards share a name. */
    part->name = sqlite3_mprintf("stockade_guard_%s_%s", parts[which].name, guard->table);
    part->type = parts[which].row != NULL ? "trigger" : "index";
    part->sql = NULL;
    if (part->name != NULL && parts[which].row != NULL)
        part->sql = trigger_sql(guard, which, part->name);
    else if (part->name != NULL)
        part->sql =
            sqlite3_mprintf("CREATE INDEX \"%w\" ON \"%w\"(1) WHERE 0", part->name, guard->table);
    return true;
}

void guard_part_free(struct guard_part *part)
{
    sqlite3_free(part->name);
    sqlite3_free(part->sql);
}
