/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's own sockets: its TLS connections, and the page's HTTP, plain and by TLS, over a live
 * engine with the memory store. Each input has a server and an admin address of its own, and leaves
 * nothing behind.
 *
 * - A client by TLS gets what it is due, in order, and all of it where nobody spoils what is on its
 *   way; who does not speak TLS at a tls: address has nothing done and learns nothing.
 * - Answers of the page are HTTP, with the headers that keep other sites away, and JSON where they
 *   say so. Nobody learns of a lease or ends one who does not know the password, asks by another
 *   site's name, or has another site's page ask.
 *
 * An input's first line holds letters: h HTTP, t by TLS, p there is a password (sesame), u there
 * are users, of whom ann has it, and guest (guest) may not read the name; e the client says that
 * nothing more comes, c a conversation by RESP and TLS; without h and c it is bytes for a tls:
 * address, the page's with a. What comes behind that line is sent as it is; 0xff ends a piece. In a
 * conversation it is pairs of bytes: a step, and how much. */
#include <arpa/inet.h>
#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/open.h"
#include "proxy/server/address.h"
#include "proxy/server/admin.h"
#include "proxy/server/conn.h"
#include "proxy/server/server.h"
#include "tests/fuzz/fuzz.h"
#include "tests/twins/memory_store.h"
#include "tests/unit/certs.h"

#define PASSWORD "sesame"
#define HIDDEN   "hidden-name" /* the resource that is leased, under token 1 */
#define KEEPER   "hidden-owner"

enum { STEPS_MAX = 300, SAID_MAX = 200000, QUIET_TURNS = 2, WAIT_MS = 2000, ECHO_MAX = 300 };

static struct fuzz_file cert_file;
static struct tls_context *at_server, *at_client;

struct rig {
    uv_loop_t loop;
    uv_prepare_t turn;
    struct store *store;
    struct lease_provider *provider;
    struct engine *engine;
    struct server *server;
    struct admin *admin;
    struct session *keeper; /* without a socket */
    struct buf heard;       /* by it */
    bool has_password;
};

struct client {
    int fd;
    struct tls *tls; /* NULL: none */
    struct buf sent; /* as it is to go, behind TLS */
    struct buf plain;
    bool gone;   /* the daemon has closed it */
    bool failed; /* its TLS has */
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

static bool holds(struct bytes text, const char *part)
{
    return text.len > 0 && memmem(text.data, text.len, part, strlen(part)) != NULL;
}

/* The daemon. */

static void on_turn(uv_prepare_t *turn)
{
    struct rig *rig = turn->data;

    engine_read_clock(rig->engine);
    while (store_step(rig->store))
        store_collect(rig->store);
    engine_turn(rig->engine);
}

static struct rig *the_rig;

static void on_changed(void *connection)
{
    struct buf out = {0};

    if (connection != the_rig) {
        conn_on_change(connection);
        return;
    }
    session_take_output(the_rig->keeper, &out);
    buf_append_bytes(&the_rig->heard, buf_bytes(&out));
    buf_free(&out);
    session_set_unsent(the_rig->keeper, 0);
}

static void turn(struct rig *rig)
{
    for (int i = 0; i < QUIET_TURNS; i++)
        uv_run(&rig->loop, UV_RUN_NOWAIT);
}

/* Who holds the lease says this, and hears an answer that begins so. */
static bool keeper_hears(struct rig *rig, const char *line, const char *begin)
{
    buf_clear(&rig->heard);
    session_input(rig->keeper, line, strlen(line));
    for (int i = 0; i < 10 && rig->heard.len == 0; i++)
        turn(rig);
    return rig->heard.len >= strlen(begin) && memcmp(rig->heard.data, begin, strlen(begin)) == 0;
}

static struct acl *acl_of(struct bytes letters)
{
    static const struct bytes users = BYTES_LITERAL("user ann on >" PASSWORD " ~* +@all\n"
                                                    "user guest on >guest ~open* +@all\n");
    char why[ACL_WHY_SIZE];
    struct acl *acl = holds(letters, "u") ? acl_parse(users, commands, commands_count, why)
                                          : acl_without_file(holds(letters, "p") ? PASSWORD : NULL,
                                                             commands, commands_count);

