/* SPDX-License-Identifier: Apache-2.0 */
/* stockaded: reads its options, makes the log, runs the daemon. Exit status: 0 stopped as asked, 1
 * could not start or finish, 2 wrong options, 70 the store was lost. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proxy/server/daemon.h"
#include "proxy/server/options.h"
#include "store/open.h"

enum { EXIT_USAGE = 2 };

int main(int argc, char **argv)
{
    struct options *options = NULL;
    struct buf message = {0};
    enum options_outcome outcome = options_load(&options, argc, argv, environ, &message);
    int status = outcome == OPTIONS_SHOW ? EXIT_SUCCESS : EXIT_USAGE;

    if (outcome == OPTIONS_READY) {
        struct log log = {.fd = STDERR_FILENO};
        log_level_parse(options_text(options, OPTION_LOG_LEVEL), &log.level);
        store_sqlite_uncounted();
        status = daemon_run(options, &log);
        options_free(options);
    } else if (outcome == OPTIONS_SHOW) {
        fwrite(message.data, 1, message.len, stdout);
    } else {
        fprintf(stderr, "stockaded: %.*s\n", (int)message.len, message.data);
    }
    buf_free(&message);
    return status;
}
