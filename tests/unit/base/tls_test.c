/* SPDX-License-Identifier: Apache-2.0 */
/* Both ends of TLS against each other, without a socket between them. */
#include "fence/base/tls.h"

#include <stdlib.h>

#include "tests/unit/certs.h"
#include "tests/unit/folder.h"
#include "tests/unit/test.h"

/* Files for one test, and what two contexts are made of. */
struct rig {
    char folder[64], ca[96], server[96], client[96], other[96];
    struct cert authority;
    struct tls_context *at_server, *at_client;
};

/* Two ends, and what is on its way between them. */
struct pair {
    struct tls *server, *client;
    struct buf to_server, to_client, server_has, client_has;
};

static void write_cert(struct rig *rig, const char *path, const struct cert_wanted *wanted)
{
    struct cert_wanted signed_by_ca = *wanted;

    if (signed_by_ca.by == NULL)
        signed_by_ca.by = &rig->authority;
    struct cert cert = cert_make(&signed_by_ca);
    cert_write(&cert, path, true);
    cert_free(&cert);
}

/* A server that is a.example and 127.0.0.1, a client whose certificate is anna's, and a CA. */
static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);

    *state = rig;
    folder_make(rig->folder, sizeof rig->folder);
    snprintf(rig->ca, sizeof rig->ca, "%s/ca.pem", rig->folder);
    snprintf(rig->server, sizeof rig->server, "%s/server.pem", rig->folder);
    snprintf(rig->client, sizeof rig->client, "%s/client.pem", rig->folder);
    snprintf(rig->other, sizeof rig->other, "%s/other.pem", rig->folder);
    rig->authority = cert_make(&(struct cert_wanted){.common_name = "CA", .days = 9, .ca = true});
    cert_write(&rig->authority, rig->ca, false);
    write_cert(rig, rig->server,
               &(struct cert_wanted){.names = "DNS:a.example,IP:127.0.0.1", .days = 9});
    write_cert(rig, rig->client,
               &(struct cert_wanted){.common_name = "anna", .names = "URI:user:anna", .days = 9});
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;

    tls_context_free(rig->at_server);
    tls_context_free(rig->at_client);
    cert_free(&rig->authority);
    folder_remove(rig->folder);
    free(rig);
    return 0;
}

#define RIG_TEST(name) TEST_WITH(set_up, tear_down, struct rig *rig, name)

static void make_contexts(struct rig *rig, enum tls_clients clients, const char *client)
{
    char why[TLS_WHY_MAX] = "";

    tls_context_free(rig->at_server);
    tls_context_free(rig->at_client);
    rig->at_server =
        tls_server(&(struct tls_files){.cert = rig->server, .ca = rig->ca}, clients, why);
    rig->at_client = tls_client(&(struct tls_files){.cert = client, .ca = rig->ca}, why);
    assert_string_equal(why, "");
    assert_non_null(rig->at_server);
    assert_non_null(rig->at_client);
}

static struct pair pair_open(struct rig *rig, const char *name)
{
    return (struct pair){.server = tls_open(rig->at_server, NULL),
                         .client = tls_open(rig->at_client, name)};
}

static void pair_free(struct pair *pair)
{
    tls_free(pair->server);
    tls_free(pair->client);
    buf_free(&pair->to_server);
    buf_free(&pair->to_client);
    buf_free(&pair->server_has);
    buf_free(&pair->client_has);
}

/* Deliver what is on its way, `piece` bytes at a time, until both are silent. */
static void pump(struct pair *pair, size_t piece)
{
    tls_receive(pair->client, (struct bytes){0}, &pair->client_has, &pair->to_server);
    while (pair->to_server.len + pair->to_client.len > 0) {
        struct buf *from = pair->to_server.len > 0 ? &pair->to_server : &pair->to_client;
        struct bytes now = {from->data, from->len < piece ? from->len : piece};
        if (from == &pair->to_server)
            tls_receive(pair->server, now, &pair->server_has, &pair->to_client);
        else
            tls_receive(pair->client, now, &pair->client_has, &pair->to_server);
        buf_consume(from, now.len);
    }
}

