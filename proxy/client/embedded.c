/* SPDX-License-Identifier: Apache-2.0 */
/* An engine in this process: a thread with the engine on its loop, and pipes in memory to sessions.
 *
 *   caller                           │ the engine's thread
 *   send: bytes into `up`, wake ─────┼─▶ on_wakeup: opens the session, session_input
 *   receive: waits for `down` ◀──────┼── on_changed: session_take_output
 *   close: wake ─────────────────────┼─▶ on_wakeup: session_close, frees the pipe
 *
 * One lock guards what both sides see; the engine works without it. A store whose commit has an
 * unknown outcome ends all pipes, and the engine with them: what is open stays unanswered, and its
 * memory is given up, since nobody may say any more what has become of it. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/base/thread.h"
#include "proxy/client/thread.h"
#include "proxy/client/transport.h"
#include "proxy/host/host.h"

/* As the daemon's defaults; each session is a thread of this process at work, so nothing limits
 * them here. */
enum {
    WAITERS_MAX = 100000,
    SQL_LIMIT_MS = 1000,
    RECEIPTS_KEEP_MS = 24 * 3600 * 1000,
};
#define FORGET_MS (30LL * 24 * 3600 * 1000)

enum stage { OPENING, FAILED, RUNNING, STOPPING };

struct embedded {
    pthread_t thread;
    const struct target *target;  /* while opening */
    char why[STORE_OPEN_WHY_MAX]; /* FAILED */

    /* The thread's. */
    uv_loop_t loop;
    uv_async_t wakeup;
    struct host *host;
    struct buf out;       /* on its way from a session to a pipe */
    bool draining, ended; /* the engine takes nothing more; the host is being closed */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t opened;
    enum stage stage;
    bool lost;
    struct list pipes;   /* all of them */
    struct list changed; /* those that the engine has to serve */
};

struct pipe {
    struct transport base;
    struct embedded *embedded;
    struct session *session; /* the thread's; NULL: not open yet, or ended */
    struct list link;        /* in embedded->pipes */

    /* Under the lock. */
    struct list changed; /* in embedded->changed */
    struct buf up, down;
    bool ended, closing;
    pthread_cond_t arrived;
    int arrived_fd; /* the same for poll; -1: nobody has waited by poll yet */
};

/* The caller's side. */

static struct pipe *of(struct transport *transport)
{
    return (struct pipe *)(void *)transport;
}

/* The lock is held. */
static void notify_engine(struct pipe *pipe)
{
    bool first = list_empty(&pipe->embedded->changed);

    if (list_empty(&pipe->changed))
        list_append(&pipe->embedded->changed, &pipe->changed);
    if (first)
        uv_async_send(&pipe->embedded->wakeup);
}

static enum io_result broken(struct pipe *pipe)
{
    snprintf(pipe->base.why, sizeof pipe->base.why, "%s",
             pipe->embedded->lost ? "the store is lost: a commit has an unknown outcome"
                                  : "the engine ended the session");
    return IO_BROKEN;
}

static enum io_result pipe_send(struct transport *transport, struct bytes data, int64_t deadline_ms,
                                size_t *sent)
{
    struct pipe *pipe = of(transport);
    enum io_result result = IO_DONE;

    (void)deadline_ms; /* nothing is waited for */
    pthread_mutex_lock(&pipe->embedded->lock);
    if (pipe->ended || pipe->embedded->lost) {
        result = broken(pipe);
    } else {
        buf_append_bytes(&pipe->up, data);
        *sent += data.len;
        notify_engine(pipe);
    }
    pthread_mutex_unlock(&pipe->embedded->lock);
    return result;
}

/* Whether a wait to receive is over. The lock is held. */
static bool has_arrived(const struct pipe *pipe)
{
    return pipe->down.len > 0 || pipe->ended || pipe->embedded->lost;
}

/* Wait with the pipe's wake_fd: by poll, for which `arrived_fd` stands for the condition. The lock
 * is held, but not while it waits. */
