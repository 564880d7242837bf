/* SPDX-License-Identifier: Apache-2.0 */
#include "store/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 400 };

void finding_report(struct check_call *call, const char *kind, const char *format, ...)
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

const char *finding_name(struct bytes name, char out[FINDING_NAME_MAX])
{
    char *end = out;

    for (size_t i = 0; i < name.len; i++) {
        unsigned char byte = (unsigned char)name.data[i];
        bool plain = byte >= ' ' && byte <= '~' && byte != '\\';
        if (end - out > FINDING_NAME_MAX - 10) {
            strcpy(end, "...");
            return out;
        }
        end += plain ? sprintf(end, "%c", byte) : sprintf(end, "\\x%02x", byte);
    }
    *end = '\0';
    return out;
}
