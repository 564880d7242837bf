/* SPDX-License-Identifier: Apache-2.0 */
/* RESP, and the work `resp`: the commands given, as many at once as the pipeline says.
 *
 * A command's words may hold {key} (drawn anew each time), {next} (one after the other), {value} (a
 * new one each time): each 12 digits, so the bytes are laid out once and only digits change. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "tools/bench/load/load.h"

#define DIGITS    12
#define MARKS_MAX 16

enum mark_kind { MARK_KEY, MARK_NEXT, MARK_VALUE };

static const struct {
    const char *text;
    enum mark_kind kind;
} marks[] = {{"{key}", MARK_KEY}, {"{next}", MARK_NEXT}, {"{value}", MARK_VALUE}};

struct template
{
    struct buf bytes;
    unsigned count;
    struct {
        enum mark_kind kind;
        size_t at;
    } marks[MARKS_MAX];
};

/* Append a word with its marks as digits, and note where they are. */
static bool lay_out(struct template *template, const char *word, struct buf *out, size_t *at)
{
    while (*word) {
        size_t m = 0;
        while (m < sizeof marks / sizeof *marks &&
               strncmp(word, marks[m].text, strlen(marks[m].text)) != 0)
            m++;
        if (m == sizeof marks / sizeof *marks) {
            buf_append(out, word++, 1);
            continue;
        }
        if (template->count == MARKS_MAX)
            return false;
        at[template->count] = out->len;
        template->marks[template->count++].kind = marks[m].kind;
        buf_append(out, "000000000000", DIGITS);
        word += strlen(marks[m].text);
    }
    return true;
}

static bool compile(struct template *template, const char *command)
{
    struct buf words = {0}, word = {0};
    char *text = mem_strdup(command), *rest = NULL;
    size_t at[MARKS_MAX], count = 0;
    bool good = true;

    for (char *next = strtok_r(text, " ", &rest); good && next; next = strtok_r(NULL, " ", &rest)) {
        unsigned first = template->count;
        buf_clear(&word);
        good = lay_out(template, next, &word, at);
        buf_printf(&words, "$%zu\r\n", word.len);
        for (unsigned i = first; i < template->count; i++)
            template->marks[i].at = words.len + at[i];
        buf_append_bytes(&words, buf_bytes(&word));
        buf_append_text(&words, "\r\n");
        count++;
    }
    buf_printf(&template->bytes, "*%zu\r\n", count);
    for (unsigned i = 0; i < template->count; i++)
        template->marks[i].at += template->bytes.len;
    buf_append_bytes(&template->bytes, buf_bytes(&words));
    buf_free(&words);
    buf_free(&word);
    free(text);
    return good;
}

bool resp_compile(struct load *load)
{
    const struct settings *settings = load->settings;

    load->templates = mem_zalloc(COMMANDS_MAX * sizeof *load->templates);
    for (int64_t i = 0; i < settings->command_count; i++)
        if (!compile(&load->templates[i], settings->commands[i])) {
            snprintf(load->why, sizeof load->why, "too many marks in one command");
            return false;
        }
    return true;
}

void resp_free(struct load *load)
{
    for (int64_t i = 0; load->templates && i < load->settings->command_count; i++)
        buf_free(&load->templates[i].bytes);
    free(load->templates);
}

static void put_digits(char *to, uint64_t number)
{
    for (unsigned i = DIGITS; i-- > 0; number /= 10)
        to[i] = (char)('0' + number % 10);
}

static uint64_t number_for(struct client *client, enum mark_kind kind)
{
    switch (kind) {
    case MARK_KEY: return client->key = client_any_key(client);
    case MARK_NEXT: return client->key = client_next_key(client);
    default: return client_next_value(client);
    }
}

static void send_command(struct client *client, const struct template *template)
{
    size_t at = client->out.len;

    buf_append_bytes(&client->out, buf_bytes(&template->bytes));
    for (unsigned i = 0; i < template->count; i++)
        put_digits(client->out.data + at + template->marks[i].at,
                   number_for(client, template->marks[i].kind));
}

/* Return the length of the reply that begins here, or 0 where not all of it is there. */
static size_t reply_length(const char *data, size_t len)
{
    size_t used = 0;

    for (int64_t left = 1; left > 0; left--) {
        const char *end = len > used ? memchr(data + used, '\n', len - used) : NULL;
        if (!end)
            return 0;
        char kind = data[used];
        int64_t number = kind == '$' || kind == '*' || kind == '%' ? atoll(data + used + 1) : 0;
        used = (size_t)(end - data) + 1;
        if (kind == '$' && number >= 0)
            used += (size_t)number + 2;
        if (kind == '*' && number > 0)
            left += number;
        if (kind == '%')
            left += 2 * number;
        if (used > len)
            return 0;
    }
    return used;
}

static bool feed(struct client *client)
{
    size_t length;

    while (client->got < client->awaits &&
           (length = reply_length(client->in.data + client->in_used,
                                  client->in.len - client->in_used)) > 0) {
        client_found(client, &client->in, client->in_used, length);
        client->in_used += length;
    }
    return true;
}

const struct protocol resp_protocol = {.feed = feed};

static enum turn any_error(struct client *client)
{
    for (unsigned i = 0; i < client->got; i++)
        if (client_reply(client, i).data[0] == '-')
            return client_fail(client, "the server said", client_reply(client, i));
    return TURN_DONE;
}

/* With --verify, each reply is a value: that of the next key. */
static enum turn judge(struct client *client)
{
    if (any_error(client) == TURN_FAILED)
        return TURN_FAILED;
    client_acknowledge(client, client->key, client->value);
    if (client->load->expected) {
        struct bytes reply = client_reply(client, 0);
        const char *end = memchr(reply.data, '\n', reply.len);
        struct bytes value = {end + 1, reply.len > 14 ? DIGITS : 0};
        if (!client_verify(client, client->key, value))
            return client_fail(client, "lost what was acknowledged", reply);
    }
    return TURN_DONE;
}

static enum turn resp_step(struct client *client)
{
    const struct settings *settings = client->load->settings;
    unsigned count = (unsigned)settings->command_count, sent = 0;

    if (client->step > 0)
        return judge(client);
    for (int64_t turn = 0; turn < settings->pipeline; turn++) {
        if (settings->mix_percent > 0) { /* the first, or the second */
            bool first = client_random(client, 100) < (uint64_t)settings->mix_percent;
            send_command(client, &client->load->templates[first ? 0 : 1]);
            sent++;
            continue;
        }
        for (unsigned i = 0; i < count; i++, sent++)
            send_command(client, &client->load->templates[i]);
    }
    return client_await(client, sent);
}

const struct work resp_work = {.name = "resp", .protocol = &resp_protocol, .step = resp_step};
