/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds whole conversations to a live engine over the memory store and lease service: what several
 * clients send, and what befalls them and the services.
 *
 * - Each request gets one reply, in order, and replies are valid, in the client's protocol.
 * - A value changes only where its resource's current, unretired token was presented.
 * - Tokens never fall. The engine drains, closes, and leaves nothing behind.
 *
 * An input is lines. The first one holds letters: a unfenced writes are allowed, p there is a
 * password (secret), u there are users, of whom default may do a part, w two waiters at most, s two
 * sessions at most, g old things are forgotten soon, k keys of the pattern l* are lock keys. Each
 * line then is
 *
 *   0 GET k             client 0 sends the line (there are four: 0 to 3)
 *   0:*1;$4;PING;       the bytes, a semicolon being CR LF
 *   +0 GET k            either of them, without waiting for what comes of it
 *   t500                time passes        c0, e0  a client goes, or sends no more
 *   d, u, l50           the lease service is down, is up, takes 50 ms
 *   x, m, y, n          it loses all, has a replica, fails over to that, loses its news
 *   f                   the store's next commit fails
 *   r                   the daemon is killed and started again */
#include <string.h>

#include "fence/base/check.h"
#include "tests/fuzz/dispatch.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/snapshot.h"
#include "tests/twins/world.h"

enum { CLIENTS = 4, LINES_MAX = 64, TURNS_MAX = 64 };

struct run {
    struct world *world;
    struct talk talks[CLIENTS];
    struct snapshot before;
    bool unfenced, has_password;
};

static bool has(struct bytes letters, char letter)
{
    return letters.len > 0 && memchr(letters.data, letter, letters.len) != NULL;
}

/* What the clients have received, and which of them are gone. */
static void receive(struct run *run)
{
    for (int i = 0; i < CLIENTS; i++) {
        struct memory_conn *client = &run->world->clients[i];
        talk_received(&run->talks[i], buf_bytes(&client->received));
        buf_clear(&client->received);
        if (client->session == NULL)
            talk_disconnected(&run->talks[i]);
    }
}

static void check_change(const struct run *run, const struct seen *now)
{
    const struct seen *was = snapshot_find(&run->before, now->name, now->name_len);
    int64_t from = was == NULL ? 0 : was->fence.token;
    bool presented = false;

    if (now->fence.token < from && now->fence.state != FENCE_NONE)
        fuzz_wrong("the token of %.*s fell", (int)now->name_len, now->name);
    if ((was == NULL ? 0 : was->value) == now->value)
        return;
    for (int i = 0; i < CLIENTS; i++)
        presented |=
            talk_presented(&run->talks[i], now->name, now->name_len, from, now->fence.token);
    bool live = (was != NULL && was->fence.state == FENCE_LIVE) || now->fence.token > from;
    if (!presented || !live)
        fuzz_wrong("%.*s was written without its token", (int)now->name_len, now->name);
}

/* After each thing that has settled: nothing may have changed that must not. */
static void look(struct run *run)
{
    struct snapshot now;

    snapshot_take(&now, &run->before, run->world->store);
    for (size_t i = 0; i < now.count && !run->unfenced; i++)
        if (now.count < SNAPSHOT_MAX)
            check_change(run, &now.all[i]);
    snapshot_free(&run->before);
    run->before = now;
    receive(run);
    for (int i = 0; i < CLIENTS; i++)
        talk_settled(&run->talks[i]);
}

/* Let time pass, from one thing that is due to the next. */
static void pass(struct run *run, int64_t ms)
{
    struct world *world = run->world;
    int64_t end_ms = world->now_ms + (ms < 0 ? 0 : ms > 100000 ? 100000 : ms);

    for (int turns = 0; turns < TURNS_MAX && world->now_ms < end_ms; turns++) {
        int64_t due[] = {engine_next_ms(world->engine), lease_service_next_ms(world->service)};
        int64_t next_ms = end_ms;
        for (int i = 0; i < 2; i++)
            if (due[i] > world->now_ms && due[i] < next_ms)
                next_ms = due[i];
        world->now_ms = next_ms;
        world_settle(world);
    }
    world->now_ms = end_ms;
    world_settle(world);
}

static void send_bytes(struct run *run, int number, struct bytes data)
{
    struct memory_conn *client = &run->world->clients[number];

    if (client->session == NULL) {
        receive(run); /* also where nothing has settled since the last connection went */
        world_connect(run->world, number);
        if (client->session == NULL) { /* too many: told so, and closed */
            talk_received(&(struct talk){.uncounted = true}, buf_bytes(&client->received));
            buf_clear(&client->received);
            return;
        }
        run->talks[number].uncounted = run->has_password;
    }
    talk_sent(&run->talks[number], data);
    session_input(client->session, data.data, data.len);
}