static void assert_both(const struct pair *pair, enum tls_state state)
{
    assert_string_equal(tls_why(pair->server), "");
    assert_string_equal(tls_why(pair->client), "");
    assert_int_equal(tls_state(pair->server), state);
    assert_int_equal(tls_state(pair->client), state);
}

static void say(struct tls *from, struct buf *wire, const char *text)
{
    tls_send(from, bytes_of(text), wire);
}

static void assert_has(const struct buf *has, const char *text)
{
    assert_true(bytes_equal(buf_bytes(has), bytes_of(text)));
}

RIG_TEST(both_ends_understand_each_other_however_the_bytes_arrive)
{
    static const size_t pieces[] = {1, 2, 7, 100000};

    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct pair pair = pair_open(rig, "a.example");
        pump(&pair, pieces[i]);
        assert_both(&pair, TLS_OPEN);
        assert_string_equal(tls_version(pair.client), "TLSv1.3");
        say(pair.client, &pair.to_server, "PING");
        say(pair.server, &pair.to_client, "PONG");
        pump(&pair, pieces[i]);
        assert_has(&pair.server_has, "PING");
        assert_has(&pair.client_has, "PONG");
        tls_end(pair.client, &pair.to_server);
        tls_end(pair.server, &pair.to_client);
        pump(&pair, pieces[i]);
        assert_both(&pair, TLS_ENDED);
        pair_free(&pair);
    }
}

RIG_TEST(an_end_that_has_heard_the_last_byte_may_still_send)
{
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    struct pair pair = pair_open(rig, "a.example");
    pump(&pair, 1000);
    say(pair.client, &pair.to_server, "last words");
    tls_end(pair.client, &pair.to_server);
    pump(&pair, 1000);
    assert_has(&pair.server_has, "last words");
    assert_int_equal(tls_state(pair.server), TLS_ENDED);
    say(pair.server, &pair.to_client, "heard");
    pump(&pair, 1000);
    assert_has(&pair.client_has, "heard");
    pair_free(&pair);
}

RIG_TEST(many_records_pass_in_one_call)
{
    enum { SIZE = 1000000 };
    char *sent = malloc(SIZE);

    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    struct pair pair = pair_open(rig, "127.0.0.1");
    pump(&pair, 1000);
    for (size_t i = 0; i < SIZE; i++)
        sent[i] = (char)(i * 31 >> 3);
    tls_send(pair.server, (struct bytes){sent, SIZE}, &pair.to_client);
    pump(&pair, 65536);
    assert_true(bytes_equal(buf_bytes(&pair.client_has), (struct bytes){sent, SIZE}));
    free(sent);
    pair_free(&pair);
}

/* Who fails, and a part of what it says. */
static void assert_refused(struct rig *rig, const char *name, bool by_server, const char *why)
{
    struct pair pair = pair_open(rig, name);

    pump(&pair, 1000);
    struct tls *refuser = by_server ? pair.server : pair.client;
    assert_int_equal(tls_state(refuser), TLS_FAILED);
    if (strstr(tls_why(refuser), why) == NULL)
        fail_msg("\"%s\" is not in: %s", why, tls_why(refuser));
    /* The other end is told, by an alert. */
    assert_int_equal(tls_state(by_server ? pair.client : pair.server), TLS_FAILED);
    pair_free(&pair);
}

RIG_TEST(a_client_refuses_a_server_that_is_not_the_one)
{
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    assert_refused(rig, "b.example", false, "hostname mismatch");
    assert_refused(rig, "127.0.0.2", false, "IP address mismatch");
    write_cert(rig, rig->server, &(struct cert_wanted){.names = "DNS:a.example", .days = -1});
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    assert_refused(rig, "a.example", false, "certificate has expired");
    struct cert stranger =
        cert_make(&(struct cert_wanted){.common_name = "X", .days = 9, .ca = true});
    write_cert(rig, rig->server,
               &(struct cert_wanted){.names = "DNS:a.example", .days = 9, .by = &stranger});
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    assert_refused(rig, "a.example", false, "unable to get local issuer certificate");
    cert_free(&stranger);
}