    check(acl != NULL);
    return acl;
}

static struct rig *rig_new(struct bytes letters, bool admin_by_tls)
{
    struct rig *rig = the_rig = mem_zalloc(sizeof *rig);
    char why[256];
    struct buf none = {0};

    rig->has_password = holds(letters, "p") || holds(letters, "u");
    check(uv_loop_init(&rig->loop) == 0);
    rig->store = store_memory_new(
        &(struct store_options){.path = "", .queue_ops_max = 1000, .batch_ops_max = 100});
    rig->provider = lease_local_new(&clock_monotonic);
    rig->engine =
        engine_new(&(struct engine_options){.host = {.changed = on_changed},
                                            .acl = acl_of(letters),
                                            .store = rig->store,
                                            .provider = rig->provider,
                                            .clock = &clock_monotonic,
                                            .chance = &chance_system,
                                            .sessions_max = 10,
                                            .history_max = 100,
                                            .limits = {.things = {[ACCOUNT_WAITERS] = 10}},
                                            .address = ""});
    uv_prepare_init(&rig->loop, &rig->turn);
    rig->turn.data = rig;
    uv_prepare_start(&rig->turn, on_turn);
    rig->server = server_new(&rig->loop, NULL);
    server_set_tls(rig->server, tls_context_share(at_server), TLS_USER_CN);
    check(server_bind(rig->server, "tls:127.0.0.1:0", why, sizeof why) &&
          server_open(rig->server, rig->engine, why, sizeof why));
    rig->admin = admin_open(&rig->loop, rig->engine,
                            &(struct admin_options){
                                .address = admin_by_tls ? "tls:127.0.0.1:0" : "127.0.0.1:0",
                                .inherited = -1,
                                .service_uri = "local:",
                                .show_values = true,
                                .tls = admin_by_tls ? at_server : NULL,
                            },
                            why, sizeof why);
    check(rig->admin != NULL);
    rig->keeper = session_open(rig->engine, "127.0.0.1:1", true, rig, &none);
    check(rig->keeper != NULL);
    check(!rig->has_password ||
          keeper_hears(rig,
                       holds(letters, "u") ? "AUTH ann " PASSWORD "\r\n" : "AUTH " PASSWORD "\r\n",
                       "+OK"));
    check(keeper_hears(rig, "ACQUIRE " HIDDEN " 600000 OWNER " KEEPER "\r\n", "*2\r\n:1\r\n"));
    check(keeper_hears(rig, "ACQUIRE \"hidden-name\\\"\\\\\\x01\\xff</script>\" 600000\r\n", "*2"));
    check(keeper_hears(rig, "FENCED 7 SET " HIDDEN " v\r\n", "-UNKNOWN"));
    return rig;
}

static void on_closed(void *context)
{
    (void)context;
}

static void rig_free(struct rig *rig)
{
    session_close(rig->keeper);
    engine_drain(rig->engine);
    while (!engine_idle(rig->engine))
        turn(rig);
    admin_close(rig->admin);
    server_close(rig->server);
    uv_close((uv_handle_t *)&rig->turn, NULL);
    check(uv_run(&rig->loop, UV_RUN_DEFAULT) == 0);
    server_free(rig->server);
    engine_free(rig->engine);
    lease_provider_close(rig->provider, on_closed, NULL);
    store_close(rig->store);
    check(uv_loop_close(&rig->loop) == 0);
    buf_free(&rig->heard);
    free(rig);
}

/* The client. */

static struct client client_to(const char *address, bool by_tls)
{
    struct address parsed;
    struct sockaddr_storage resolved;
    struct linger hard = {.l_onoff = 1};
    int small = 4096;
    char why[128];
    struct client client = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};

    check(address_parse(address, &parsed, why, sizeof why) &&
          address_resolve(&parsed, &resolved, why, sizeof why) && client.fd >= 0);
    setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard); /* no TIME_WAIT */
    setsockopt(client.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    check(connect(client.fd, (struct sockaddr *)&resolved, sizeof(struct sockaddr_in)) == 0);
    if (!by_tls)
        return client;
    client.tls = tls_open(at_client, "a.example");
    tls_receive(client.tls, (struct bytes){"", 0}, &client.plain, &client.sent);
    return client;
}

