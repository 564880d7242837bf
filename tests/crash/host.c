/* SPDX-License-Identifier: Apache-2.0 */
/* See host.h. */
#include "tests/crash/host.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/engine/engine.h"
#include "store/open.h"

struct client {
    struct host *host;
    struct session *session;
    struct buf received;
    int number;
};

struct host {
    struct host *next; /* of those that were lost */
    struct ramdisk *disk;
    struct clock clock;
    struct chance chance;
    uint64_t chance_state;
    struct store *store;
    struct lease_provider *provider;
    struct engine *engine;
    struct client clients[HOST_CLIENTS];
    host_reply reply;
    void *context;
};

struct machine *machine_new(void)
{
    struct machine *machine = mem_zalloc(sizeof *machine);

    machine->ramdisk = ramdisk_vfs_add();
    machine->faults = fault_vfs_add();
    return machine;
}

void machine_mount(struct machine *machine, struct ramdisk *disk)
{
    ramdisk_vfs_mount(machine->ramdisk, disk);
    fault_vfs_clear(machine->faults);
    sqlite3_randomness(0, NULL);
    check(sqlite3_shutdown() == SQLITE_OK && sqlite3_initialize() == SQLITE_OK);
    fault_vfs_register(machine->faults);
}

struct ramdisk *machine_disk(const struct machine *machine)
{
    return ramdisk_vfs_disk(machine->ramdisk);
}

/* What is left of lost ones is not forgotten, only never used again. */
static struct host *lost_hosts;

static int64_t now_ms(const struct clock *clock)
{
    return ((const struct host *)clock->context)->disk->now_ms;
}

static int64_t wall_us(const struct clock *clock)
{
    return now_ms(clock) * 1000;
}

/* The power goes, but the machine's clocks run on: then the model can tell the store's time. */
static void boot(const struct clock *clock, char id[CLOCK_BOOT_SIZE])
{
    (void)clock;
    snprintf(id, CLOCK_BOOT_SIZE, "only");
}

static void fill(const struct chance *chance, void *bytes, size_t len)
{
    struct host *host = chance->context;
    for (size_t i = 0; i < len; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)dice(&host->chance_state);
}

/* The length of the RESP2 value at the beginning; 0: there is more to come. */
static size_t reply_len(struct bytes text)
{
    const char *end = memchr(text.data, '\n', text.len);
    int64_t number = 0;

    if (end == NULL)
        return 0;
    size_t len = (size_t)(end - text.data) + 1;
    if (text.data[0] != '*' && text.data[0] != '$')
        return len;
    check(bytes_to_int64((struct bytes){text.data + 1, len - 3}, &number));
    if (text.data[0] == '$')
        return number < 0                             ? len
               : len + (size_t)number + 2 <= text.len ? len + (size_t)number + 2
                                                      : 0;
    for (; number > 0; number--) {
        size_t more =
            len < text.len ? reply_len((struct bytes){text.data + len, text.len - len}) : 0;
        if (more == 0)
            return 0;
        len += more;
    }
    return len;
}

static void changed(void *connection)
{
    struct client *client = connection;
    struct buf out = {0};
    size_t len;

    session_take_output(client->session, &out);
    buf_append_bytes(&client->received, buf_bytes(&out));
    session_set_unsent(client->session, 0);
    buf_free(&out);
    while (client->received.len > 0 && (len = reply_len(buf_bytes(&client->received))) > 0) {
        client->host->reply(client->host->context, client->number,
                            (struct bytes){client->received.data, len});
        buf_consume(&client->received, len);
    }
}

static void shutdown_asked(void *context)
{
    (void)context;
}

static void ignore(void *context)
{
    (void)context;
}

static void start(struct host *host)
{
    host->provider = lease_local_new(&host->clock);
    host->engine = engine_new(&(struct engine_options){
        .host = {.changed = changed, .shutdown = shutdown_asked, .context = host},
        .store = host->store,
        .provider = host->provider,
        .clock = &host->clock,
        .chance = &host->chance,
        .sql_limit_ms = 10000,
        .receipts_keep_ms = HOST_RECEIPTS_KEEP_MS,
        .forget_ms = HOST_FORGET_MS,
        .sessions_max = HOST_CLIENTS,
        .waiters_max = 100,
    });
    for (int i = 0; i < HOST_CLIENTS; i++) {
        struct client *client = &host->clients[i];
        client->host = host;
        client->number = i;
        client->session = session_open(host->engine, "test", true, client, &client->received);
    }
}

struct host *host_open(struct machine *machine, host_reply reply, void *context, char *why,
                       size_t why_size)
{
    struct host *host = mem_zalloc(sizeof *host);

    host->disk = machine_disk(machine);
    host->clock =
        (struct clock){.now_ms = now_ms, .wall_us = wall_us, .boot = boot, .context = host};
    host->chance = (struct chance){fill, host};
    host->reply = reply;
    host->context = context;
    host->store =
        store_sqlite_open(&(struct store_options){.path = HOST_PATH,
                                                  .queue_ops_max = 100,
                                                  .batch_ops_max = 20,
                                                  .checkpoint_pages = HOST_CHECKPOINT_PAGES,
                                                  .clock = &host->clock},
                          why, why_size);
    if (host->store == NULL) {
        free(host);
        return NULL;
    }
    start(host);
    return host;
}

bool host_lost(const struct host *host)
{
    return store_lost(host->store);
}

void host_close(struct host *host)
{
    if (!host_lost(host))
        host_settle(host);
    for (int i = 0; i < HOST_CLIENTS; i++) {
        session_close(host->clients[i].session);
        buf_free(&host->clients[i].received);
    }
    if (!host_lost(host))
        host_settle(host);
    if (host_lost(host)) {
        store_close(host->store);
        host->next = lost_hosts;
        lost_hosts = host;
        return;
    }
    engine_free(host->engine);
    lease_provider_close(host->provider, ignore, NULL);
    store_close(host->store);
    free(host);
}

void host_send(struct host *host, int client, struct bytes request)
{
    session_input(host->clients[client].session, request.data, request.len);
}

void host_settle(struct host *host)
{
    for (int turns = 0, quiet = 0; quiet < 2; turns++) {
        check(turns < 100000);
        bool moved = store_step(host->store);
        if (host_lost(host))
            return;
        store_collect(host->store);
        int64_t next_ms = engine_next_ms(host->engine);
        moved |= next_ms >= 0 && next_ms <= host->disk->now_ms;
        engine_turn(host->engine);
        quiet = moved ? 0 : quiet + 1;
    }
}

void host_pass(struct host *host, int64_t ms)
{
    host->disk->now_ms += ms;
    host_settle(host);
}

void host_checkpoint(void)
{
    sqlite3 *other = NULL;

    if (sqlite3_open(HOST_PATH, &other) == SQLITE_OK)
        (void)sqlite3_wal_checkpoint_v2(other, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL);
    sqlite3_close(other);
}
