/* SPDX-License-Identifier: Apache-2.0 */
/* From a host's name to its addresses. getaddrinfo has no time limit, so a name is looked up on a
 * thread of its own; who asked leaves when its time is over, and the last of the two tidies up. */
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "proxy/client/own.h"
#include "proxy/client/thread.h"
#include "proxy/client/transport.h"

struct lookup {
    char *host, *port;
    int done_fd; /* readable when `result` and `code` are there */
    struct addrinfo *result;
    int code;
    atomic_bool ready;
    atomic_int users; /* the thread, and who asked */
};

static int look_up(const char *host, const char *port, int flags, struct addrinfo **result)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    *result = NULL;
    return getaddrinfo(host, port, &hints, result);
}

static void leave(struct lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->users, 1) > 1)
        return;
    if (lookup->result != NULL)
        freeaddrinfo(lookup->result);
    close(lookup->done_fd);
    free(lookup->host);
    free(lookup->port);
    free(lookup);
}

static void *lookup_main(void *context)
{
    struct lookup *lookup = context;

    lookup->code = look_up(lookup->host, lookup->port, 0, &lookup->result);
    atomic_store(&lookup->ready, true);
    (void)eventfd_write(lookup->done_fd, 1);
    leave(lookup);
    return NULL;
}

/* NULL: there are no descriptors or threads left. */
static struct lookup *lookup_start(const char *host, const char *port)
{
    struct lookup *lookup = mem_zalloc(sizeof *lookup);
    pthread_t thread;

    lookup->host = mem_strdup(host);
    lookup->port = mem_strdup(port);
    atomic_init(&lookup->users, 2);
    lookup->done_fd = eventfd(0, EFD_CLOEXEC);
    if (lookup->done_fd >= 0 && thread_start(&thread, "stk-resolve", lookup_main, lookup)) {
        pthread_detach(thread);
        return lookup;
    }
    atomic_store(&lookup->users, 1);
    leave(lookup);
    return NULL;
}

struct addrinfo *resolve(const char *host, const char *port, int64_t deadline_ms, int wake_fd,
                         enum stk_error *error)
{
    struct addrinfo *result;

    *error = STK_OK;
    if (look_up(host, port, AI_NUMERICHOST, &result) == 0)
        return result;
    struct lookup *lookup = lookup_start(host, port);
    if (lookup == NULL) {
        *error = fail(STK_UNREACHABLE, "cannot look up %s: no more threads or descriptors", host);
        return NULL;
    }
    if (wait_for(lookup->done_fd, POLLIN, wake_fd, deadline_ms) != MOVED ||
        !atomic_load(&lookup->ready)) {
        *error = fail(STK_TIMEOUT, "looking up %s takes too long", host);
    } else if (lookup->code != 0) {
        *error = fail(STK_UNREACHABLE, "cannot look up %s: %s", host, gai_strerror(lookup->code));
    } else {
        result = lookup->result;
        lookup->result = NULL;
    }
    leave(lookup);
    return result;
}