static void client_free(struct client *client)
{
    close(client->fd);
    tls_free(client->tls);
    buf_free(&client->sent);
    buf_free(&client->plain);
}

/* Send up to so many bytes of what is to go. Return whether some went. */
static bool deliver(struct client *client, size_t max)
{
    size_t len = max < client->sent.len ? max : client->sent.len;
    ssize_t sent =
        len == 0 ? 0 : send(client->fd, client->sent.data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (sent > 0)
        buf_consume(&client->sent, (size_t)sent);
    else if (sent < 0 && errno != EAGAIN)
        client->gone = true;
    return sent > 0;
}

/* Take up to so many bytes of what has come. Return whether some had. */
static bool receive(struct client *client, size_t max)
{
    char data[16384];
    ssize_t got = client->gone
                      ? -1
                      : recv(client->fd, data, max < sizeof data ? max : sizeof data, MSG_DONTWAIT);

    if (got == 0 || (got < 0 && errno != EAGAIN))
        client->gone = true;
    if (got <= 0)
        return false;
    if (client->tls == NULL)
        buf_append(&client->plain, data, (size_t)got);
    else if (tls_receive(client->tls, (struct bytes){data, (size_t)got}, &client->plain,
                         &client->sent) == TLS_FAILED)
        client->failed = true;
    return true;
}

/* All goes and comes that does, until the client has so much, or nothing moves any more. */
static void settle(struct rig *rig, struct client *client, size_t wanted)
{
    int64_t end_ms = clock_now_ms(&clock_monotonic) + WAIT_MS;

    for (int quiet = 0; quiet < QUIET_TURNS;) {
        bool moved = deliver(client, SIZE_MAX);
        turn(rig);
        moved |= receive(client, SIZE_MAX);
        bool waits = client->plain.len < wanted && !client->gone && !client->failed &&
                     clock_now_ms(&clock_monotonic) < end_ms;
        if (waits && !moved)
            poll(&(struct pollfd){.fd = client->fd, .events = POLLIN}, 1, 1);
        quiet = moved || waits ? 0 : quiet + 1;
    }
}

/* The page. */

/* Is there a header of this name in the one request? Its value, trimmed. More than one: *odd. */
static bool header(struct bytes request, const char *name, struct bytes *value, bool *odd)
{
    bool found = false;

    while (request.len > 0) {
        struct bytes line = fuzz_cut(&request, '\n');
        if (line.len > 0 && line.data[line.len - 1] == '\r')
            line.len--;
        if (line.len == 0)
            break; /* the body */
        if (line.len <= strlen(name) || strncasecmp(line.data, name, strlen(name)) != 0)
            continue;
        *odd |= found;
        found = true;
        *value = (struct bytes){line.data + strlen(name), line.len - strlen(name)};
        while (value->len > 0 && strchr(" \t", value->data[0]) != NULL)
            *value = (struct bytes){value->data + 1, value->len - 1};
        while (value->len > 0 && strchr(" \t", value->data[value->len - 1]) != NULL)
            value->len--;
    }
    return found;
}

/* Is it one request, whose headers can be read in one way only? */
static bool is_simple(struct bytes request)
{
    const char *version = request.len == 0 ? NULL : memmem(request.data, request.len, "HTTP/1.", 7);
    const char *rest = version == NULL ? NULL : version + 7;

    if (version == NULL || memchr(request.data, '\0', request.len) != NULL ||
        memmem(rest, (size_t)(request.data + request.len - rest), "HTTP/1.", 7) != NULL ||
        memchr(request.data, '\n', (size_t)(version - request.data)) != NULL)
        return false;
    for (size_t i = 0; i + 1 < request.len; i++)
        if ((request.data[i] == '\r' && request.data[i + 1] != '\n') ||
            (request.data[i] == '\n' && strchr(" \t", request.data[i + 1]) != NULL))
            return false;
    return true;
}

/* "localhost", an address, with a port or not. */
static bool is_own_name(struct bytes host)
{
    char name[64] = "";
    unsigned char address[16];

    text_print(name, sizeof name, "%.*s", BYTES_CUT(host, sizeof name - 1));
    if (name[0] == '[')
        return strchr(name, ']') != NULL;
    name[strcspn(name, ":")] = '\0';
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1;
}

/* May who asks so be told of leases, or (`changes`) end them? Says yes where it does not know. */
static bool may(struct bytes request, bool by_tls, bool changes)
{
    struct bytes host = {"", 0}, origin = {"", 0}, site = {"", 0}, type = {"", 0}, none;
    bool odd = false;
    bool has_host = header(request, "host:", &host, &odd);
    bool has_origin = header(request, "origin:", &origin, &odd);
    bool has_site = header(request, "sec-fetch-site:", &site, &odd);
    bool has_type = header(request, "content-type:", &type, &odd);
    bool forwarded =
        header(request, "forwarded:", &none, &odd) || header(request, "x-forwarded-", &none, &odd);
    size_t scheme = by_tls ? 8 : 7;

    if (odd)
        return true;
    if (!has_host || !is_own_name(host))
        return false;
    if (has_origin && (origin.len != scheme + host.len ||
                       strncasecmp(origin.data, by_tls ? "https://" : "http://", scheme) != 0 ||
                       strncasecmp(origin.data + scheme, host.data, host.len) != 0))
        return false;
    if (has_site && !bytes_equal_nocase(site, "same-origin") &&
        (changes || !bytes_equal_nocase(site, "none")))
        return false;
    return !changes || (has_type && type.len >= 16 && !forwarded &&
                        strncasecmp(type.data, "application/json", 16) == 0);
}

/* Does it give the password anywhere, in Base64 with any name before it? */
static bool knows_password(struct bytes request)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t from = 0; from < request.len; from++) {
        char text[300] = "";
        unsigned bits = 0, count = 0;
        size_t len = 0;
        for (size_t i = from; i < request.len && len < sizeof text - 1; i++) {
            const char *digit = request.data[i] == '\0' ? NULL : strchr(digits, request.data[i]);
            if (digit == NULL)
                break;
            bits = bits << 6 | (unsigned)(digit - digits);
            count += 6;
            if (count >= 8) {
                count -= 8;
                text[len++] = (char)(bits >> count & 0xff);
            }
        }
        if (memmem(text, len, ":" PASSWORD, sizeof PASSWORD) != NULL)
            return true;
    }
    return false;
}

