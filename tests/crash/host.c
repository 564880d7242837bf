/* SPDX-License-Identifier: Apache-2.0 */
/* See host.h. */
#include "tests/crash/host.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/twins/world.h"

struct host {
    struct ramdisk *disk;
    struct clock clock;
    struct store *store;
    struct world *world;
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

static void on_reply(struct memory_conn *conn, const redisReply *reply, struct bytes raw)
{
    struct host *host = conn->context;

    check(reply != NULL);
    host->reply(host->context, (int)(conn - host->world->clients), raw);
}

struct host *host_open(struct machine *machine, host_reply reply, void *context, char *why,
                       size_t why_size)
{
    struct host *host = mem_zalloc(sizeof *host);

    host->disk = machine_disk(machine);
    host->clock =
        (struct clock){.now_ms = now_ms, .wall_us = wall_us, .boot = boot, .context = host};
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
    host->world = world_new_local(&(struct engine_options){
        .store = host->store,
        .clock = &host->clock,
        .sql_limit_ms = 10000,
        .receipts_keep_ms = HOST_RECEIPTS_KEEP_MS,
        .forget_ms = HOST_FORGET_MS,
    });
    for (int i = 0; i < HOST_CLIENTS; i++) {
        host->world->clients[i].on_reply = on_reply;
        host->world->clients[i].context = host;
        world_connect(host->world, i);
    }
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
    world_free(host->world);
    store_close(host->store);
    free(host);
}

void host_send(struct host *host, int client, struct bytes request)
{
    session_input(host->world->clients[client].session, request.data, request.len);
}

void host_settle(struct host *host)
{
    world_settle(host->world);
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
