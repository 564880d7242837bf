/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/uri.h"

#include <string.h>

#include "fence/base/bytes.h"
#include "fence/base/mem.h"
#include "fence/base/uri.h"

struct ours {
    int timeout_ms;
};

static const struct uri_option options[] = {
    {"timeout_ms", "timeout_ms",
     URI_NUMBER(struct ours, timeout_ms, PG_TIMEOUT_MS_MIN, PG_TIMEOUT_MS_MAX)},
};

enum { OPTIONS = sizeof options / sizeof *options, ALL = (1 << OPTIONS) - 1 };

/* Where the parameters begin, at their '?'; or the end. As libpq does, we look for it behind the
 * user and the password, which may have a '?' in them. */
static const char *query_of(const char *uri)
{
    const char *start = strstr(uri, "://");
    const char *at = start != NULL ? start + 3 : uri;
    size_t login = strcspn(at, "@/");

    if (at[login] == '@')
        at += login;
    return at + strcspn(at, "?");
}

static bool is_ours(struct bytes name)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (bytes_equal(name, bytes_of(options[i].name)))
            return true;
    return false;
}

/* Go through the parameters: ours into `ours`, the others to `rest`, which may be NULL and has room
 * for all. False: one of ours is wrong, and `reader` says what. */
static bool read_query(const char *query, struct uri_reader *reader, struct ours *ours, char *rest)
{
    unsigned seen = 0;
    char joint = '?';

    for (const char *at = *query == '?' ? query + 1 : query; *at != '\0';) {
        size_t len = strcspn(at, "&");
        if (is_ours((struct bytes){at, strcspn(at, "=&")})) {
            reader->at = at;
            int option = uri_take_option(reader, options, OPTIONS, ALL, &seen);
            if (option < 0 || !uri_take_value(reader, &options[option], ours))
                return false;
        } else if (rest != NULL) {
            *rest++ = joint;
            memcpy(rest, at, len);
            rest += len;
            joint = '&';
        }
        at += len + (at[len] == '&');
    }
    return true;
}

bool pg_uri_is_valid(const char *uri, char *why, size_t why_size)
{
    struct uri_reader reader = {.at = uri};
    struct ours ours;

    if (read_query(query_of(uri), &reader, &ours, NULL))
        return true;
    text_print(why, why_size, "%s", reader.why);
    return false;
}

int pg_uri_timeout_ms(const char *uri)
{
    struct uri_reader reader = {.at = uri};
    struct ours ours = {.timeout_ms = PG_TIMEOUT_MS};

    (void)read_query(query_of(uri), &reader, &ours, NULL);
    return ours.timeout_ms;
}

char *pg_uri_of_libpq(const char *uri)
{
    struct uri_reader reader = {.at = uri};
    const char *query = query_of(uri);
    char *text = mem_zalloc(strlen(uri) + 1);
    struct ours ours;

    memcpy(text, uri, (size_t)(query - uri));
    (void)read_query(query, &reader, &ours, text + (query - uri));
    return text;
}

void pg_uri_offer(struct nearest *nearest)
{
    for (size_t i = 0; i < OPTIONS; i++)
        nearest_offer(nearest, options[i].name);
}
