/* SPDX-License-Identifier: Apache-2.0 */
/* One listening link per sentinel, whose greeting contains the question; so to ask again is to
 * connect again. What a sentinel has said is forgotten when its connection is lost. */
#include "fence/lease/redis/sentinels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "fence/base/text.h"
#include "fence/lease/redis/link.h"

struct sentinel {
    struct sentinels *all;
    struct redis_link *link;
    char name[128]; /* "127.0.0.1:26379" */
    enum { ASKED, NAMED, SILENT } state;
    struct uri_host master;      /* NAMED */
    uint64_t named;              /* NAMED: so many had been before */
    char why[SENTINELS_WHY_MAX]; /* SILENT */
    bool told;                   /* that it is silent */
};

struct sentinels {
    struct lease_uri uri;
    const struct log *log;
    void (*changed)(void *context);
    void *context;
    uint64_t named;
    int open; /* links */
    void (*closed)(void *context);
    void *closed_context;
    struct sentinel of[LEASE_URI_HOSTS_MAX];
};

static void name_master(struct sentinel *sentinel, const struct uri_host *master)
{
    sentinel->state = NAMED;
    sentinel->master = *master;
    sentinel->named = sentinel->all->named++;
}

static void on_named(void *context, const struct uri_host *master, const char *why)
{
    struct sentinel *sentinel = context;
    struct sentinels *all = sentinel->all;

    if (master != NULL) {
        name_master(sentinel, master);
        if (sentinel->told)
            log_info(all->log, "sentinel %s answers again", sentinel->name);
    } else {
        sentinel->state = SILENT;
        snprintf(sentinel->why, sizeof sentinel->why, "%s", why);
        if (!sentinel->told)
            log_warn(all->log, "sentinel %s is of no use: %s; trying again until it is",
                     sentinel->name, why);
    }
    sentinel->told = master == NULL;
    all->changed(all->context);
}

/* "NAME OLD-ADDRESS OLD-PORT NEW-ADDRESS NEW-PORT"; a sentinel may watch over other masters, too.
 */
static void on_message(void *context, struct bytes message)
{
    struct sentinel *sentinel = context;
    struct bytes words[5] = {{0}};
    struct uri_host master = {0};
    int64_t port;

    for (int i = 0; i < 5; i++) {
        words[i] = script_word(&message);
        if (words[i].len == 0)
            return;
    }
    if (message.len > 0 || !bytes_equal(words[0], bytes_of(sentinel->all->uri.name)) ||
        words[3].len >= sizeof master.name || !bytes_to_int64(words[4], &port) || port < 1 ||
        port > 65535)
        return;
    memcpy(master.name, words[3].data, words[3].len);
    master.port = (int)port;
    name_master(sentinel, &master);
    sentinel->all->changed(sentinel->all->context);
}

struct sentinels *sentinels_new(const struct lease_uri *uri,
                                const struct lease_surroundings *surroundings,
                                void (*changed)(void *context), void *context)
{
    struct sentinels *all = mem_zalloc(sizeof *all);
    char text[sizeof all->of->name + 8];

    all->uri = *uri;
    all->log = surroundings->log;
    all->changed = changed;
    all->context = context;
    for (int i = 0; i < uri->hosts_count; i++) {
        struct lease_uri member = lease_uri_member(uri, i);
        struct sentinel *sentinel = &all->of[i];
        sentinel->all = all;
        lease_uri_text(&member, text, sizeof text);
        snprintf(sentinel->name, sizeof sentinel->name, "%s", strchr(text, ' ') + 1);
        sentinel->link = redis_sentinel_new(&member, surroundings, on_named, on_message, sentinel);
    }
    return all;
}

static int count_votes(const struct sentinels *all, const struct uri_host *master)
{
    int votes = 0;

    for (int i = 0; i < all->uri.hosts_count; i++)
        votes += all->of[i].state == NAMED && uri_host_equal(&all->of[i].master, master);
    return votes;
}

static enum sentinels_answer say_why(const struct sentinels *all, char why[SENTINELS_WHY_MAX])
{
    for (int i = 0; i < all->uri.hosts_count; i++) {
        const struct sentinel *sentinel = &all->of[i];
        if (sentinel->state == SILENT) {
            text_print(why, SENTINELS_WHY_MAX, "no sentinel names the master; %s: %s",
                       sentinel->name, sentinel->why);
            return SENTINELS_SILENT;
        }
    }
    snprintf(why, SENTINELS_WHY_MAX, "no sentinel has answered in time");
    return SENTINELS_SILENT;
}

enum sentinels_answer sentinels_master(const struct sentinels *all, bool last,
                                       struct uri_host *master, char why[SENTINELS_WHY_MAX])
{
    const struct sentinel *best = NULL;
    int asked = 0, votes = 0;

    for (int i = 0; i < all->uri.hosts_count; i++) {
        const struct sentinel *sentinel = &all->of[i];
        asked += sentinel->state == ASKED;
        if (sentinel->state != NAMED)
            continue;
        int its = count_votes(all, &sentinel->master);
        if (best == NULL || its > votes || (its == votes && sentinel->named > best->named)) {
            best = sentinel;
            votes = its;
        }
    }
    if (best != NULL && (last || asked == 0 || votes > all->uri.hosts_count / 2)) {
        *master = best->master;
        return SENTINELS_AGREE;
    }
    return asked > 0 && !last ? SENTINELS_ASKED : say_why(all, why);
}

void sentinels_ask_again(struct sentinels *all)
{
    for (int i = 0; i < all->uri.hosts_count; i++) {
        if (all->of[i].state == NAMED) {
            all->of[i].state = ASKED;
            redis_link_again(all->of[i].link);
        }
    }
}

static void on_closed(void *context)
{
    struct sentinels *all = context;
    void (*closed)(void *context) = all->closed;
    void *closed_context = all->closed_context;

    if (--all->open > 0)
        return;
    free(all);
    closed(closed_context);
}

void sentinels_close(struct sentinels *all, void (*closed)(void *context), void *context)
{
    all->closed = closed;
    all->closed_context = context;
    all->open = all->uri.hosts_count;
    for (int i = 0; i < all->uri.hosts_count; i++)
        redis_link_close(all->of[i].link, on_closed, all);
}
