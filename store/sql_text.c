/* SPDX-License-Identifier: Apache-2.0 */
/* Scans for words. What is quoted, or names a parameter (:name), is not a word. */
#include "store/sql_text.h"

#include <stddef.h>
#include <string.h>

enum token { TOKEN_END, TOKEN_WORD, TOKEN_SEMICOLON, TOKEN_OTHER };

struct scan {
    const char *at, *end;
    struct bytes word; /* of the last TOKEN_WORD */
};

static struct scan scan_of(struct bytes text)
{
    return (struct scan){.at = text.data, .end = text.len > 0 ? text.data + text.len : text.data};
}

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '$' || (c & 0x80) != 0;
}

/* Move past the next `mark`, or to the end. */
static void skip_past(struct scan *scan, const char *mark)
{
    const char *found = memmem(scan->at, (size_t)(scan->end - scan->at), mark, strlen(mark));
    scan->at = found != NULL ? found + strlen(mark) : scan->end;
}

/* Move past the closing quote. A doubled quote inside closes one piece and opens the next. */
static void skip_quoted(struct scan *scan, char open)
{
    const char mark[] = {open == '[' ? ']' : open, '\0'};
    skip_past(scan, mark);
}

static void skip_word(struct scan *scan)
{
    while (scan->at < scan->end && is_word_char(*scan->at))
        scan->at++;
}

static bool starts(const struct scan *scan, const char *two)
{
    return scan->end - scan->at >= 2 && scan->at[0] == two[0] && scan->at[1] == two[1];
}

static enum token next(struct scan *scan)
{
    while (scan->at < scan->end)
        if (starts(scan, "--")) {
            skip_past(scan, "\n");
        } else if (starts(scan, "/*")) {
            scan->at += 2;
            skip_past(scan, "*/");
        } else if (memchr(" \t\n\f\r", *scan->at, 5) != NULL) {
            scan->at++;
        } else {
            break;
        }
    if (scan->at == scan->end)
        return TOKEN_END;
    const char *begin = scan->at;
    if (is_word_char(*begin)) {
        skip_word(scan);
        scan->word = (struct bytes){begin, (size_t)(scan->at - begin)};
        return TOKEN_WORD;
    }
    scan->at++;
    if (memchr("'\"`[", *begin, 4) != NULL)
        skip_quoted(scan, *begin);
    else if (memchr(":@#?", *begin, 4) != NULL)
        skip_word(scan);
    return *begin == ';' ? TOKEN_SEMICOLON : TOKEN_OTHER;
}

static bool word_is_one_of(struct bytes word, const char *const *words)
{
    for (; *words != NULL; words++)
        if (bytes_equal_nocase(word, *words))
            return true;
    return false;
}

enum sql_kind sql_kind(struct bytes statement)
{
    static const char *const queries[] = {"SELECT", "VALUES", "TABLE", "WITH", "EXPLAIN", NULL};
    static const char *const changes[] = {"INSERT", "UPDATE", "DELETE", "REPLACE", "MERGE", NULL};
    static const char *const definitions[] = {"CREATE",  "ALTER",   "DROP",
                                              "REINDEX", "ANALYZE", NULL};
    /* A longer one is refused; to look through 16 MiB for its first word takes the loop's time. */
    if (statement.len > SQL_STATEMENT_MAX)
        statement.len = SQL_STATEMENT_MAX;
    struct scan scan = scan_of(statement);
    enum token token;

    while ((token = next(&scan)) == TOKEN_SEMICOLON) /* SQLite skips them, too */
        ;
    if (token != TOKEN_WORD)
        return SQL_OTHER;
    if (word_is_one_of(scan.word, queries))
        return SQL_QUERY;
    if (word_is_one_of(scan.word, changes))
        return SQL_CHANGE;
    return word_is_one_of(scan.word, definitions) ? SQL_DEFINITION : SQL_OTHER;
}

const char *sql_text_refuses(struct bytes statement)
{
    static const char *const selects[] = {"SELECT", "VALUES", NULL};
    struct scan scan = scan_of(statement);
    size_t count = 0;

    if (statement.len > SQL_STATEMENT_MAX)
        return "the statement is too long: 1 MiB at most; send values as parameters";
    if (statement.len > 0 && memchr(statement.data, '\0', statement.len) != NULL)
        return "there is a NUL in the statement; send values as parameters";
    for (enum token token = next(&scan); token != TOKEN_END; token = next(&scan))
        count += token == TOKEN_WORD && word_is_one_of(scan.word, selects);
    return count > SQL_SELECTS_MAX ? "the statement is too complex: 500 SELECTs at most" : NULL;
}

bool sql_text_is_blank(struct bytes rest)
{
    struct scan scan = scan_of(rest);
    enum token token;

    while ((token = next(&scan)) == TOKEN_SEMICOLON)
        ;
    return token == TOKEN_END;
}

bool sql_text_has(struct bytes statement, const char *word)
{
    size_t len = strlen(word);

    if (statement.len < len)
        return false;
    const char *end = statement.data + statement.len;
    for (const char *at = statement.data + len - 1;
         at < end && (at = memchr(at, word[len - 1], (size_t)(end - at))) != NULL; at++)
        if (bytes_equal_nocase((struct bytes){at - len + 1, len}, word))
            return true;
    return false;
}
