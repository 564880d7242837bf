/* SPDX-License-Identifier: Apache-2.0 */
#include "store/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    TEXT_MAX = 400,
    LIKE_IT_MAX = 100,    /* rows of an answer that are reported one by one */
    NAME_SHOWN_MAX = 160, /* bytes of a name as it is shown, its end included */
};

void check_report(struct check_call *call, const char *kind, const char *format, ...)
{
    char text[TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *at = text; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            *at = '?';
    call->findings += strcmp(kind, CHECK_WARNING) != 0;
    call->found(call->watch.context, kind, text);
}

/* Write a resource's name, in which bytes that are not plain ASCII are \xNN. */
static void show_name(struct bytes name, char out[NAME_SHOWN_MAX])
{
    char *end = out;

    for (size_t i = 0; i < name.len; i++) {
        unsigned char byte = (unsigned char)name.data[i];
        bool plain = byte >= ' ' && byte <= '~' && byte != '\\';
        if (end - out > NAME_SHOWN_MAX - 10) {
            strcpy(end, "...");
            return;
        }
        end += plain ? sprintf(end, "%c", byte) : sprintf(end, "\\x%02x", byte);
    }
    *end = '\0';
}

void check_answer_row(struct check_answer *answer, struct check_subject subject, struct bytes text)
{
    char about[NAME_SHOWN_MAX];

    if (++answer->rows > LIKE_IT_MAX)
        return;
    if (subject.about == CHECK_ABOUT_ID)
        text_print(about, sizeof about, "resource %lld", (long long)subject.id);
    else if (subject.about == CHECK_ABOUT_NAME)
        show_name(subject.name, about);
    check_report(answer->call, answer->kind, "%s%s%.*s",
                 subject.about == CHECK_ABOUT_NOTHING ? "" : about,
                 subject.about == CHECK_ABOUT_NOTHING ? "" : ": ", (int)text.len, text.data);
}

void check_answer_end(const struct check_answer *answer)
{
    int64_t more = answer->rows - LIKE_IT_MAX;

    if (more <= 0)
        return;
    check_report(answer->call, answer->kind, "%lld more like the last one", (long long)more);
    if (strcmp(answer->kind, CHECK_WARNING) != 0)
        answer->call->findings += more - 1; /* one was counted as it was reported */
}

bool check_goes_on(const struct maintenance_watch *watch)
{
    return watch->step == NULL || watch->step(watch->context, "checking", 0, 0);
}
