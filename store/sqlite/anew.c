/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/anew.h"

#include <stdio.h>

#include "fence/token.h"
#include "store/sqlite/place.h"
#include "store/sqlite/rows.h"

const char *anew_why(const struct anew_signs *signs)
{
    if (signs->fresh)
        return NULL;
    if (signs->other)
        return "this file is a copy of the one that was served before, or was moved to another "
               "file system";
    if (signs->unnoted)
        return "an earlier version has served this file, which did not note which one it is";
    return signs->rebooted ? "the machine was started anew since this file was served" : NULL;
}

bool anew_ends_all(const struct anew_signs *signs)
{
    return !signs->fresh && signs->other;
}

int64_t anew_floor(const struct store_clock *clock, int64_t known)
{
    uint32_t random;

    sqlite3_randomness(sizeof random, &random);
    return token_floor_anew(known, clock_wall_us(clock->machine), random);
}

enum stk_error anew_begin(struct transaction *txn, struct anew *anew)
{
    txn->floor_known = false;
    if (transaction_change(txn, transaction_statement_for(txn, STATEMENT_FLOOR_PUT, anew->floor)) !=
        STK_OK)
        return STK_STORE;
    if (anew->ended < 0)
        return STK_OK;
    if (receipts_retire_all(txn, 0, INT64_MAX) != STK_OK ||
        transaction_change(txn, transaction_statement_for(txn, STATEMENT_END_ALL, txn->now_ms)) !=
            STK_OK)
        return STK_STORE;
    anew->ended = sqlite3_changes64(txn->db);
    return transaction_run(txn, STATEMENT_FILE_ANEW);
}

static enum stk_error go_on_from_time(struct transaction *txn, struct anew *anew)
{
    int64_t known = 0, told = txn->told.id != 0 ? txn->told.fence.token : 0;

    /* A resource with a higher one has used its tokens up: it keeps no other from going on. */
    if (transaction_number(
            txn,
            transaction_statement_for(txn, STATEMENT_TOKEN_LARGEST, TOKEN_MAX - TOKEN_STEPS_MAX),
            &known) != STK_OK)
        return STK_STORE;
    if (told > known)
        known = told;
    anew->floor = anew_floor(txn->clock, known);
    if (anew->floor != 0)
        return anew_begin(txn, anew);
    txn->failed = true;
    txn->code = SQLITE_CORRUPT;
    snprintf(txn->reason, sizeof txn->reason, "no token is left above %lld", (long long)known);
    return STK_STORE;
}

/* No token was ever given out. The opening's number does not tell: another daemon may have counted
 * one before it came to this. */
static enum stk_error is_fresh(struct transaction *txn, bool *fresh)
{
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_TOKEN_LARGEST, INT64_MAX);
    int64_t known = 0;

    if (transaction_number(txn, stmt, &known) != STK_OK)
        return STK_STORE;
    *fresh = known == 0;
    return STK_OK;
}

enum stk_error anew_open(struct transaction *txn, struct anew *anew)
{
    struct anew_signs signs = {.fresh = false};
    struct place place;

    *anew = (struct anew){.why = NULL};
    if (place_look(txn->db, &place) != SQLITE_OK)
        return transaction_fail(txn);
    signs.other = place.other;
    signs.unnoted = place.unnoted;
    if (place.unnoted && is_fresh(txn, &signs.fresh) != STK_OK)
        return STK_STORE;
    if (transaction_open_clock(txn, &signs.rebooted) != STK_OK)
        return STK_STORE;
    /* A snapshot of a file system has files with the same numbers, of the same birth. */
    signs.other |= place.elsewhere && !place.unnoted && !signs.rebooted;
    anew->why = anew_why(&signs);
    anew->ended = anew_ends_all(&signs) ? 0 : -1;
    if (anew->why != NULL && go_on_from_time(txn, anew) != STK_OK)
        return STK_STORE;
    anew->noted = place.differs;
    if (place.differs && place_note(txn->db, txn->db) != SQLITE_OK)
        return transaction_fail(txn);
    return STK_OK;
}

/* One fence is enough: whoever has told of a later one remembers that. */
static enum stk_error is_lost(struct transaction *txn, bool *lost)
{
    const struct fence *told = &txn->told.fence;
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_FENCE_OF, txn->told.id);
    int64_t token = 0;
    bool live = false;
    enum stk_error error;

    if (transaction_row(txn, stmt, &error)) {
        token = sqlite3_column_int64(stmt, 0);
        live = sqlite3_column_int64(stmt, 1) == FENCE_LIVE;
        sqlite3_reset(stmt);
    }
    if (error != STK_OK || transaction_floor(txn) != STK_OK)
        return STK_STORE;
    if (token == told->token)
        *lost = live && told->state != FENCE_LIVE;
    else /* a row that is gone has left its token in the floor */
        *lost = token < told->token && txn->floor < told->token;
    return STK_OK;
}

enum stk_error anew_follow(struct transaction *txn, struct anew *anew)
{
    bool lost = false;

    *anew = (struct anew){.why = NULL};
    if (txn->told.id == 0)
        return STK_OK;
    if (is_lost(txn, &lost) != STK_OK)
        return STK_STORE;
    if (!lost)
        return STK_OK;
    anew->why = "another program has put older contents into this file";
    return go_on_from_time(txn, anew);
}

void anew_tell(const struct anew *anew, const char *path, const struct log *log)
{
    long long floor = anew->floor, ended = anew->ended;

    if (ended >= 0)
        log_warn(log,
                 "store %s: %s: tokens go on above %lld, and all leases have ended (%lld): their "
                 "holders have to acquire them again",
                 path, anew->why, floor, ended);
    else
        log_warn(
            log,
            "store %s: %s: tokens go on above %lld, and leases go on; if its disk was put back "
            "to an older state, end them: stockade backup, then stockade restore",
            path, anew->why, floor);
}