static void check_json(struct bytes body)
{
    json_tokener *tokener = json_tokener_new();

    check(tokener != NULL);
    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    json_object *json = json_tokener_parse_ex(tokener, body.data, (int)body.len);
    if (json_tokener_get_error(tokener) != json_tokener_success)
        fuzz_wrong("an answer is no JSON: %.*s", BYTES_CUT(body, 200));
    json_object_put(json);
    json_tokener_free(tokener);
}

/* All that came back, up to what is sent in chunks. libmicrohttpd's own refusals are its own. */
static void check_answers(struct bytes answers, bool has_bodies)
{
    while (answers.len > 0) {
        const char *end = memmem(answers.data, answers.len, "\r\n\r\n", 4);
        if (answers.len < 12 || memcmp(answers.data, "HTTP/1.", 7) != 0)
            fuzz_wrong("this is no HTTP: %.*s", BYTES_CUT(answers, 200));
        if (end == NULL)
            return; /* cut short */
        struct bytes head = {answers.data, (size_t)(end - answers.data) + 2}, value;
        long status = strtol(answers.data + 9, NULL, 10);
        int64_t len = 0;
        bool odd = false;
        answers = (struct bytes){end + 4, answers.len - head.len - 2};
        if (status < 200)
            continue;
        bool ours =
            status == 503 ||
            (status != 400 && status != 413 && status != 414 && status != 431 && status < 500) ||
            holds(head, "Content-Security-Policy: ");
        if (!ours)
            return; /* and the last: its connection ends */
        if (!holds(head, "Content-Security-Policy: ") ||
            !holds(head, "X-Content-Type-Options: nosniff") ||
            !holds(head, "Cache-Control: no-store"))
            fuzz_wrong("an answer has not its headers: %.*s", BYTES_CUT(head, 2000));
        if (!header(head, "content-length:", &value, &odd) || !bytes_to_int64(value, &len) ||
            !has_bodies || (size_t)len > answers.len)
            return;
        if (holds(head, "application/json"))
            check_json((struct bytes){answers.data, (size_t)len});
        answers = (struct bytes){answers.data + len, answers.len - (size_t)len};
    }
}

