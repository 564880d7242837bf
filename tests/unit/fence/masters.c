/* SPDX-License-Identifier: Apache-2.0 */
/* See masters.h. */
#include "tests/unit/fence/masters.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/unit/fence/rig.h"

static int64_t masters_now_ms(const struct clock *clock)
{
    return ((const struct masters *)clock->context)->now_ms;
}

static void fill(const struct chance *chance, void *bytes, size_t len)
{
    struct masters *masters = chance->context;

    for (size_t i = 0; i < len; i++) {
        masters->dice = masters->dice * 1103515245 + 12345;
        ((unsigned char *)bytes)[i] = (unsigned char)(masters->dice >> 16);
    }
}

static void set(struct redlock_timer *timer, int64_t delay_ms)
{
    struct client *client = list_entry(timer, struct client, timer);
    client->fires_ms = client->masters->now_ms + delay_ms;
}

static void close_timer(struct redlock_timer *timer, void (*closed)(void *context), void *context)
{
    list_entry(timer, struct client, timer)->fires_ms = -1;
    closed(context);
}

static void on_told(void *context, const struct lease_news *news)
{
    struct client *client = context;

    client->told++;
    client->news = *news;
}

static void client_init(struct client *client, struct masters *masters)
{
    struct lease_provider *providers[MASTERS_MAX];

    client->masters = masters;
    client->timer = (struct redlock_timer){set, close_timer, NULL};
    client->fires_ms = -1;
    for (int i = 0; i < masters->count; i++)
        providers[i] = lease_memory_new(masters->services[i]);
    client->provider = redlock_new(
        providers, masters->count,
        &(struct redlock_surroundings){&masters->clock, &masters->chance, &client->timer});
    lease_provider_watch(client->provider, on_told, client);
}

struct masters *masters_new(int count)
{
    struct masters *masters = mem_zalloc(sizeof *masters);

    masters->now_ms = 1000000;
    masters->clock = (struct clock){.now_ms = masters_now_ms, .context = masters};
    masters->chance = (struct chance){fill, masters};
    masters->count = count;
    for (int i = 0; i < count; i++)
        masters->services[i] = lease_service_new(&masters->clock);
    for (int i = 0; i < 2; i++)
        client_init(&masters->clients[i], masters);
    return masters;
}

void masters_free(struct masters *masters)
{
    for (int i = 0; i < 2; i++) {
        bool closed = masters->clients[i].provider == NULL;
        if (!closed)
            lease_provider_close(masters->clients[i].provider, rig_on_closed, &closed);
        check(closed);
    }
    for (int i = 0; i < masters->count; i++)
        lease_service_free(masters->services[i]);
    free(masters);
}

void masters_pass(struct masters *masters, int64_t ms)
{
    for (int64_t end_ms = masters->now_ms + ms; masters->now_ms < end_ms;) {
        masters->now_ms++;
        for (int i = 0; i < masters->count; i++)
            lease_service_step(masters->services[i]);
        for (int i = 0; i < 2; i++) {
            struct client *client = &masters->clients[i];
            if (client->fires_ms < 0 || client->fires_ms > masters->now_ms)
                continue;
            client->fires_ms = -1;
            redlock_on_timer(client->provider);
        }
    }
}
