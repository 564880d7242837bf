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

static enum stk_error raise(struct transaction *txn, struct anew *anew)
{
    int64_t known = 0;

    /* A resource with a higher one has used its tokens up: it keeps no other from going on. */
    if (transaction_number(
            txn,
            transaction_statement_for(txn, STATEMENT_TOKEN_LARGEST, TOKEN_MAX - TOKEN_STEPS_MAX),
            &known) != STK_OK)
        return STK_STORE;
    anew->floor = anew_floor(txn->clock, known);
    if (anew->floor != 0)
        return anew_begin(txn, anew);
    txn->failed = true;
    txn->code = SQLITE_CORRUPT;
    snprintf(txn->reason, sizeof txn->reason, "no token is left above %lld", (long long)known);
    return STK_STORE;
}

enum stk_error anew_open(struct transaction *txn, bool fresh, struct anew *anew)
{
    struct anew_signs signs = {.fresh = fresh};
    struct place place;

    *anew = (struct anew){.why = NULL};
    if (place_look(txn->db, &place) != SQLITE_OK)
        return transaction_fail(txn);
    signs.other = place.other;
    signs.unnoted = place.unnoted;
    if (transaction_open_clock(txn, &signs.rebooted) != STK_OK)
        return STK_STORE;
    anew->why = anew_why(&signs);
    anew->ended = anew_ends_all(&signs) ? 0 : -1;
    if (anew->why != NULL && raise(txn, anew) != STK_OK)
        return STK_STORE;
    anew->noted = place.differs;
    if (place.differs && place_note(txn->db, txn->db) != SQLITE_OK)
        return transaction_fail(txn);
    return STK_OK;
}
