/* SPDX-License-Identifier: Apache-2.0 */
/* See run.h. */
#include "tests/crash/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum { SETUP = MODEL_SLOTS }; /* that client */

void run_setup_request(int step, struct buf *out)
{
    static const char *const texts[RUN_SETUP_STEPS] = {
        "SQL ~CREATE TABLE IF NOT EXISTS stock(sku TEXT PRIMARY KEY, n INTEGER) WITHOUT ROWID~",
        "SQL ~CREATE TABLE IF NOT EXISTS plain(x TEXT PRIMARY KEY)~",
        "SQL ~CREATE INDEX IF NOT EXISTS stock_by_number ON stock(n)~",
        "GUARD CREATE stock sku sku:",
    };
    model_line(out, "%s", texts[step]);
}

__attribute__((format(printf, 2, 3))) static void wrong(struct run *run, const char *format, ...)
{
    va_list args;

    if (run->why[0] != '\0')
        return;
    va_start(args, format);
    vsnprintf(run->why, sizeof run->why, format, args);
    va_end(args);
}

static bool begins(struct bytes text, const char *what)
{
    return text.len >= strlen(what) && memcmp(text.data, what, strlen(what)) == 0;
}

static size_t events(const struct run *run)
{
    return machine_disk(run->machine)->events_count;
}

static void setup_reply(struct run *run, struct bytes reply)
{
    int step = run->now.setup;

    run->now.setup_sent = false;
    if (reply.data[0] != '-')
        run->setup_answered_at[run->now.setup++] = events(run);
    else if (!run->may_fail || !begins(reply, "-STORE"))
        wrong(run, "setup step %d was answered %.*s", step, (int)reply.len, reply.data);
    else
        run->failed++;
}

/* The operation in front is over. */
static void answered(struct run *run, int slot, struct bytes reply)
{
    struct outlook *outlook = &run->now.slots[slot];
    struct op op = outlook->flight[0];
    struct model_slot after = outlook->slot;
    char expected[MODEL_REPLY_MAX], request[200];
    struct buf text = {0};

    outlook->flight_count--;
    memmove(&outlook->flight[0], &outlook->flight[1], sizeof op * RUN_FLIGHT_MAX - sizeof op);
    bool right = model_apply(&after, &op, &reply, 0, machine_disk(run->machine)->now_ms, expected);
    /* A grant that failed half-way leaves the lease taken for its time. */
    bool failed = begins(reply, "-STORE") || begins(reply, "-BUSY") ||
                  (op.kind == OP_ACQUIRE && begins(reply, "*-1") && run->failed > 0);
    if (!right && run->may_fail && failed) {
        run->failed++;
        run->now.faulty = true;
        return;
    }
    if (!right) {
        model_request(slot, &op, &text);
        snprintf(request, sizeof request, "%.*s", (int)text.len, text.data);
        wrong(run, "slot %d: %s\nwas answered %.*s\nnot %s", slot, request, (int)reply.len,
              reply.data, expected);
        buf_free(&text);
        return;
    }
    outlook->slot = after;
    size_t at = run->steps_count[slot]++;
    run->steps[slot] =
        mem_realloc(run->steps[slot], run->steps_count[slot] * sizeof(struct run_step));
    run->steps[slot][at] = (struct run_step){op, after, run->sent_at[slot], events(run)};
}

static void on_reply(void *context, int client, struct bytes reply)
{
    struct run *run = context;
    struct outlook *outlook = &run->now.slots[client];

    if (client == SETUP) {
        setup_reply(run, reply);
        return;
    }
    if (outlook->flight_count == 0) {
        wrong(run, "slot %d: an answer too many: %.*s", client, (int)reply.len, reply.data);
        return;
    }
    if (++run->replies[client] < outlook->flight[0].replies)
        return;
    run->replies[client] = 0;
    answered(run, client, reply);
}

static void open_host(struct run *run)
{
    char why[600];

    run->host = host_open(run->machine, on_reply, run, why, sizeof why);
    if (run->host == NULL && !run->may_fail)
        wrong(run, "the store does not open: %s", why);
}

static bool goes_on(const struct run *run)
{
    return run->host != NULL && !host_lost(run->host) && run->why[0] == '\0';
}