static void assert_ends_in(const struct rig *rig, double days)
{
    double left_s = difftime((time_t)tls_context_ends_s(rig->at_server), time(NULL));

    assert_true(left_s > (days - 0.5) * 86400 && left_s < (days + 0.5) * 86400);
}

RIG_TEST(the_first_end_of_the_certificates_that_are_shown_is_told)
{
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    assert_ends_in(rig, 9);
    assert_int_equal(tls_context_ends_s(rig->at_client), 0);
    struct cert behind =
        cert_make(&(struct cert_wanted){.common_name = "X", .days = 2, .ca = true});
    FILE *file = fopen(rig->server, "a");
    assert_int_equal(PEM_write_X509(file, behind.x509), 1);
    fclose(file);
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    assert_ends_in(rig, 2);
    cert_free(&behind);
}

RIG_TEST(a_server_asks_for_certificates_as_it_was_told)
{
    char name[64];

    make_contexts(rig, TLS_CLIENTS_REQUIRED, NULL);
    assert_refused(rig, "a.example", true, "peer did not return a certificate");
    struct cert stranger =
        cert_make(&(struct cert_wanted){.common_name = "X", .days = 9, .ca = true});
    write_cert(rig, rig->other,
               &(struct cert_wanted){.common_name = "anna", .days = 9, .by = &stranger});
    cert_free(&stranger);
    make_contexts(rig, TLS_CLIENTS_OPTIONAL, rig->other);
    assert_refused(rig, "a.example", true, "unable to get local issuer certificate");

    for (int asks = TLS_CLIENTS_NO; asks <= TLS_CLIENTS_REQUIRED; asks++) {
        make_contexts(rig, (enum tls_clients)asks, rig->client);
        struct pair pair = pair_open(rig, "a.example");
        pump(&pair, 1000);
        assert_both(&pair, TLS_OPEN);
        assert_int_equal(tls_peer_common_name(pair.server, name, sizeof name),
                         asks != TLS_CLIENTS_NO);
        assert_int_equal(tls_peer_uri(pair.server, name, sizeof name), asks != TLS_CLIENTS_NO);
        pair_free(&pair);
    }
    assert_string_equal(name, "user:anna");
    make_contexts(rig, TLS_CLIENTS_OPTIONAL, NULL);
    struct pair pair = pair_open(rig, "a.example");
    pump(&pair, 1000);
    assert_both(&pair, TLS_OPEN);
    assert_false(tls_peer_common_name(pair.server, name, sizeof name));
    pair_free(&pair);
}

RIG_TEST(a_name_that_could_mean_two_is_none)
{
    char name[64];

    write_cert(rig, rig->client,
               &(struct cert_wanted){
                   .common_name = "anna", .names = "URI:user:anna,URI:user:root", .days = 9});
    make_contexts(rig, TLS_CLIENTS_REQUIRED, rig->client);
    struct pair pair = pair_open(rig, "a.example");
    pump(&pair, 1000);
    assert_false(tls_peer_uri(pair.server, name, sizeof name));
    assert_true(tls_peer_common_name(pair.server, name, sizeof name));
    assert_string_equal(name, "anna");
    assert_true(tls_peer_common_name(pair.server, name, 5));
    assert_false(tls_peer_common_name(pair.server, name, 4));
    pair_free(&pair);
}

/* Whether a second connection needs no whole handshake. */
static bool resumes(struct rig *rig, const char *first, const char *second)
{
    struct pair pair = pair_open(rig, first);
    pump(&pair, 1000);
    assert_both(&pair, TLS_OPEN);
    pair_free(&pair);
    pair = pair_open(rig, second);
    pump(&pair, 1000);
    assert_both(&pair, TLS_OPEN);
    bool resumed = tls_was_resumed(pair.server);
    assert_int_equal(tls_was_resumed(pair.client), resumed);
    pair_free(&pair);
    return resumed;
}

