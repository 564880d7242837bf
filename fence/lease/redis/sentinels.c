/* SPDX-License-Identifier: Apache-2.0 */
/* One connection per sentinel, whose greeting contains the question; so to ask again is to connect
 * again. What a sentinel has said is forgotten when its connection is lost. */
#include "fence/lease/redis/sentinels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

struct sentinel {
    struct sentinels *all;
    struct redis_conn *conn;
    char name[URI_HOST_TEXT_MAX]; /* "127.0.0.1:26379" */
    enum { ASKED, NAMED, SILENT } state;
    struct uri_host master;  /* NAMED */
    uint64_t answer;         /* NAMED: a number that rises with each answer of any of them */
    char why[REDIS_WHY_MAX]; /* SILENT */
    bool logged_silent;
};

struct sentinels {
    struct lease_uri uri;
    const struct log *log;
    void (*on_change)(void *context);
    void *context;
    uint64_t answers;
    int open; /* connections */
    void (*closed)(void *context);
    void *closed_context;
    struct sentinel of[LEASE_URI_HOSTS_MAX];
};

static void name_master(struct sentinel *sentinel, const struct uri_host *master)
{
    sentinel->state = NAMED;
    sentinel->master = *master;
    sentinel->answer = sentinel->all->answers++;
}

static void on_master(void *context, const struct uri_host *master, const char *why)
{
    struct sentinel *sentinel = context;
    struct sentinels *all = sentinel->all;

    if (master != NULL) {
        name_master(sentinel, master);
        if (sentinel->logged_silent)
            log_info(all->log, "sentinel %s answers again", sentinel->name);
    } else {
        sentinel->state = SILENT;
        snprintf(sentinel->why, sizeof sentinel->why, "%s", why);
        if (!sentinel->logged_silent)
            log_warn(all->log, "sentinel %s is of no use: %s; trying again until it is",
                     sentinel->name, why);
    }
    sentinel->logged_silent = master == NULL;
    all->on_change(all->context);
}

/* "NAME OLD-ADDRESS OLD-PORT NEW-ADDRESS NEW-PORT", of any master that the sentinel watches over.
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
    sentinel->all->on_change(sentinel->all->context);
}

static const struct redis_events events = {.on_master = on_master, .on_message = on_message};

struct sentinels *sentinels_new(const struct lease_uri *uri,
                                const struct lease_surroundings *surroundings,
                                void (*on_change)(void *context), void *context)
{
    struct sentinels *all = mem_zalloc(sizeof *all);

    all->uri = *uri;
    all->log = surroundings->log;
    all->on_change = on_change;
    all->context = context;
    for (int i = 0; i < uri->hosts_count; i++) {
        struct lease_uri member = lease_uri_member(uri, i);
        struct sentinel *sentinel = &all->of[i];
        sentinel->all = all;
        uri_host_text(&uri->hosts[i], sentinel->name);
        sentinel->conn = redis_conn_new(REDIS_SENTINEL, &member, surroundings, "+switch-master",
                                        &events, sentinel);
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

static void say_why(const struct sentinels *all, char why[REDIS_WHY_MAX])
{
    for (int i = 0; i < all->uri.hosts_count; i++) {
        const struct sentinel *sentinel = &all->of[i];
        if (sentinel->state == SILENT) {
            text_print(why, REDIS_WHY_MAX, "no sentinel names the master; %s: %s", sentinel->name,
                       sentinel->why);
            return;
        }
    }
    snprintf(why, REDIS_WHY_MAX, "no sentinel has answered in time");
}

enum redis_located sentinels_locate(const struct sentinels *all, bool last, struct uri_host *master,
                                    char why[REDIS_WHY_MAX])
{
    const struct sentinel *best = NULL;
    int asked = 0, votes = 0;

    for (int i = 0; i < all->uri.hosts_count; i++) {
        const struct sentinel *sentinel = &all->of[i];
        asked += sentinel->state == ASKED;
        if (sentinel->state != NAMED)
            continue;
        int its = count_votes(all, &sentinel->master);
        if (best == NULL || its > votes || (its == votes && sentinel->answer > best->answer)) {
            best = sentinel;
            votes = its;
        }
    }
    if (best != NULL && (last || asked == 0 || votes > all->uri.hosts_count / 2)) {
        *master = best->master;
        return REDIS_LOCATED;
    }
    if (asked > 0 && !last)
        return REDIS_LOCATING;
    say_why(all, why);
    return REDIS_NOWHERE;
}

void sentinels_ask_again(struct sentinels *all)
{
    for (int i = 0; i < all->uri.hosts_count; i++)
        if (all->of[i].state == NAMED) {
            all->of[i].state = ASKED;
            redis_conn_restart(all->of[i].conn);
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
        redis_conn_close(all->of[i].conn, on_closed, all);
}