void run_start(struct run *run, struct machine *machine, const struct model_slot *from,
               uint64_t seed, bool may_fail)
{
    struct buf request = {0};

    *run = (struct run){.machine = machine, .seed = seed, .may_fail = may_fail};
    for (int i = 0; i < MODEL_SLOTS; i++) {
        if (from != NULL)
            run->first[i] = from[i];
        run->first[i].number = i;
        run->now.slots[i].slot = run->first[i];
        model_restart(&run->now.slots[i].slot, machine_disk(machine)->now_ms);
    }
    for (int i = 0; i < RUN_SETUP_STEPS; i++)
        run->setup_sent_at[i] = run->setup_answered_at[i] = SIZE_MAX;
    open_host(run);
    for (int i = 0; i < RUN_SETUP_STEPS && goes_on(run); i++)
        if (run->now.setup == i) {
            run->now.setup_sent = true;
            run->setup_sent_at[i] = events(run);
            run_setup_request(i, &request);
            host_send(run->host, SETUP, buf_bytes(&request));
            buf_clear(&request);
            host_settle(run->host);
        }
    buf_free(&request);
}

/* Every client sends something. Rows of SQL need what the setup makes. */
static void send_all(struct run *run, uint64_t *state)
{
    for (int i = 0; i < MODEL_SLOTS; i++) {
        struct outlook *outlook = &run->now.slots[i];
        struct op ops[RUN_FLIGHT_MAX];
        struct buf request = {0};
        int count = model_pick(&outlook->slot, state, &run->ids, machine_disk(run->machine)->now_ms,
                               ops, RUN_FLIGHT_MAX);
        for (int k = 0; k < count; k++) {
            if ((ops[k].kind == OP_ROW || ops[k].kind == OP_ROW_ROLLS_BACK) &&
                run->now.setup < RUN_SETUP_STEPS)
                continue;
            outlook->flight[outlook->flight_count++] = ops[k];
            model_request(i, &ops[k], &request);
        }
        run->sent_at[i] = events(run);
        if (request.len > 0)
            host_send(run->host, i, buf_bytes(&request));
        buf_free(&request);
    }
}

void run_rounds(struct run *run, int first, int count)
{
    for (int round = first; round < first + count && goes_on(run); round++) {
        uint64_t state = run->seed * 1000003 + (uint64_t)round;
        uint64_t what = dice(&state) % 12;
        if (what == 0)
            host_checkpoint();
        else if (what == 1)
            host_pass(run->host, MODEL_TTL_MS + 1000);
        if (!goes_on(run))
            return;
        machine_disk(run->machine)->now_ms += 7;
        send_all(run, &state);
        host_settle(run->host);
        for (int i = 0; i < MODEL_SLOTS && goes_on(run); i++)
            if (run->now.slots[i].flight_count != 0)
                wrong(run, "slot %d: no answer in round %d", i, round);
    }
}

void run_reopen(struct run *run)
{
    if (!goes_on(run))
        return;
    host_close(run->host);
    open_host(run);
    for (int i = 0; i < MODEL_SLOTS; i++)
        model_restart(&run->now.slots[i].slot, machine_disk(run->machine)->now_ms);
}

void run_pause(struct run *run, int64_t ms)
{
    if (goes_on(run))
        host_pass(run->host, ms);
}

void run_stop(struct run *run)
{
    if (run->host != NULL)
        host_close(run->host);
    run->host = NULL;
}

void run_free(struct run *run)
{
    run_stop(run);
    for (int i = 0; i < MODEL_SLOTS; i++)
        free(run->steps[i]);
}

void run_expect(const struct run *run, size_t n, struct expectation *out)
{
    *out = (struct expectation){.faulty = run->now.faulty};
    for (int i = 0; i < RUN_SETUP_STEPS; i++) {
        out->setup += run->setup_answered_at[i] <= n;
        out->setup_sent |= run->setup_sent_at[i] <= n && run->setup_answered_at[i] > n;
    }
    for (int i = 0; i < MODEL_SLOTS; i++) {
        struct outlook *outlook = &out->slots[i];
        outlook->slot = run->first[i];
        for (size_t k = 0; k < run->steps_count[i]; k++) {
            const struct run_step *step = &run->steps[i][k];
            if (step->answered_at <= n)
                outlook->slot = step->after;
            else if (step->sent_at <= n)
                outlook->flight[outlook->flight_count++] = step->op;
        }
    }
}
