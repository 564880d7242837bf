/* SPDX-License-Identifier: Apache-2.0 */
/* See service.h. A message that the manager does not take is lost: it decides by its own time
 * limits what to do with a daemon that is silent. */
#include "proxy/server/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "fence/base/mem.h"
#include "fence/base/plain.h"

#define ADMIN_NAME "admin" /* FileDescriptorName= of the socket unit */

void service_ready(void)
{
    (void)sd_notify(0, "READY=1");
}

void service_status(struct bytes wrong)
{
    (void)sd_notifyf(0, "STATUS=%.*s", (int)wrong.len, wrong.data != NULL ? wrong.data : "");
}

void service_reloading(void)
{
    struct timespec now;

    /* The manager tells this message from an older one by its time, of CLOCK_MONOTONIC. */
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    (void)sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
                     (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

void service_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}

static bool is_listener(int fd)
{
    return sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) > 0 &&
           (sd_is_socket(fd, AF_UNIX, 0, -1) > 0 || sd_is_socket(fd, AF_INET, 0, -1) > 0 ||
            sd_is_socket(fd, AF_INET6, 0, -1) > 0);
}

/* Take one socket. Return what is wrong with it; NULL: nothing. */
static const char *take_socket(struct service_sockets *sockets, int fd, const char *name)
{
    if (!is_listener(fd))
        return "is not a stream socket that listens";
    if (strcmp(name, ADMIN_NAME) != 0) {
        sockets->listen[sockets->listen_count++] = fd;
        return NULL;
    }
    if (sockets->admin >= 0)
        return "is a second one of that name";
    if (sd_is_socket(fd, AF_UNIX, 0, -1) > 0)
        return "is a unix socket, and HTTP needs TCP";
    sockets->admin = fd;
    return NULL;
}

bool service_take_sockets(struct service_sockets *sockets, char *why, size_t why_size)
{
    char **names = NULL;
    const char *wrong = NULL;
    int count = sd_listen_fds_with_names(1, &names);

    *sockets = (struct service_sockets){.admin = -1};
    if (count < 0) {
        snprintf(why, why_size, "LISTEN_FDS, LISTEN_FDNAMES: %s", plain_errno(-count));
        return false;
    }
    sockets->listen = mem_zalloc(((size_t)count + 1) * sizeof *sockets->listen);
    for (int i = 0; i < count && wrong == NULL; i++) {
        int fd = SD_LISTEN_FDS_START + i;
        wrong = take_socket(sockets, fd, names[i]);
        if (wrong != NULL)
            snprintf(why, why_size, "the inherited socket %d (%s) %s", fd, names[i], wrong);
    }
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return wrong == NULL;
}
