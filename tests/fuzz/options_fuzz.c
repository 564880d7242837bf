/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds command lines, environments and config files to the daemon's options. What is accepted is
 * in range and says so again when it is given back; what is refused is told in one printable line;
 * and no password of a lease URI is ever shown.
 *
 * An input is lines: arguments (at most 8), each beginning with a dash; settings of the environment
 * (STOCKADE_LISTEN=..., at most 8); a line "="; then the config file, whatever it holds. Without
 * that line there is no file. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/server/options.h"
#include "tests/fuzz/fuzz.h"

enum { ARGS_MAX = 8, GIVEN_MAX = 2048 };

struct input {
    char *argv[ARGS_MAX + 4], *env[ARGS_MAX + 1]; /* owned */
    int argc, env_count;
    bool has_file;
};

static char *copy(struct bytes text)
{
    char *made = mem_alloc(text.len + 1);

    if (text.len > 0)
        memcpy(made, text.data, text.len);
    made[text.len] = '\0';
    return made;
}

/* Only the file that the input brings is to be read. */
static bool names_file(const char *word)
{
    const char *equals = strchr(word, '=');

    return access(word, F_OK) == 0 || (equals != NULL && access(equals + 1, F_OK) == 0);
}

static void parse(struct bytes rest, struct input *input, struct fuzz_file *file)
{
    input->argv[input->argc++] = copy(bytes_of("stockaded"));
    while (rest.len > 0) {
        struct bytes line = fuzz_cut(&rest, '\n');
        if (line.len == 1 && line.data[0] == '=') {
            input->has_file = true;
            break;
        }
        char *word = copy(line);
        bool is_flag = word[0] == '-', left_out = names_file(word);
        if (!left_out && is_flag && input->argc <= ARGS_MAX)
            input->argv[input->argc++] = word;
        else if (!left_out && !is_flag && input->env_count < ARGS_MAX)
            input->env[input->env_count++] = word;
        else
            free(word);
    }
    if (!input->has_file)
        return;
    fuzz_file_write(file, rest);
    input->argv[input->argc++] = copy(bytes_of("--config"));
    input->argv[input->argc++] = copy(bytes_of(file->path));
}

static void free_input(struct input *input)
{
    for (int i = 0; i < input->argc; i++)
        free(input->argv[i]);
    for (int i = 0; i < input->env_count; i++)
        free(input->env[i]);
}

/* What stands between "://" and the last @, behind its colon, must not be shown (a unix socket has
 * no login there, its path may hold anything), nor what follows the first password=. */
static void check_hidden(const char *uri, const char *shown)
{
    const char *slashes = strstr(uri, "://"), *at = strrchr(uri, '@');
    const char *option = strstr(shown, "password=");

    if (option != NULL && strcmp(option, "password=***") != 0)
        fuzz_wrong("%s is shown as %s", uri, shown);
    if (slashes == NULL || at == NULL || at < slashes + 3 || strncmp(uri, "redis+unix:", 11) == 0)
        return;
    const char *colon = memchr(slashes + 3, ':', (size_t)(at - slashes - 3));
    if (colon == NULL || at - colon < 4)
        return;
    char *secret = copy((struct bytes){colon, (size_t)(at - colon) + 1}); /* ":password@" */
    if (strstr(shown, secret) != NULL)
        fuzz_wrong("%s is shown as %s", uri, shown);
    free(secret);
}

static void check_wrong(const struct buf *message)
{
    check(message->len > 0);
    for (size_t i = 0; i < message->len; i++)
        if (iscntrl((unsigned char)message->data[i]))
            fuzz_wrong("the message has byte %02x: %.*s", (unsigned char)message->data[i],
                       (int)message->len, message->data);
}

/* One choice or number is what the table lists. */
static void check_value(enum option option, const char *text)
{
    static const char *const choices[OPTIONS] = {
        [OPTION_UNFENCED_WRITES] = "|deny|allow|",
        [OPTION_LOG_LEVEL] = "|debug|info|warn|error|",
    };
    static const int64_t ranges[OPTIONS][2] = {
        [OPTION_MAX_CONNECTIONS] = {1, 1000000},    [OPTION_MAX_WAITERS] = {1, 10000000},
        [OPTION_MAX_REPLY_MEMORY] = {128, 1048576}, [OPTION_SQL_TIME_LIMIT] = {1, 3600000},
        [OPTION_RECEIPTS_KEEP] = {1, 31536000},     [OPTION_FORGET_AFTER] = {0, 3153600000}};
    int64_t number;

    if (choices[option] != NULL) {
        char framed[16];
        check(strlen(text) < sizeof framed - 2);
        snprintf(framed, sizeof framed, "|%s|", text);
        check(strstr(choices[option], framed) != NULL);
    } else if (ranges[option][1] > 0) {
        check(bytes_to_int64(bytes_of(text), &number));
        check(number >= ranges[option][0] && number <= ranges[option][1]);
    }
}

/* Everything that was accepted, given again as flags, is accepted again and the same. */
static void check_again(struct options *options)
{
    char *argv[GIVEN_MAX + 1] = {"stockaded"};
    char *const env[] = {NULL};
    struct options *again = NULL;
    struct buf message = {0};
    int argc = 1;

    for (int i = 0; i < OPTIONS; i++)
        for (size_t at = 0; i != OPTION_CONFIG; at++) {
            const char *text = options_at(options, (enum option)i, at);
            if (text == NULL)
                break;
            check_value((enum option)i, text);
            check(argc < GIVEN_MAX);
            struct buf arg = {0};
            buf_printf(&arg, "--%s=%s", options_name((enum option)i), text);
            argv[argc++] = copy(buf_bytes(&arg));
            buf_free(&arg);
        }
    if (options_load(&again, argc, argv, env, &message) != OPTIONS_READY)
        fuzz_wrong("what was accepted is refused: %.*s", (int)message.len, message.data);
    for (int i = 0; i < OPTIONS; i++)
        if (i != OPTION_CONFIG)
            check(strcmp(options_shown(options, (enum option)i),
                         options_shown(again, (enum option)i)) == 0);
    options_free(again);
    buf_free(&message);
    for (int i = 1; i < argc; i++)
        free(argv[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fuzz_file file; /* the config file: written anew for each input */
    struct input input = {.argc = 0};
    struct options *options = NULL;
    struct buf message = {0};

    parse((struct bytes){(const char *)data, size}, &input, &file);
    switch (options_load(&options, input.argc, input.argv, input.env, &message)) {
    case OPTIONS_SHOW: check(message.len > 0 && options == NULL); break;
    case OPTIONS_WRONG:
        check_wrong(&message);
        check(options == NULL);
        break;
    default:
        check_hidden(options_text(options, OPTION_LEASE), options_shown(options, OPTION_LEASE));
        check_again(options);
        options_free(options);
    }
    buf_free(&message);
    free_input(&input);
    return 0;
}