/* What came of a request, or several. */
static void check_page(struct rig *rig, struct bytes asked, struct bytes answers, bool by_tls)
{
    bool told = holds(answers, "hidden-"), simple = is_simple(asked);
    bool ended = !keeper_hears(rig, "FENCED 1 SET " HIDDEN " v\r\n", "+OK");

    if ((told || ended) && rig->has_password && !knows_password(asked))
        fuzz_wrong("%s without the password", told ? "told" : "revoked");
    if (told && simple && !may(asked, by_tls, false))
        fuzz_wrong("told who may not ask");
    if (ended && simple && !may(asked, by_tls, true))
        fuzz_wrong("revoked for who may not");
    if (ended && !holds(asked, "POST"))
        fuzz_wrong("revoked by what is no POST");
    check_answers(answers, !holds(asked, "HEAD"));
}

/* The bytes of the input in pieces; by TLS or as they are. */
static void send_pieces(struct rig *rig, struct client *client, struct bytes rest,
                        struct buf *asked)
{
    if (client->tls != NULL)
        settle(rig, client, 0);
    while (rest.len > 0 && !client->gone && !client->failed) {
        struct bytes piece = fuzz_cut(&rest, '\xff');
        buf_append_bytes(asked, piece);
        if (client->tls == NULL)
            buf_append_bytes(&client->sent, piece);
        else if (tls_state(client->tls) == TLS_OPEN)
            tls_send(client->tls, piece, &client->sent);
        settle(rig, client, 0);
    }
}

static void end_input(struct rig *rig, struct client *client)
{
    shutdown(client->fd, SHUT_WR);
    settle(rig, client, 0);
}

static void ask_page(struct rig *rig, struct bytes rest, bool by_tls, bool ends)
{
    struct client client = client_to(admin_address(rig->admin), by_tls);
    struct buf asked = {0};

    send_pieces(rig, &client, rest, &asked);
    if (ends)
        end_input(rig, &client);
    if (client.failed)
        fuzz_wrong("TLS fails that nobody spoils: %s", tls_why(client.tls));
    check_page(rig, buf_bytes(&asked), buf_bytes(&client.plain), by_tls);
    client_free(&client);
    buf_free(&asked);
}

/* TLS. */

static void send_noise(struct rig *rig, struct bytes rest, bool to_admin, bool ends)
{
    struct client client =
        client_to(to_admin ? admin_address(rig->admin) : server_address(rig->server, 0), false);
    struct buf asked = {0};

    send_pieces(rig, &client, rest, &asked);
    if (ends)
        end_input(rig, &client);
    if (client.plain.len > 0 && (client.plain.data[0] < 20 || client.plain.data[0] > 23) &&
        !holds(buf_bytes(&client.plain), to_admin ? "this address speaks TLS: ask by https://"
                                                  : "-ERR this address speaks TLS"))
        fuzz_wrong("an answer that is no record: %.*s", BYTES_CUT(client.plain, 100));
    if (holds(buf_bytes(&client.plain), "hidden-") ||
        !keeper_hears(rig, "FENCED 1 SET " HIDDEN " v\r\n", "+OK"))
        fuzz_wrong("who speaks no TLS was heard");
    client_free(&client);
    buf_free(&asked);
}

/* Say a command and note what is due for it. */
static void say(struct client *client, struct buf *due, size_t echo)
{
    struct buf words = {0};
    char text[ECHO_MAX * 100];

    if ((tls_state(client->tls) != TLS_OPEN && tls_state(client->tls) != TLS_ENDED) ||
        due->len > SAID_MAX)
        return;
    if (echo == 0) {
        buf_append_text(&words, "PING\r\n");
        buf_append_text(due, "+PONG\r\n");
    } else {
        for (size_t i = 0; i < echo; i++)
            text[i] = (char)(due->len + i);
        buf_printf(&words, "*2\r\n$4\r\nECHO\r\n$%zu\r\n", echo);
        buf_append(&words, text, echo);
        buf_append_text(&words, "\r\n");
        buf_printf(due, "$%zu\r\n", echo);
        buf_append(due, text, echo);
        buf_append_text(due, "\r\n");
    }
    tls_send(client->tls, buf_bytes(&words), &client->sent);
    buf_free(&words);
}

