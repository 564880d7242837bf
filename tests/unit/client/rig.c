/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "tests/unit/client/rig.h"

#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "tests/unit/folder.h"

void rig_ok(enum stk_error error, const char *what, const char *file, int line)
{
    if (error != STK_OK) {
        print_error("%s: %s %s\n", what, stk_error_code(error), stk_message());
        _fail(file, line);
    }
}

int64_t rig_now_ms(void)
{
    return clock_now_ms(&clock_monotonic);
}

int64_t rig_until_ms(const stk_lease *lease)
{
    int64_t now_ms = rig_now_ms(); /* before the lease looks at its clock */
    return now_ms + stk_lease_left_ms(lease);
}

void rig_nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* between two looks */
}

void rig_pause(int64_t ms)
{
    for (int64_t until_ms = rig_now_ms() + ms; rig_now_ms() < until_ms;)
        rig_nap();
}

int rig_new(void **state)
{
    struct rig *rig = mem_zalloc(sizeof *rig);

    folder_make(rig->folder, sizeof rig->folder);
    snprintf(rig->uri, sizeof rig->uri, "sqlite:%s/x.db", rig->folder);
    rig->client = rig_client(rig);
    *state = rig;
    return 0;
}

stk_client *rig_client(const struct rig *rig)
{
    stk_client *client;
    ok(stk_client_open(rig->uri, RIG_TIMEOUT_MS, &client));
    return client;
}

int rig_free(void **state)
{
    struct rig *rig = *state;

    stk_client_close(rig->client);
    folder_remove(rig->folder);
    free(rig);
    return 0;
}

stk_lease *rig_acquire(stk_client *client, const char *resource, int64_t ttl_ms)
{
    stk_lease *lease;
    ok(stk_acquire(client, resource, &(stk_lease_options){.ttl_ms = ttl_ms}, &lease));
    return lease;
}

void rig_on_lost(stk_lease *lease, enum stk_error why, void *context)
{
    struct loss *loss = context;

    atomic_store(&loss->why, why);
    atomic_store(&loss->valid, stk_lease_valid(lease));
    if (loss->releases)
        (void)stk_release(lease);
    if (loss->frees)
        stk_lease_free(lease);
    atomic_fetch_add(&loss->calls, 1);
    await(!atomic_load(&loss->hold));
}

stk_lease *rig_acquire_watched(stk_client *client, int64_t ttl_ms, struct loss *loss)
{
    const stk_lease_options options = {.ttl_ms = ttl_ms, .lost = rig_on_lost, .context = loss};
    stk_lease *lease;

    ok(stk_acquire(client, "r", &options, &lease));
    return lease;
}

/* The server. */

enum { GREETING_WORDS = 4 }; /* of one without a password: HELLO 2 SETNAME name */

struct visitor {
    struct script *script;
    int fd;
    pthread_t thread;
};

static void note(char seen[256], const redisReply *request)
{
    size_t len = 0;

    for (size_t i = 0; i < request->elements; i++)
        len += (size_t)snprintf(seen + len, 256 - len, "%s%s", i > 0 ? " " : "",
                                request->element[i]->str);
}

static bool send_text(const struct visitor *visitor, const char *text)
{
    return send(visitor->fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

/* Return false where the connection is to be closed. */
static bool answer(struct visitor *visitor, const redisReply *request)
{
    struct script *script = visitor->script;
    const char *text = "";
    int64_t came_ms = rig_now_ms();

    if (request->elements == GREETING_WORDS && strcmp(request->element[0]->str, "HELLO") == 0)
        return send_text(visitor, "-NOAUTH whoever it is\r\n");
    pthread_mutex_lock(&script->lock);
    if (script->used < SCRIPT_MAX) {
        note(script->seen[script->used], request);
        script->came_ms[script->used] = came_ms;
    }
    if (script->used < script->count)
        text = script->answers[script->used];
    script->used++;
    pthread_mutex_unlock(&script->lock);
    if (text != NULL && *text == *LATE) {
        text++;
        await(rig_now_ms() >= came_ms + LATE_MS);
    }
    return text != NULL && send_text(visitor, text);
}

static void *visit(void *context)
{
    struct visitor *visitor = context;
    redisReader *reader = redisReaderCreate();
    char bytes[4096];
    bool open = true;
    ssize_t got;

    while (open && (got = recv(visitor->fd, bytes, sizeof bytes, 0)) > 0) {
        void *request = NULL;
        redisReaderFeed(reader, bytes, (size_t)got);
        while (open && redisReaderGetReply(reader, &request) == REDIS_OK && request != NULL) {
            open = answer(visitor, request);
            freeReplyObject(request);
        }
    }
    redisReaderFree(reader);
    close(visitor->fd);
    return NULL;
}

static void *serve(void *context)
{
    struct script *script = context;
    struct visitor visitors[16];
    size_t count = 0;
    int fd;

    while (count < 16 && (fd = accept(script->listener, NULL, NULL)) >= 0) {
        pthread_mutex_lock(&script->lock);
        script->connections++;
        pthread_mutex_unlock(&script->lock);
        visitors[count] = (struct visitor){.script = script, .fd = fd};
        check(pthread_create(&visitors[count].thread, NULL, visit, &visitors[count]) == 0);
        count++;
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(visitors[i].thread, NULL);
    return NULL;
}

int script_new(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    struct script *script = mem_zalloc(sizeof *script);

    pthread_mutex_init(&script->lock, NULL);
    script->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(bind(script->listener, (struct sockaddr *)&address, sizeof address) == 0);
    check(listen(script->listener, 16) == 0);
    check(getsockname(script->listener, (struct sockaddr *)&address, &len) == 0);
    script->port = ntohs(address.sin_port);
    snprintf(script->uri, sizeof script->uri, "stockade://127.0.0.1:%d", script->port);
    check(pthread_create(&script->thread, NULL, serve, script) == 0);
    *state = script;
    return 0;
}

stk_client *script_open_with(struct script *script, int64_t timeout_ms, const char *const *answers,
                             size_t count)
{
    check(count < SCRIPT_MAX);
    pthread_mutex_lock(&script->lock);
    script->answers[0] = "+PONG\r\n";
    memcpy(script->answers + 1, answers, count * sizeof *answers);
    script->count = 1 + count;
    pthread_mutex_unlock(&script->lock);
    ok(stk_client_open(script->uri, timeout_ms, &script->client));
    return script->client;
}

size_t script_used(struct script *script)
{
    pthread_mutex_lock(&script->lock);
    size_t used = script->used;
    pthread_mutex_unlock(&script->lock);
    return used;
}

size_t script_connections(struct script *script)
{
    pthread_mutex_lock(&script->lock);
    size_t connections = script->connections;
    pthread_mutex_unlock(&script->lock);
    return connections;
}

void script_request(struct script *script, size_t i, char out[256])
{
    pthread_mutex_lock(&script->lock);
    memcpy(out, script->seen[i], 256);
    pthread_mutex_unlock(&script->lock);
}

int64_t script_came_ms(struct script *script, size_t i)
{
    pthread_mutex_lock(&script->lock);
    int64_t came_ms = script->came_ms[i];
    pthread_mutex_unlock(&script->lock);
    return came_ms;
}

int script_free(void **state)
{
    struct script *script = *state;

    stk_client_close(script->client);
    shutdown(script->listener, SHUT_RDWR);
    pthread_join(script->thread, NULL);
    close(script->listener);
    pthread_mutex_destroy(&script->lock);
    free(script);
    return 0;
}