static enum io_result poll_for_arrival(struct pipe *pipe, int64_t deadline_ms)
{
    struct embedded *embedded = pipe->embedded;
    eventfd_t ignored;

    if (pipe->arrived_fd < 0)
        pipe->arrived_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pipe->arrived_fd < 0) {
        snprintf(pipe->base.why, sizeof pipe->base.why, "no more file descriptors");
        return IO_BROKEN;
    }
    pthread_mutex_unlock(&embedded->lock);
    enum io_result result = wait_for(pipe->arrived_fd, POLLIN, pipe->base.wake_fd, deadline_ms);
    (void)eventfd_read(pipe->arrived_fd, &ignored);
    pthread_mutex_lock(&embedded->lock);
    return result;
}

static enum io_result pipe_receive(struct transport *transport, struct buf *in, int64_t deadline_ms)
{
    struct pipe *pipe = of(transport);
    struct embedded *embedded = pipe->embedded;
    enum io_result result = IO_DONE;

    pthread_mutex_lock(&embedded->lock);
    while (!has_arrived(pipe) && result == IO_DONE)
        if (transport->wake_fd >= 0)
            result = poll_for_arrival(pipe, deadline_ms);
        else if (!thread_wait(&pipe->arrived, &embedded->lock, deadline_ms))
            result = IO_LATE;
    if (pipe->down.len > 0) {
        buf_append_bytes(in, buf_bytes(&pipe->down));
        buf_clear(&pipe->down);
        result = IO_DONE;
    } else if (has_arrived(pipe)) {
        result = broken(pipe);
    }
    pthread_mutex_unlock(&embedded->lock);
    return result;
}

/* Nothing is expected: bytes that come all the same make it useless, too. */
static bool pipe_is_broken(struct transport *transport)
{
    struct pipe *pipe = of(transport);

    pthread_mutex_lock(&pipe->embedded->lock);
    bool is = has_arrived(pipe);
    pthread_mutex_unlock(&pipe->embedded->lock);
    return is;
}

static void pipe_close(struct transport *transport)
{
    struct pipe *pipe = of(transport);
    struct embedded *embedded = pipe->embedded;

    pthread_mutex_lock(&embedded->lock);
    pipe->closing = true;
    notify_engine(pipe);
    pthread_mutex_unlock(&embedded->lock);
}

static const struct transport_impl pipe_impl = {
    .send = pipe_send,
    .receive = pipe_receive,
    .is_broken = pipe_is_broken,
    .close = pipe_close,
};

struct transport *embedded_connect(struct embedded *embedded, enum stk_error *error)
{
    struct pipe *pipe = NULL;

    pthread_mutex_lock(&embedded->lock);
    if (embedded->lost) {
        *error = fail(STK_STORE, "the store is lost: a commit has an unknown outcome; close this "
                                 "client, and what was acknowledged is there for the next");
    } else {
        pipe = mem_zalloc(sizeof *pipe);
        pipe->base.impl = &pipe_impl;
        pipe->embedded = embedded;
        list_init(&pipe->changed);
        thread_cond_init(&pipe->arrived);
        pipe->arrived_fd = -1;
        list_append(&embedded->pipes, &pipe->link);
    }
    pthread_mutex_unlock(&embedded->lock);
    return pipe == NULL ? NULL : &pipe->base;
}

/* The engine's side. */

/* The pipe's caller may stop waiting. The lock is held. */
static void signal_arrival(struct pipe *pipe)
{
    pthread_cond_signal(&pipe->arrived);
    if (pipe->arrived_fd >= 0)
        (void)eventfd_write(pipe->arrived_fd, 1);
}

static void end_session(struct pipe *pipe)
{
    if (pipe->session != NULL)
        session_close(pipe->session);
    pipe->session = NULL;
}

