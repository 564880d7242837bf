/* SPDX-License-Identifier: Apache-2.0 */
/* A link whose host is the master that sentinels name: it asks them before each attempt, goes to
 * another master as soon as they name it, and has them look again when theirs is gone or is none.
 * uri.hosts[0] is where it is or was last, and has no port while it is on its way. */
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/lease/redis/link_impl.h"

void redis_link_follow(struct redis_link *link, struct sentinels *sentinels)
{
    check(link->state == LINK_WAITING);
    link->sentinels = sentinels;
    link->uri.hosts[0].port = 0;
    snprintf(link->name, sizeof link->name, "sentinel %.48s", link->uri.name);
}

static void go_to(struct redis_link *link, const struct uri_host *master)
{
    char text[sizeof link->name];

    if (strcmp(link->uri.hosts[0].name, master->name) != 0)
        link_stop_resolving(link); /* a lookup under way brings the old master's address */
    link->uri.hosts[0] = *master;
    struct lease_uri there = lease_uri_member(&link->uri, 0);
    lease_uri_text(&there, text, sizeof text);
    snprintf(link->name, sizeof link->name, "sentinel %.48s at%.64s", link->uri.name,
             strchr(text, ' '));
}

bool link_locate(struct redis_link *link, bool last)
{
    struct uri_host master;
    char why[SENTINELS_WHY_MAX];

    if (link->sentinels == NULL)
        return true;
    if (link->state != LINK_LOCATING)
        link_enter(link, LINK_LOCATING);
    switch (sentinels_master(link->sentinels, last, &master, why)) {
    case SENTINELS_AGREE: go_to(link, &master); return true;
    case SENTINELS_ASKED: break;
    case SENTINELS_SILENT:
        link->uri.hosts[0].port = 0;
        link_fail(link, why);
        break;
    }
    return false;
}

void link_lost_master(struct redis_link *link)
{
    if (link->sentinels != NULL && link->heard == NULL && link->uri.hosts[0].port != 0)
        sentinels_ask_again(link->sentinels);
}

void redis_link_look(struct redis_link *link)
{
    struct uri_host master;
    char why[SENTINELS_WHY_MAX];

    if (link->state == LINK_LOCATING) {
        link_reach(link, false);
    } else if (link->state != LINK_CLOSING &&
               sentinels_master(link->sentinels, false, &master, why) == SENTINELS_AGREE &&
               !uri_host_equal(&master, &link->uri.hosts[0])) {
        link->uri.hosts[0].port = 0;
        link->addresses_tried = link->addresses_count = 0;
        snprintf(why, sizeof why, "the sentinels name another master");
        link_fail(link, why);
        link_hurry(link);
    }
}

void redis_link_again(struct redis_link *link)
{
    if (link->state == LINK_READY)
        link_hurry(link);
}
