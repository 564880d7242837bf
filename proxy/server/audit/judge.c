/* SPDX-License-Identifier: Apache-2.0 */
/* One line after the other. What is no line, or does not hold the one before, begins a stretch that
 * has to be a torn one: its bytes are hashed until a line `torn` comes that names just them. At the
 * end of the last file that line may be missing: the next start writes it, unless there is a line
 * in the stretch. What is a line but for its end is one here, and for the next start. */
#include "proxy/server/audit/judge.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

#define NOT_AN_AUDIT "the first line is not how a file of an audit begins"

struct judge {
    struct judgement result;
    const struct chain_head *known; /* or NULL */
    struct chain_hasher *lines, *stretch;
    const char *name;
    struct buf rest;        /* the beginning of a line whose end has not come */
    uint64_t line;          /* in the file, from 1: the next one */
    bool overlong;          /* the line under way is none of an audit's, and is not kept */
    bool begins;            /* the next line is the first one of a file */
    bool in_stretch;        /* these bytes are no lines of the chain: */
    uint64_t stretch_bytes; /* so far */
    uint64_t stretch_line;  /* where it begins */
    bool stretch_ended;     /* as a line does, so far */
    bool stretch_has_line;  /* that does not hold the one before: somebody has put it there */
};

struct judge *judge_new(const struct chain_head *known)
{
    struct judge *judge = mem_zalloc(sizeof *judge);

    judge->known = known;
    judge->lines = chain_hasher_new();
    judge->stretch = chain_hasher_new();
    return judge;
}

void judge_free(struct judge *judge)
{
    chain_hasher_free(judge->lines);
    chain_hasher_free(judge->stretch);
    buf_free(&judge->rest);
    free(judge);
}

void judge_begin_file(struct judge *judge, const char *name)
{
    judge->name = name;
    judge->line = 1;
    judge->begins = true;
}

/* The first thing that is wrong is what is told. */
static __attribute__((format(printf, 3, 4))) void find(struct judge *judge, uint64_t line,
                                                       const char *format, ...)
{
    struct judgement *result = &judge->result;
    va_list args;

    if (result->broken)
        return;
    result->broken = true;
    int len = line == 0 ? snprintf(result->why, sizeof result->why, "%.150s: ", judge->name)
                        : snprintf(result->why, sizeof result->why, "%.150s:%" PRIu64 ": ",
                                   judge->name, line);
    va_start(args, format);
    vsnprintf(result->why + len, sizeof result->why - (size_t)len, format, args);
    va_end(args);
}

static bool same_hash(const struct chain_hash *a, const struct chain_hash *b)
{
    return memcmp(a->hex, b->hex, CHAIN_HASH_LEN) == 0;
}

/* Does the chain, as far as it has come, hold what the store has seen of it? */
static void compare_with_store(struct judge *judge)
{
    struct judgement *result = &judge->result;
    const struct chain_head *known = judge->known;

    if (known == NULL || known->lines == 0 || known->lines != result->head.lines)
        return;
    result->head_seen = same_hash(&known->hash, &result->head.hash);
    if (!result->head_seen)
        find(judge, judge->line,
             "line %" PRIu64 " of the chain is another one than the store has seen", known->lines);
}

static void accept(struct judge *judge, struct bytes text, const struct chain_line *line)
{
    struct judgement *result = &judge->result;

    result->head.hash = chain_hash_of(judge->lines, text);
    result->head.lines++;
    result->gaps += bytes_equal(line->event, bytes_of(audit_event_name(AUDIT_GAP)));
    if (bytes_equal(line->event, bytes_of(audit_event_name(AUDIT_MISMATCH))))
        find(judge, judge->line, "a daemon has found here that the file had been changed: %.*s",
             BYTES_CUT(line->reason, 150));
    compare_with_store(judge);
}

/* The first line of a file says where in its chain it stands. False: it is no such line. */
static bool take_beginning(struct judge *judge, const struct chain_line *line)
{
    struct judgement *result = &judge->result;
    struct chain_head begun;
    uint64_t number;

    if (!chain_line_begins(line, &begun, &number))
        return false;
    if (result->first == 0) {
        result->first = number;
        result->head = begun;
        compare_with_store(judge);
    } else if (strcmp(begun.id, result->head.id) != 0) {
        find(judge, 1, "this file is of another chain");
    } else if (number > result->head.lines + 1) {
        find(judge, 1, "lines %" PRIu64 " to %" PRIu64 " of the chain are missing before it",
             result->head.lines + 1, number - 1);
    } else if (number < result->head.lines + 1) {
        find(judge, 1, "line %" PRIu64 " of the chain stands in another file, too", number);
    }
    return true;
}