/* The session has output, or has ended. */
static void on_changed(void *connection)
{
    struct pipe *pipe = connection;
    struct embedded *embedded = pipe->embedded;

    session_take_output(pipe->session, &embedded->out);
    session_set_unsent(pipe->session, 0);
    bool is_over = session_ended(pipe->session);
    if (is_over)
        end_session(pipe);
    pthread_mutex_lock(&embedded->lock);
    buf_append_bytes(&pipe->down, buf_bytes(&embedded->out));
    pipe->ended |= is_over;
    if (pipe->down.len > 0 || pipe->ended)
        signal_arrival(pipe);
    pthread_mutex_unlock(&embedded->lock);
    buf_clear(&embedded->out);
}

static void free_pipe(struct pipe *pipe)
{
    end_session(pipe);
    pthread_cond_destroy(&pipe->arrived);
    if (pipe->arrived_fd >= 0)
        close(pipe->arrived_fd);
    buf_free(&pipe->up);
    buf_free(&pipe->down);
    free(pipe);
}

/* Give the engine what the pipe's caller has sent. The lock is held, but not while the engine
 * works. */
static void serve_pipe(struct embedded *embedded, struct pipe *pipe)
{
    struct buf up = pipe->up, refusal = {0};

    if (pipe->closing) {
        list_remove(&pipe->link);
        pthread_mutex_unlock(&embedded->lock);
        free_pipe(pipe);
        pthread_mutex_lock(&embedded->lock);
        return;
    }
    pipe->up = (struct buf){0};
    bool is_over = pipe->ended || embedded->lost;
    pthread_mutex_unlock(&embedded->lock);
    if (pipe->session == NULL && !is_over) {
        pipe->session = session_open(host_engine(embedded->host), "embedded", true, pipe, &refusal);
        check(pipe->session != NULL);
    }
    if (pipe->session != NULL && !is_over)
        session_input(pipe->session, up.data, up.len);
    buf_free(&up);
    pthread_mutex_lock(&embedded->lock);
}

static void close_own_handle(void *context)
{
    struct embedded *embedded = context;
    uv_close((uv_handle_t *)&embedded->wakeup, NULL);
}

static void on_wakeup(uv_async_t *wakeup)
{
    struct embedded *embedded = wakeup->data;
    struct list *link;

    pthread_mutex_lock(&embedded->lock);
    while ((link = list_pop(&embedded->changed)) != NULL)
        serve_pipe(embedded, list_entry(link, struct pipe, changed));
    pthread_mutex_unlock(&embedded->lock);
}

/* Stopping: every pipe is closed; what has begun ends first, and a lost store has no end to wait
 * for. */
static void on_turned(void *context)
{
    struct embedded *embedded = context;

    pthread_mutex_lock(&embedded->lock);
    bool stops = embedded->stage == STOPPING && list_empty(&embedded->pipes);
    bool lost = embedded->lost;
    pthread_mutex_unlock(&embedded->lock);
    if (!stops || embedded->ended)
        return;
    if (!embedded->draining)
        engine_drain(host_engine(embedded->host));
    embedded->draining = true;
    if (!engine_idle(host_engine(embedded->host)) && !lost)
        return;
    embedded->ended = true;
    host_close(embedded->host, close_own_handle);
}

static void on_lost(void *context)
{
    struct embedded *embedded = context;

    pthread_mutex_lock(&embedded->lock);
    embedded->lost = true;
    for (struct list *at = embedded->pipes.next; at != &embedded->pipes; at = at->next)
        signal_arrival(list_entry(at, struct pipe, link));
    pthread_mutex_unlock(&embedded->lock);
}

static void on_shutdown(void *context)
{
    (void)context; /* SHUTDOWN is for daemons: the client that owns this one closes it */
}

static void set_stage(struct embedded *embedded, enum stage stage)
{
    pthread_mutex_lock(&embedded->lock);
    embedded->stage = stage;
    pthread_cond_signal(&embedded->opened);
    pthread_mutex_unlock(&embedded->lock);
}

static void on_ready(void *context)
{
    set_stage(context, RUNNING);
}

