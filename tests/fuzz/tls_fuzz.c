/* SPDX-License-Identifier: Apache-2.0 */
/* TLS at both ends. An input is either bytes that one end gets out of nowhere, or a conversation
 * between the two that somebody between them spoils: what is sent, how it is cut, and which bytes
 * are changed, dropped or doubled.
 *
 * Whatever comes: an end has only what the other one said, in order, from the beginning on; one
 * that has failed says and hears nothing more; and what it answers is bounded by what it gets. */
#include "fence/base/tls.h"

#include "fence/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/certs.h"

enum { STEPS_MAX = 400, SAID_MAX = 100000, ANSWER_MAX = 20000 };

static struct fuzz_file cert_file;
static struct tls_context *at_server, *at_client;

struct end {
    struct tls *tls;
    struct buf has, said; /* plaintext that came out, and that went in */
    struct buf to_send;   /* on its way to the other end */
    bool ended;
};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const struct cert_wanted wanted = {.names = "DNS:a.example", .days = 9, .ca = true};
    struct cert cert = cert_make(&wanted);
    char why[TLS_WHY_MAX] = "";

    (void)argc, (void)argv;
    fuzz_file_write(&cert_file, (struct bytes){"", 0});
    cert_write(&cert, cert_file.path, true);
    cert_free(&cert);
    const struct tls_files files = {.cert = cert_file.path, .ca = cert_file.path};
    at_server = tls_server(&files, TLS_CLIENTS_OPTIONAL, why);
    at_client = tls_client(&(struct tls_files){.ca = cert_file.path}, why);
    check(at_server != NULL && at_client != NULL);
    return 0;
}

static void receive(struct end *end, struct bytes arrived)
{
    bool had_failed = tls_state(end->tls) == TLS_FAILED;
    size_t had = end->has.len, sent = end->to_send.len;
    enum tls_state state = tls_receive(end->tls, arrived, &end->has, &end->to_send);

    if (had_failed && (end->has.len > had || end->to_send.len > sent || state != TLS_FAILED))
        fuzz_wrong("it goes on after it has failed");
    if (end->has.len - had > arrived.len + TLS_RECORD_MAX)
        fuzz_wrong("%zu bytes of plaintext from %zu", end->has.len - had, arrived.len);
    if (end->to_send.len - sent > 16 * arrived.len + ANSWER_MAX)
        fuzz_wrong("%zu bytes in answer to %zu", end->to_send.len - sent, arrived.len);
    if (state == TLS_FAILED && tls_why(end->tls)[0] == '\0')
        fuzz_wrong("it has failed and does not say why");
}

static void say(struct end *end, size_t len)
{
    enum tls_state state = tls_state(end->tls);
    char text[256];

    if ((state != TLS_OPEN && state != TLS_ENDED) || end->ended || end->said.len > SAID_MAX)
        return;
    for (size_t i = 0; i < len; i++)
        text[i] = (char)(end->said.len + i);
    buf_append(&end->said, text, len);
    tls_send(end->tls, (struct bytes){text, len}, &end->to_send);
}

static void deliver(struct end *from, struct end *to, size_t len)
{
    struct bytes now = {from->to_send.data, len < from->to_send.len ? len : from->to_send.len};

    receive(to, now);
    buf_consume(&from->to_send, now.len);
}

/* Somebody between the two does something to what is on its way. */
static void spoil(struct buf *wire, unsigned how, size_t at, unsigned by)
{
    if (wire->len == 0)
        return;
    at %= wire->len;
    if (how == 0) {
        wire->data[at] = (char)((unsigned char)wire->data[at] ^ (by | 1));
    } else if (how == 1) { /* the first bytes are lost */
        buf_consume(wire, at + 1);
    } else { /* or come twice */
        struct buf twice = {0};
        buf_append(&twice, wire->data, at + 1);
        buf_append_bytes(&twice, buf_bytes(wire));
        buf_free(wire);
        *wire = twice;
    }
}

static void expect_prefix(const struct end *has, const struct end *said)
{
    if (has->has.len > said->said.len ||
        (has->has.len > 0 && memcmp(has->has.data, said->said.data, has->has.len) != 0))
        fuzz_wrong("an end has what the other one has not said");
}

static void converse(struct end *ends, struct bytes rest)
{
    receive(&ends[1], (struct bytes){"", 0});
    for (int step = 0; step < STEPS_MAX && rest.len > 0; step++) {
        unsigned what = fuzz_byte(&rest), amount = fuzz_byte(&rest);
        struct end *end = &ends[what & 1], *other = &ends[!(what & 1)];
        switch (what >> 1 & 7) {
        case 0:
        case 1: deliver(end, other, amount + 1); break;
        case 2: deliver(end, other, SIZE_MAX); break;
        case 3:
        case 4: say(end, amount); break;
        case 5: spoil(&end->to_send, what >> 4 & 1, amount * 3, fuzz_byte(&rest)); break;
        case 6: spoil(&end->to_send, 2, amount * 3, 0); break;
        default:
            if (!end->ended)
                tls_end(end->tls, &end->to_send);
            end->ended = true;
        }
        expect_prefix(end, other);
        expect_prefix(other, end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = {(const char *)data, size};
    struct end ends[2] = {{.tls = tls_open(at_server, NULL)},
                          {.tls = tls_open(at_client, "a.example")}};
    unsigned way = fuzz_byte(&rest);

    if (way < 2) {
        receive(&ends[way], (struct bytes){"", 0});
        for (size_t piece = 1; rest.len > 0; piece += piece) {
            struct bytes now = {rest.data, piece < rest.len ? piece : rest.len};
            receive(&ends[way], now);
            rest = (struct bytes){rest.data + now.len, rest.len - now.len};
        }
        expect_prefix(&ends[way], &ends[!way]);
    } else {
        converse(ends, rest);
    }
    for (int i = 0; i < 2; i++) {
        tls_free(ends[i].tls);
        buf_free(&ends[i].has);
        buf_free(&ends[i].said);
        buf_free(&ends[i].to_send);
    }
    return 0;
}
