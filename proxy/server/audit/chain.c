/* SPDX-License-Identifier: Apache-2.0 */
/* Lines are written by a few appends and read by a few compares, since a file of a hundred thousand
 * is judged in a blink, and since nothing but what is written here is a line. */
#include "proxy/server/audit/chain.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/json.h"
#include "fence/base/mem.h"

static const char no_hash[] = "0000000000000000000000000000000000000000000000000000000000000000";

static const char *const event_names[] = {
#define X(id, name) name,
    AUDIT_EVENTS(X)
#undef X
};

const char *audit_event_name(enum audit_event event)
{
    return event_names[event];
}

bool audit_events_read(const char *text, uint32_t *events, struct bytes *wrong)
{
    *events = 0;
    if (strcmp(text, "all") == 0) {
        *events = (1u << AUDIT_EVENT_COUNT) - 1;
        return true;
    }
    for (const char *at = text;; at++) {
        struct bytes name = {at, strcspn(at, ",")};
        size_t i = 0;
        while (i < AUDIT_EVENT_COUNT && !bytes_equal(name, bytes_of(event_names[i])))
            i++;
        if (i == AUDIT_EVENT_COUNT) {
            *wrong = name;
            return false;
        }
        *events |= 1u << i;
        at += name.len;
        if (*at == '\0')
            return true;
    }
}

/* Hashes. OpenSSL fails here only where it has no memory, or no SHA-256. */

struct chain_hasher {
    EVP_MD *sha256;
    EVP_MD_CTX *text, *copy;
};

struct chain_hasher *chain_hasher_new(void)
{
    struct chain_hasher *hasher = mem_zalloc(sizeof *hasher);

    hasher->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    hasher->text = EVP_MD_CTX_new();
    hasher->copy = EVP_MD_CTX_new();
    check(hasher->sha256 != NULL && hasher->text != NULL && hasher->copy != NULL);
    return hasher;
}

void chain_hasher_free(struct chain_hasher *hasher)
{
    if (hasher == NULL)
        return;
    EVP_MD_CTX_free(hasher->text);
    EVP_MD_CTX_free(hasher->copy);
    EVP_MD_free(hasher->sha256);
    free(hasher);
}

void chain_hash_begin(struct chain_hasher *hasher)
{
    check(EVP_DigestInit_ex2(hasher->text, hasher->sha256, NULL) == 1);
}

void chain_hash_add(struct chain_hasher *hasher, struct bytes piece)
{
    check(EVP_DigestUpdate(hasher->text, piece.data, piece.len) == 1);
}

static struct chain_hash end_hash(EVP_MD_CTX *text)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    struct chain_hash hash;
    unsigned len = 0;

    check(EVP_DigestFinal_ex(text, digest, &len) == 1 && len * 2 == CHAIN_HASH_LEN);
    bytes_to_hex((struct bytes){(const char *)digest, len}, hash.hex);
    hash.hex[CHAIN_HASH_LEN] = '\0';
    return hash;
}

struct chain_hash chain_hash_take(struct chain_hasher *hasher)
{
    check(EVP_MD_CTX_copy_ex(hasher->copy, hasher->text) == 1);
    return end_hash(hasher->copy);
}

struct chain_hash chain_hash_of(struct chain_hasher *hasher, struct bytes text)
{
    chain_hash_begin(hasher);
    chain_hash_add(hasher, text);
    return end_hash(hasher->text);
}

/* Writing. */

bool chain_begin(struct chain_head *head)
{
    unsigned char id[CHAIN_ID_LEN / 2];

    *head = (struct chain_head){.lines = 0};
    if (RAND_bytes(id, sizeof id) != 1)
        return false;
    bytes_to_hex((struct bytes){(const char *)id, sizeof id}, head->id);
    return true;
}

static void append_member(struct buf *out, const char *name, struct bytes text)
{
    buf_append_text(out, name);
    if (text.len > 0)
        json_string(out, text);
    else
        buf_append_text(out, "null");
}

static void append_number(struct buf *out, const char *name, int64_t number)
{
    char text[INT64_TEXT_MAX];

    buf_append_text(out, name);
    buf_append_bytes(out, bytes_of_int64(number, text));
}

void chain_append(struct chain_head *head, struct chain_hasher *hasher, int64_t time_ms,
                  const struct audit_note *note, struct buf *out)
{
    size_t from = out->len;

    append_number(out, CHAIN_LINE_START, time_ms);
    buf_append_text(out, ",\"event\":\"");
    buf_append_text(out, event_names[note->event]);
    append_member(out, "\",\"user\":", note->user);
    append_member(out, ",\"address\":", note->address);
    append_member(out, ",\"resource\":", note->resource);
    if (note->token != 0)
        append_number(out, ",\"token\":", note->token);
    else
        buf_append_text(out, ",\"token\":null");
    append_member(out,
                  ",\"code\":", bytes_of(note->code == STK_OK ? "" : stk_error_code(note->code)));
    append_member(out, ",\"reason\":", note->reason);
    buf_append_text(out, ",\"prev\":\"");
    buf_append_text(out, head->lines == 0 ? no_hash : head->hash.hex);
    buf_append_text(out, "\"}");
    head->hash = chain_hash_of(hasher, (struct bytes){out->data + from, out->len - from});
    head->lines++;
    buf_append_text(out, "\n");
}

void chain_append_begin(struct chain_head *head, struct chain_hasher *hasher, int64_t time_ms,
                        struct buf *out)
{
    char reason[96];