/* False: `why`, and what was opened is closing. */
static bool open_parts(struct embedded *embedded)
{
    const struct target *target = embedded->target;

    if (!host_open(embedded->host, target->path, target->lease, embedded->why,
                   sizeof embedded->why)) {
        host_close(embedded->host, close_own_handle);
        return false;
    }
    host_open_engine(
        embedded->host,
        (struct engine_options){
            .host = {.changed = on_changed, .shutdown = on_shutdown, .context = embedded},
            .sessions_max = SIZE_MAX,
            .limits = {.things = {[ACCOUNT_WAITERS] = WAITERS_MAX}},
            .sql_limit_ms = SQL_LIMIT_MS,
            .receipts_keep_ms = RECEIPTS_KEEP_MS,
            .forget_ms = FORGET_MS});
    host_start(embedded->host, on_ready);
    return true;
}

static void *embedded_main(void *context)
{
    struct embedded *embedded = context;
    bool opened = open_parts(embedded);

    check(uv_run(&embedded->loop, UV_RUN_DEFAULT) == 0);
    host_free(embedded->host);
    if (!opened)
        set_stage(embedded, FAILED);
    return NULL;
}

/* False: there are no descriptors left. */
static bool init_loop(struct embedded *embedded)
{
    const struct host_options options = {
        .loop = &embedded->loop, .turned = on_turned, .lost = on_lost, .context = embedded};

    if (uv_loop_init(&embedded->loop) != 0)
        return false;
    if (uv_async_init(&embedded->loop, &embedded->wakeup, on_wakeup) != 0) {
        uv_loop_close(&embedded->loop);
        return false;
    }
    embedded->wakeup.data = embedded;
    embedded->host = host_new(&options);
    if (embedded->host != NULL)
        return true;
    uv_close((uv_handle_t *)&embedded->wakeup, NULL);
    uv_run(&embedded->loop, UV_RUN_DEFAULT);
    uv_loop_close(&embedded->loop);
    return false;
}

static void free_all(struct embedded *embedded)
{
    check(uv_loop_close(&embedded->loop) == 0);
    pthread_cond_destroy(&embedded->opened);
    pthread_mutex_destroy(&embedded->lock);
    buf_free(&embedded->out);
    free(embedded);
}

struct embedded *embedded_open(const struct target *target, enum stk_error *error)
{
    struct embedded *embedded = mem_zalloc(sizeof *embedded);

    embedded->target = target;
    pthread_mutex_init(&embedded->lock, NULL);
    thread_cond_init(&embedded->opened);
    list_init(&embedded->pipes);
    list_init(&embedded->changed);
    if (!init_loop(embedded)) {
        pthread_cond_destroy(&embedded->opened);
        pthread_mutex_destroy(&embedded->lock);
        free(embedded);
        *error = fail(STK_STORE, "no more file descriptors for the embedded engine");
        return NULL;
    }
    if (!thread_start(&embedded->thread, "stockade", embedded_main, embedded)) {
        host_close(embedded->host, close_own_handle);
        uv_run(&embedded->loop, UV_RUN_DEFAULT);
        host_free(embedded->host);
        free_all(embedded);
        *error = fail(STK_STORE, "no more threads for the embedded engine");
        return NULL;
    }
    pthread_mutex_lock(&embedded->lock);
    while (embedded->stage == OPENING)
        pthread_cond_wait(&embedded->opened, &embedded->lock);
    bool opened = embedded->stage == RUNNING;
    pthread_mutex_unlock(&embedded->lock);
    if (opened)
        return embedded;
    pthread_join(embedded->thread, NULL);
    *error = fail(STK_STORE, "%s", embedded->why);
    free_all(embedded);
    return NULL;
}

void embedded_close(struct embedded *embedded)
{
    if (embedded == NULL)
        return;
    pthread_mutex_lock(&embedded->lock);
    embedded->stage = STOPPING;
    pthread_mutex_unlock(&embedded->lock);
    uv_async_send(&embedded->wakeup);
    pthread_join(embedded->thread, NULL);
    free_all(embedded);
}