/* Does this line end the stretch, as what a crash had torn? */
static bool ends_stretch(struct judge *judge, const struct chain_line *line)
{
    struct chain_hash hash;
    uint64_t bytes;

    if (!chain_line_is_torn(line, &bytes, &hash) || bytes != judge->stretch_bytes ||
        !chain_line_holds(line, &judge->result.head))
        return false;
    const struct chain_hash found = chain_hash_take(judge->stretch);
    return same_hash(&found, &hash);
}

static void add_to_stretch(struct judge *judge, struct bytes text, bool ended)
{
    if (!judge->in_stretch) {
        judge->in_stretch = true;
        judge->stretch_bytes = 0;
        judge->stretch_has_line = false;
        judge->stretch_line = judge->line;
        chain_hash_begin(judge->stretch);
    }
    chain_hash_add(judge->stretch, text);
    if (ended)
        chain_hash_add(judge->stretch, BYTES_LITERAL("\n"));
    judge->stretch_bytes += text.len + ended;
    judge->stretch_ended = ended;
}

static void take_line(struct judge *judge, struct bytes text, bool ended)
{
    struct judgement *result = &judge->result;
    struct chain_line line;
    bool is_line = chain_line_read(text, &line);
    bool begins = judge->begins;

    judge->begins = false;
    if (begins && !(is_line && take_beginning(judge, &line))) {
        find(judge, 1, NOT_AN_AUDIT);
    } else if (judge->in_stretch && is_line && ends_stretch(judge, &line)) {
        judge->in_stretch = false;
        result->torn++;
        accept(judge, text, &line);
    } else if (!judge->in_stretch && is_line && chain_line_holds(&line, &result->head)) {
        accept(judge, text, &line);
    } else {
        add_to_stretch(judge, text, ended);
        judge->stretch_has_line |= is_line;
    }
    judge->line++;
}

/* Take a part of a line that is too long to be one. */
static void take_part(struct judge *judge, struct bytes part, bool ended)
{
    if (judge->begins)
        find(judge, 1, NOT_AN_AUDIT);
    judge->begins = false;
    if (judge->rest.len > 0)
        add_to_stretch(judge, buf_bytes(&judge->rest), false);
    buf_free(&judge->rest);
    add_to_stretch(judge, part, ended);
    judge->overlong = !ended;
    judge->line += ended;
}

void judge_read(struct judge *judge, struct bytes piece)
{
    const char *end;

    while (!judge->result.broken && piece.len > 0 &&
           (end = memchr(piece.data, '\n', piece.len)) != NULL) {
        size_t len = (size_t)(end - piece.data);
        if (judge->overlong) {
            take_part(judge, (struct bytes){piece.data, len}, true);
        } else if (judge->rest.len > 0) {
            buf_append(&judge->rest, piece.data, len);
            take_line(judge, buf_bytes(&judge->rest), true);
            buf_clear(&judge->rest);
        } else {
            take_line(judge, (struct bytes){piece.data, len}, true);
        }
        piece.data += len + 1;
        piece.len -= len + 1;
    }
    if (judge->result.broken || piece.len == 0)
        return;
    if (judge->overlong || judge->rest.len + piece.len > CHAIN_LINE_MAX)
        take_part(judge, piece, false);
    else
        buf_append_bytes(&judge->rest, piece);
}

void judge_end_file(struct judge *judge, bool last)
{
    struct judgement *result = &judge->result;

    if (judge->rest.len > 0 && !result->broken)
        take_line(judge, buf_bytes(&judge->rest), false);
    buf_clear(&judge->rest);
    judge->overlong = false;
    if (judge->begins)
        find(judge, 0, "the file is empty");
    if (!judge->in_stretch || result->broken)
        return;
    result->ends_torn = last && !judge->stretch_ended && !judge->stretch_has_line;
    if (!result->ends_torn)
        find(judge, judge->stretch_line,
             "the chain breaks: this line, or the one before it, was changed, or lines were "
             "removed or added between them");
}

const struct judgement *judge_end(struct judge *judge)
{
    struct judgement *result = &judge->result;
    const struct chain_head *known = judge->known;

    if (known != NULL && result->head.lines < known->lines)
        find(judge, 0,
             "the end is missing: the store has seen %" PRIu64 " lines of this chain, and %" PRIu64
             " are here",
             known->lines, result->head.lines);
    if (known != NULL && known->lines > 0 && !result->head_seen)
        find(judge, 0,
             "this file begins behind line %" PRIu64 " of the chain, the last one that the store "
             "has seen: give the file that holds it, too",
             known->lines);
    return result;
}
