/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the note of the store's time in its table of one row. */
#include <string.h>

#include "store/sqlite/transaction.h"

static enum stk_error read_note(struct transaction *txn, struct store_clock_note *note)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_CLOCK);
    enum stk_error error = STK_OK;

    if (stmt == NULL)
        return STK_STORE;
    if (!transaction_row(txn, stmt, &error))
        return error != STK_OK ? error : transaction_implausible(txn);
    struct bytes boot = transaction_column(stmt, 0);
    *note = (struct store_clock_note){
        .offset_ms = sqlite3_column_int64(stmt, 1),
        .reached_ms = sqlite3_column_int64(stmt, 2),
        .wall_ms = sqlite3_column_int64(stmt, 3),
        .start_ms = sqlite3_column_int64(stmt, 4),
    };
    if (boot.len > 0 && boot.len < sizeof note->boot)
        memcpy(note->boot, boot.data, boot.len);
    sqlite3_reset(stmt);
    return STK_OK;
}

static enum stk_error write_note(struct transaction *txn, const struct store_clock_note *note)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_CLOCK_PUT);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_text(stmt, 1, note->boot, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, note->offset_ms);
    sqlite3_bind_int64(stmt, 3, note->reached_ms);
    sqlite3_bind_int64(stmt, 4, note->wall_ms);
    sqlite3_bind_int64(stmt, 5, note->start_ms);
    return transaction_change(txn, stmt);
}

enum stk_error transaction_resume_clock(struct transaction *txn, bool opens)
{
    struct store_clock *clock = txn->clock;
    struct store_clock_note kept;
    enum stk_error error = read_note(txn, &kept);

    if (error == STK_OK &&
        (opens ? store_clock_resume(clock, &kept) : store_clock_follow(clock, &kept)))
        error = write_note(txn, &clock->note);
    txn->now_ms = store_clock_now_ms(clock);
    return error;
}

enum stk_error transaction_note_clock(struct transaction *txn, struct store_clock_note *note,
                                      bool *noted)
{
    *noted = store_clock_due(txn->clock, note);
    return *noted ? write_note(txn, note) : STK_OK;
}
