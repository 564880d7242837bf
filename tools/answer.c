/* SPDX-License-Identifier: Apache-2.0 */
/* A command's connection by the library, and what it says where there is no answer. */
#include "tools/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/json.h"
#include "tools/term.h"

void answer_text(struct buf *out, const char *before, const char *name, struct bytes text)
{
    buf_printf(out, "%s\"%s\": ", before, name);
    json_string(out, text);
}

void answer_number(struct buf *out, const char *name, int64_t number)
{
    buf_printf(out, ", \"%s\": %" PRId64, name, number);
}

struct bytes answer_string(const stk_reply *string)
{
    struct bytes bytes;

    bytes.data = stk_reply_string(string, &bytes.len);
    return bytes;
}

int answer_refuse(struct answer *answer, int code, const char *error, const char *message)
{
    const char *key = answer->key;
    struct buf *out = &answer->out;

    if (!answer->json) {
        term_error("%s: %s%s%s", answer->command, key != NULL ? key : "", key != NULL ? ": " : "",
                   message);
        return code;
    }
    answer_text(out, "{", "error", bytes_of(error));
    answer_text(out, ", ", "message", bytes_of(message));
    if (key != NULL)
        answer_text(out, ", ", "key", bytes_of(key));
    buf_append_text(out, "}\n");
    return code;
}

int answer_fail(struct answer *answer, enum stk_error error)
{
    const char *message = stk_message(), *code = stk_error_code(error);

    switch (error) {
    case STK_STALE: return answer_refuse(answer, CLI_STALE, code, message);
    case STK_RANGE: return answer_refuse(answer, CLI_NOTHING, code, message);
    case STK_HELD: return answer_refuse(answer, CLI_HELD, code, "another holds the lease");
    case STK_LEASEDOWN:
    case STK_BUSY:
    case STK_TIMEOUT:
    case STK_UNSURE:
    case STK_PROTOCOL:
    case STK_UNREACHABLE: return answer_refuse(answer, CLI_UNREACHABLE, code, message);
    default: return answer_refuse(answer, CLI_FAILED, code, message);
    }
}

bool answer_connect(struct answer *answer, int *code)
{
    struct failure failure;

    if (answer->client != NULL)
        return true;
    const char *uri = cli_uri(answer->cli, &failure);
    if (uri == NULL) {
        term_error("%s: %s; see %s --help", answer->command, failure.text, answer->command);
        *code = CLI_USAGE;
        return false;
    }
    if (!cli_finds_store(answer->cli, uri, &failure)) {
        *code = answer_refuse(answer, CLI_FAILED, stk_error_code(STK_STORE), failure.text);
        return false;
    }
    enum stk_error error = stk_client_open(uri, ANSWER_LIMIT_MS, &answer->client);
    if (error != STK_OK)
        *code = answer_fail(answer, error);
    return error == STK_OK;
}

stk_reply *answer_ask(struct answer *answer, const char *const *words, size_t count, int *code)
{
    stk_reply *reply;

    if (!answer_connect(answer, code))
        return NULL;
    enum stk_error error = stk_command(answer->client, count, words, NULL, &reply);
    if (error != STK_OK)
        *code = answer_fail(answer, error);
    return reply;
}

void answer_print(struct answer *answer)
{
    term_print(buf_bytes(&answer->out), answer->json);
    buf_clear(&answer->out);
}

void answer_close(struct answer *answer)
{
    stk_client_close(answer->client);
    buf_free(&answer->out);
}

const stk_reply *answer_entry(const stk_reply *map, const char *name)
{
    for (size_t i = 0; i + 1 < stk_reply_count(map); i += 2) {
        const char *said = stk_reply_string(stk_reply_at(map, i), NULL);
        if (said != NULL && strcmp(said, name) == 0)
            return stk_reply_at(map, i + 1);
    }
    return NULL;
}

int64_t answer_entry_number(const stk_reply *map, const char *name)
{
    return stk_reply_integer(answer_entry(map, name));
}

struct bytes answer_entry_text(const stk_reply *map, const char *name)
{
    return answer_string(answer_entry(map, name));
}
