/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds a file of an audit to the judge, changed as the input says, whole and in pieces. What it
 * finds must not depend on the pieces; a file that holds all lines that the store has seen, and
 * nothing else among them, is the only one that is whole; and the chain can always be gone on with.
 *
 * An input is:  pieces byte  edits (kind byte, place byte, place byte, byte)  '\n'  bytes that
 * follow the file. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "proxy/server/audit/judge.h"
#include "tests/fuzz/fuzz.h"

enum { LINES = 12 };

/* The same for each input. */
static void write_file(struct chain_head *head, struct buf *text)
{
    struct chain_hasher *hasher = chain_hasher_new();

    *head = (struct chain_head){.id = "0123456789abcdef0123456789abcdef"};
    chain_append_begin(head, hasher, 1700000000000, text);
    while (head->lines < LINES)
        chain_append(head, hasher, 1700000000000,
                     &(struct audit_note){.event = (enum audit_event)(head->lines % AUDIT_CHAIN),
                                          .token = (int64_t)head->lines,
                                          .resource = BYTES_LITERAL("sku:1"),
                                          .reason = BYTES_LITERAL("\"\\\x01")},
                     text);
    chain_hasher_free(hasher);
}

/* Change the text as one edit says. */
static void edit(struct buf *text, const uint8_t *edit)
{
    size_t at = text->len == 0 ? 0 : (edit[1] * 256u + edit[2]) % text->len;

    switch (edit[0] % 4) {
    case 0: /* a byte is another one */
        if (text->len > 0)
            text->data[at] = (char)edit[3];
        break;
    case 1: /* some are gone */ {
        size_t count = edit[3] < text->len - at ? edit[3] : text->len - at;
        memmove(text->data + at, text->data + at + count, text->len - at - count);
        text->len -= count;
        break;
    }
    case 2: /* one is there twice */
        buf_append(text, "", 1);
        memmove(text->data + at + 1, text->data + at, text->len - 1 - at);
        break;
    default: text->len = at; /* cut */
    }
}

static struct judgement judge_in_pieces(const struct chain_head *known, struct bytes text,
                                        size_t piece)
{
    struct judge *judge = judge_new(known);

    judge_begin_file(judge, "FILE");
    while (text.len > 0) {
        struct bytes next = {text.data, text.len < piece ? text.len : piece};
        char *copy = malloc(next.len); /* so that a sanitizer sees where it is read beyond */
        check(copy != NULL);
        memcpy(copy, next.data, next.len);
        judge_read(judge, (struct bytes){copy, next.len});
        free(copy);
        text.data += next.len;
        text.len -= next.len;
    }
    judge_end_file(judge, true);
    struct judgement judgement = *judge_end(judge);
    judge_free(judge);
    return judgement;
}

static bool begins_with(struct bytes text, struct bytes start)
{
    return text.len >= start.len && memcmp(text.data, start.data, start.len) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chain_head head;
    struct buf whole = {0}, text = {0};
    size_t piece = size > 0 ? data[0] + 1u : 1, at = 1;

    write_file(&head, &whole);
    buf_append_bytes(&text, buf_bytes(&whole));
    for (; at + 4 <= size && data[at] != '\n'; at += 4)
        edit(&text, data + at);
    if (at < size)
        buf_append(&text, data + at + 1, size - at - 1);
    struct judgement judgement = judge_in_pieces(&head, buf_bytes(&text), text.len + 1);
    struct judgement again = judge_in_pieces(&head, buf_bytes(&text), piece);
    check(judgement.broken == again.broken && strcmp(judgement.why, again.why) == 0 &&
          judgement.head.lines == again.head.lines && judgement.torn == again.torn);
    check(judgement.broken != (judgement.why[0] == '\0'));
    /* Nobody finds another text with these hashes. */
    check(judgement.broken || begins_with(buf_bytes(&text), buf_bytes(&whole)));
    check(judgement.broken || (judgement.head_seen && judgement.head.lines >= LINES));
    buf_free(&whole);
    buf_free(&text);
    return 0;
}
