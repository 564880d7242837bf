/* SPDX-License-Identifier: Apache-2.0 */
/* See environment.h. */
#include "proxy/server/environment.h"

#include <string.h>

#include "fence/base/log.h"
#include "fence/base/nearest.h"
#include "proxy/server/options.h"

#define PREFIX "STOCKADE_"

/* The command line reads the first two; `stockade lock` sets the others for its program. */
static const char *const others[] = {PREFIX "URI", PREFIX "PASSWORD", PREFIX "RESOURCE",
                                     PREFIX "TOKEN"};
enum { OTHERS = sizeof others / sizeof *others };

/* Kubernetes sets such ones in each pod beside a service that is called stockade. */
static bool is_of_kubernetes(const char *setting)
{
    return strstr(setting, "SERVICE_") != NULL || strstr(setting, "_PORT") != NULL;
}

const char *environment_complaint(const char *setting, char *out, size_t size)
{
    char variables[OPTIONS][OPTION_VARIABLE_MAX], quoted[100];
    struct bytes name = {setting, strcspn(setting, "=")};
    size_t prefix = strlen(PREFIX);

    if (strncmp(setting, PREFIX, prefix) != 0 || is_of_kubernetes(setting))
        return NULL;
    struct nearest nearest = nearest_to((struct bytes){name.data + prefix, name.len - prefix});
    for (int i = 0; i < OPTIONS + OTHERS; i++) {
        const char *known =
            i < OPTIONS ? options_variable((enum option)i, variables[i]) : others[i - OPTIONS];
        if (bytes_equal(name, bytes_of(known)))
            return NULL;
        nearest_offer(&nearest, known + prefix);
    }
    text_print(out, size, "unknown environment variable %s",
               log_quoted(name, quoted, sizeof quoted));
    size_t used = strlen(out);
    if (nearest.word != NULL)
        text_print(out + used, size - used, "; did you mean " PREFIX "%s?", nearest.word);
    return out;
}