static void send_line(struct run *run, struct bytes line)
{
    int number = line.data[0] - '0';
    bool raw = line.len > 1 && line.data[1] == ':';
    size_t skipped = raw || (line.len > 1 && line.data[1] == ' ') ? 2 : 1;
    struct buf data = {0};

    for (size_t i = skipped; i < line.len; i++)
        if (raw && line.data[i] == ';')
            buf_append_text(&data, "\r\n");
        else
            buf_append(&data, &line.data[i], 1);
    if (!raw)
        buf_append_text(&data, "\r\n");
    if (data.len > 0)
        send_bytes(run, number, buf_bytes(&data));
    buf_free(&data);
}

static void leave(struct run *run, struct bytes line)
{
    unsigned number = line.len > 1 ? (unsigned)(line.data[1] - '0') : CLIENTS;

    if (number >= CLIENTS || run->world->clients[number].session == NULL)
        return;
    if (line.data[0] == 'e' && session_input_ended(run->world->clients[number].session)) {
        run->talks[number].silent = run->talks[number].uncounted = true;
        return;
    }
    world_disconnect(run->world, (int)number);
}

static void befall(struct run *run, struct bytes line)
{
    struct world *world = run->world;
    int64_t number = 0;

    (void)bytes_to_int64((struct bytes){line.data + 1, line.len - 1}, &number);
    switch (line.data[0]) {
    case 't': pass(run, number); break;
    case 'c':
    case 'e': leave(run, line); break;
    case 'd': lease_service_set_down(world->service, "fuzzed"); break;
    case 'u': lease_service_set_down(world->service, NULL); break;
    case 'l': lease_service_set_late(world->service, number % 1000); break;
    case 'x': lease_service_lose_all(world->service); break;
    case 'm': lease_service_mark(world->service); break;
    case 'y': lease_service_lose_tail(world->service); break;
    case 'n': lease_service_lose_news(world->service, true); break;
    case 'f': store_memory_fail(world->store, MEMORY_COMMIT_FAILS); break;
    case 'r':
        lease_service_set_late(world->service, 0);
        pass(run, 1000); /* what is under way must end before an engine can be freed */
        look(run);
        world_restart_engine(world, 0);
        break;
    default: break;
    }
}

/* The daemon stops: everyone is answered. */
static void end(struct run *run)
{
    struct world *world = run->world;

    lease_service_set_down(world->service, NULL);
    lease_service_set_late(world->service, 0);
    engine_drain(world->engine);
    pass(run, 60000);
    look(run);
    check(engine_idle(world->engine));
    for (int i = 0; i < CLIENTS; i++) {
        if (world->clients[i].session != NULL && !talk_all_answered(&run->talks[i]))
            fuzz_wrong("client %d waits for %zu replies in vain", i,
                       run->talks[i].count - run->talks[i].from);
        talk_end(&run->talks[i]);
    }
    snapshot_free(&run->before);
    world_free(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = {(const char *)data, size};
    struct bytes letters = fuzz_cut(&rest, '\n');
    struct run run = {.unfenced = has(letters, 'a'), .has_password = has(letters, 'p')};
    static const char *const lock_keys[] = {"l*"};
    static const struct bytes users = BYTES_LITERAL(
        "user default on nopass ~k* %R~a* %W~b &stockade:events &k* +@all -@admin -@revoke -incr\n"
        "user root on >secret ~* &* +@all\nuser gone off >secret +@all ~*\n");
    char why[ACL_WHY_SIZE];
    struct engine_options options = {
        .acl = has(letters, 'u')
                   ? acl_parse(users, commands, commands_count, why)
                   : acl_without_file(run.has_password ? "secret" : NULL, commands, commands_count),
        .unfenced_writes = run.unfenced,
        .receipts_keep_ms = 20000,
        .forget_ms = has(letters, 'g') ? 30000 : 0,
        .sessions_max = has(letters, 's') ? 2 : 0,
        .limits = {.things = {[ACCOUNT_WAITERS] = has(letters, 'w') ? 2 : 0}},
        .history_max = 4,
        .lock_keys = lock_keys,
        .lock_keys_count = has(letters, 'k')};

    run.world = world_new(&options);
    for (int lines = 0; rest.len > 0 && lines < LINES_MAX; lines++) {
        struct bytes line = fuzz_cut(&rest, '\n');
        bool settles = line.len == 0 || line.data[0] != '+';
        if (!settles)
            line = (struct bytes){line.data + 1, line.len - 1};
        if (line.len > 0 && line.data[0] >= '0' && line.data[0] < '0' + CLIENTS)
            send_line(&run, line);
        else if (line.len > 0)
            befall(&run, line);
        if (!settles)
            continue;
        world_settle(run.world);
        look(&run);
    }
    end(&run);
    return 0;
}