/* Somebody on the way does something. Return whether there was anything. */
static bool spoil(struct buf *wire, unsigned how, size_t at, unsigned by)
{
    struct buf twice = {0};

    if (wire->len == 0)
        return false;
    at %= wire->len;
    if (how == 0) {
        wire->data[at] = (char)((unsigned char)wire->data[at] ^ (by | 1));
    } else if (how == 1) {
        buf_consume(wire, at + 1);
    } else {
        buf_append(&twice, wire->data, at + 1);
        buf_append_bytes(&twice, buf_bytes(wire));
        buf_free(wire);
        *wire = twice;
    }
    return true;
}

static void converse(struct rig *rig, struct bytes rest, bool ends)
{
    struct client client = client_to(server_address(rig->server, 0), true);
    struct buf due = {0};
    bool spoilt = false, ended = false;

    for (int step = 0; step < STEPS_MAX && rest.len > 0 && !client.gone; step++) {
        unsigned what = fuzz_byte(&rest), amount = fuzz_byte(&rest);
        switch (what % 10) {
        case 0:
        case 1: deliver(&client, amount + 1); break;
        case 2: deliver(&client, SIZE_MAX); break;
        case 3:
            for (unsigned i = 0; i <= amount % 8 && !ended; i++)
                say(&client, &due, 0);
            break;
        case 4:
        case 5:
            if (!ended)
                say(&client, &due, what % 10 == 4 ? amount + 1U : amount * 100U + 1);
            break;
        case 6: receive(&client, (amount + 1U) * 16); break;
        case 7: settle(rig, &client, 0); break;
        case 8: spoilt |= spoil(&client.sent, what / 10 % 3, amount * 3U, fuzz_byte(&rest)); break;
        default:
            if (!ended)
                tls_end(client.tls, &client.sent);
            ended = true;
        }
        uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
    if (!client.gone && !client.failed)
        settle(rig, &client, spoilt ? 0 : due.len);
    if (ends && !client.gone)
        end_input(rig, &client);
    if (client.plain.len > due.len ||
        (client.plain.len > 0 && memcmp(client.plain.data, due.data, client.plain.len) != 0))
        fuzz_wrong("the daemon has answered what was not asked");
    if (!spoilt && client.failed)
        fuzz_wrong("TLS fails that nobody spoils: %s", tls_why(client.tls));
    if (!spoilt && client.plain.len < due.len)
        fuzz_wrong("%zu bytes came of %zu", client.plain.len, due.len);
    client_free(&client);
    buf_free(&due);
}

/* The client has gone, and so have what it had here. */
static void check_gone(struct rig *rig)
{
    int64_t end_ms = clock_now_ms(&clock_monotonic) + WAIT_MS;

    for (bool gone = false; !gone;) {
        struct buf health = {0};
        turn(rig);
        engine_health(rig->engine, &health);
        gone = holds(buf_bytes(&health), "\"connections\":1,");
        buf_free(&health);
        if (!gone && clock_now_ms(&clock_monotonic) > end_ms)
            fuzz_wrong("a connection stays whose client has gone");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = {(const char *)data, size};
    struct bytes letters = fuzz_cut(&rest, '\n');
    bool http = holds(letters, "h"), talk = holds(letters, "c"), by_tls = holds(letters, "t");
    bool ends = holds(letters, "e"), to_admin = holds(letters, "a");
    struct rig *rig = rig_new(http ? letters : (struct bytes){"", 0}, http ? by_tls : to_admin);

    if (http)
        ask_page(rig, rest, by_tls, ends);
    else if (talk)
        converse(rig, rest, ends);
    else
        send_noise(rig, rest, to_admin, ends);
    check_gone(rig);
    rig_free(rig);
    return 0;
}