    snprintf(reason, sizeof reason, "chain %s line %" PRIu64, head->id, head->lines + 1);
    chain_append(head, hasher, time_ms,
                 &(struct audit_note){.event = AUDIT_CHAIN, .reason = bytes_of(reason)}, out);
}

void chain_append_torn(struct chain_head *head, struct chain_hasher *hasher, int64_t time_ms,
                       uint64_t bytes, struct chain_hash hash, struct buf *out)
{
    char reason[128];

    snprintf(reason, sizeof reason, "bytes %" PRIu64 " sha256 %s", bytes, hash.hex);
    chain_append(head, hasher, time_ms,
                 &(struct audit_note){.event = AUDIT_TORN, .reason = bytes_of(reason)}, out);
}

/* Reading. */

/* Take what the text begins with. False: it does not. */
static bool take(struct bytes *text, struct bytes start)
{
    if (text->len < start.len || memcmp(text->data, start.data, start.len) != 0)
        return false;
    text->data += start.len;
    text->len -= start.len;
    return true;
}
#define TAKE(text, start) take((text), BYTES_LITERAL(start))

/* Take characters of the set; it may be none. */
static struct bytes take_span(struct bytes *text, const char *set)
{
    struct bytes span = {text->data, 0};

    while (text->len > 0 && *text->data != '\0' && strchr(set, *text->data) != NULL) {
        text->data++;
        text->len--;
        span.len++;
    }
    return span;
}

/* Take a string, or null, which is empty. */
static bool take_string(struct bytes *text, struct bytes *string)
{
    size_t at = 1;

    *string = (struct bytes){"", 0};
    if (TAKE(text, "null"))
        return true;
    if (text->len < 2 || text->data[0] != '"')
        return false;
    for (; at < text->len && text->data[at] != '"'; at++) {
        if ((unsigned char)text->data[at] < ' ')
            return false;
        at += text->data[at] == '\\';
    }
    if (at >= text->len)
        return false;
    *string = (struct bytes){text->data + 1, at - 1};
    text->data += at + 1;
    text->len -= at + 1;
    return true;
}

static bool is_hex(struct bytes text, size_t len)
{
    for (size_t i = 0; i < text.len; i++)
        if (!(text.data[i] >= '0' && text.data[i] <= '9') &&
            !(text.data[i] >= 'a' && text.data[i] <= 'f'))
            return false;
    return text.len == len;
}

bool chain_line_read(struct bytes text, struct chain_line *line)
{
    struct bytes ignored;

    if (!TAKE(&text, CHAIN_LINE_START))
        return false;
    (void)TAKE(&text, "-");
    if (take_span(&text, "0123456789").len == 0 || !TAKE(&text, ",\"event\":") ||
        !take_string(&text, &line->event) || !TAKE(&text, ",\"user\":") ||
        !take_string(&text, &ignored) || !TAKE(&text, ",\"address\":") ||
        !take_string(&text, &ignored) || !TAKE(&text, ",\"resource\":") ||
        !take_string(&text, &ignored) || !TAKE(&text, ",\"token\":"))
        return false;
    if (!TAKE(&text, "null")) {
        (void)TAKE(&text, "-");
        if (take_span(&text, "0123456789").len == 0)
            return false;
    }
    return TAKE(&text, ",\"code\":") && take_string(&text, &ignored) &&
           TAKE(&text, ",\"reason\":") && take_string(&text, &line->reason) &&
           TAKE(&text, ",\"prev\":") && take_string(&text, &line->prev) && TAKE(&text, "}") &&
           text.len == 0 && is_hex(line->prev, CHAIN_HASH_LEN);
}

static bool take_uint(struct bytes *text, uint64_t *number)
{
    struct bytes digits = take_span(text, "0123456789");
    int64_t value;

    if (!bytes_to_int64(digits, &value) || value < 0)
        return false;
    *number = (uint64_t)value;
    return true;
}

bool chain_line_begins(const struct chain_line *line, struct chain_head *head, uint64_t *number)
{
    struct bytes text = line->reason;

    *head = (struct chain_head){.lines = 0};
    if (!bytes_equal(line->event, bytes_of(event_names[AUDIT_CHAIN])) || !TAKE(&text, "chain "))
        return false;
    struct bytes id = take_span(&text, "0123456789abcdef");
    if (id.len != CHAIN_ID_LEN || !TAKE(&text, " line ") || !take_uint(&text, number) ||
        *number == 0 || text.len > 0)
        return false;
    memcpy(head->id, id.data, id.len);
    head->lines = *number - 1;
    memcpy(head->hash.hex, line->prev.data, line->prev.len);
    return true;
}

bool chain_line_is_torn(const struct chain_line *line, uint64_t *bytes, struct chain_hash *hash)
{
    struct bytes text = line->reason;

    if (!bytes_equal(line->event, bytes_of(event_names[AUDIT_TORN])) || !TAKE(&text, "bytes ") ||
        !take_uint(&text, bytes) || !TAKE(&text, " sha256 ") || !is_hex(text, CHAIN_HASH_LEN))
        return false;
    *hash = (struct chain_hash){{0}};
    memcpy(hash->hex, text.data, text.len);
    return true;
}

bool chain_line_holds(const struct chain_line *line, const struct chain_head *before)
{
    return memcmp(line->prev.data, before->lines == 0 ? no_hash : before->hash.hex,
                  CHAIN_HASH_LEN) == 0;
}
