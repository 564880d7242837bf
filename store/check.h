/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the checks of all kinds of store: they ask questions in SQL, and report the answers'
 * rows as findings, in lines of printable ASCII. */
#ifndef STOCKADE_STORE_CHECK_H
#define STOCKADE_STORE_CHECK_H

#include "fence/base/bytes.h"
#include "store/maintenance.h"

/* The largest token, for SQL: 2^53-1, as in fence/token.h. */
#define CHECK_TOKEN_MAX "9007199254740991"

/* Report a finding to the caller, cut to fit, and count it, unless it is a CHECK_WARNING. */
void check_report(struct check_call *call, const char *kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A question finds where something that must hold does not. Each row of its answer says what it is
 * about (nothing in particular, a resource's id, or its name) and what is wrong there. */
struct check_subject {
    enum { CHECK_ABOUT_NOTHING, CHECK_ABOUT_ID, CHECK_ABOUT_NAME } about;
    int64_t id;
    struct bytes name; /* borrowed */
};

struct check_answer {
    struct check_call *call;
    const char *kind;
    int64_t rows; /* so far */
};

/* Report a row of the answer; where there were many before it, only count it. */
void check_answer_row(struct check_answer *answer, struct check_subject subject, struct bytes text);
/* Say how many rows were only counted. */
void check_answer_end(const struct check_answer *answer);

/* Tell the watch that the check goes on. False: give up. */
bool check_goes_on(const struct maintenance_watch *watch);

#endif