RIG_TEST(a_session_goes_on_with_the_same_server_only)
{
    make_contexts(rig, TLS_CLIENTS_REQUIRED, rig->client);
    assert_true(resumes(rig, "a.example", "a.example"));
    assert_false(resumes(rig, "a.example", "127.0.0.1"));
    struct tls_context *same_client = rig->at_client;
    rig->at_client = NULL;
    make_contexts(rig, TLS_CLIENTS_REQUIRED, rig->client); /* a server with new certificates */
    tls_context_free(rig->at_client);
    rig->at_client = same_client;
    struct pair pair = pair_open(rig, "127.0.0.1");
    pump(&pair, 1000);
    assert_both(&pair, TLS_OPEN);
    assert_false(tls_was_resumed(pair.server));
    pair_free(&pair);
}

RIG_TEST(a_connection_outlives_its_context)
{
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    struct pair pair = pair_open(rig, "a.example");
    tls_context_free(rig->at_server);
    tls_context_free(rig->at_client);
    rig->at_server = rig->at_client = NULL;
    pump(&pair, 1000);
    assert_both(&pair, TLS_OPEN);
    pair_free(&pair);
}

RIG_TEST(bytes_that_are_not_tls_end_it)
{
    make_contexts(rig, TLS_CLIENTS_NO, NULL);
    struct pair pair = pair_open(rig, "a.example");
    buf_append_text(&pair.to_server, "*1\r\n$4\r\nPING\r\n");
    tls_receive(pair.server, buf_bytes(&pair.to_server), &pair.server_has, &pair.to_client);
    assert_int_equal(tls_state(pair.server), TLS_FAILED);
    assert_int_equal(pair.server_has.len, 0);
    pair_free(&pair);

    pair = pair_open(rig, "a.example");
    pump(&pair, 1000);
    say(pair.client, &pair.to_server, "PING");
    pair.to_server.data[pair.to_server.len - 1] ^= 1;
    pump(&pair, 1000);
    assert_int_equal(tls_state(pair.server), TLS_FAILED);
    assert_int_equal(pair.server_has.len, 0);
    assert_int_equal(tls_state(pair.client), TLS_FAILED); /* by the server's alert */
    pair_free(&pair);
}

RIG_TEST(files_that_cannot_be_used_are_named)
{
    char missing[96], text[96];

    snprintf(missing, sizeof missing, "%s/missing.pem", rig->folder);
    snprintf(text, sizeof text, "%s/text.pem", rig->folder);
    FILE *file = fopen(text, "w");
    fputs("no certificate\n", file);
    fclose(file);
    file = fopen(rig->other, "w");
    check(PEM_write_PKCS8PrivateKey(file, rig->authority.key, EVP_aes_128_cbc(), "secret", 6, NULL,
                                    NULL) == 1);
    fclose(file);
    const struct {
        struct tls_files files;
        const char *why[2];
    } rows[] = {
        {{0}, {"TLS needs a certificate", ""}},
        {{.cert = missing}, {"certificate", "missing.pem cannot be used: No such file"}},
        {{.cert = text}, {"certificate", "text.pem cannot be used: there is no certificate in it"}},
        {{.cert = rig->ca}, {"key", "ca.pem cannot be used: there is no private key"}},
        {{.cert = rig->server, .key = missing}, {"key", "missing.pem cannot be used: No such"}},
        {{.cert = rig->server, .key = rig->client}, {"key", "it belongs to another certificate"}},
        {{.cert = rig->server, .key = rig->other}, {"key", "other.pem cannot be used: it is enc"}},
        {{.cert = rig->server}, {"clients' certificates", "needs a CA file"}},
        {{.cert = rig->server, .ca = missing}, {"CA file", "missing.pem cannot be used: No such"}},
        {{.cert = rig->server, .ca = text}, {"CA file", "text.pem cannot be used"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char why[TLS_WHY_MAX] = "";
        assert_null(tls_server(&rows[i].files, TLS_CLIENTS_REQUIRED, why));
        for (int part = 0; part < 2; part++)
            if (strstr(why, rows[i].why[part]) == NULL)
                fail_msg("\"%s\" is not in: %s", rows[i].why[part], why);
    }
}
