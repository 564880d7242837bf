/* SPDX-License-Identifier: Apache-2.0 */
/* What every command of `stockade` shares: its place in the command table, its exit codes, and how
 * a failure carries its sentence up to the one place that prints it. */
#ifndef STOCKADE_TOOLS_CLI_H
#define STOCKADE_TOOLS_CLI_H

#include <stdbool.h>

#include "tools/client.h"

#ifndef STOCKADE_VERSION
#define STOCKADE_VERSION "0.1.0"
#endif

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1, /* a promise was broken, or the work could not be done */
    CLI_USAGE = 2,  /* the command line makes no sense */
};

/* What stood before the command's name. */
struct cli {
    bool uri_given;        /* by -u */
    struct client_uri uri; /* of the Stockade server, or the default */
};

struct cli_command {
    const char *name;    /* one or two words */
    const char *summary; /* one line in `stockade --help` */
    /* `argv[0]` is the last word of the name. Return the exit code (enum cli_exit, or 128 + signal
     * when a signal ended it). */
    int (*run)(const struct cli *cli, int argc, char **argv);
};

int backup_run(const struct cli *cli, int argc, char **argv);
int check_run(const struct cli *cli, int argc, char **argv);
int demo_basket_run(const struct cli *cli, int argc, char **argv);
int demo_oversell_run(const struct cli *cli, int argc, char **argv);
int get_run(const struct cli *cli, int argc, char **argv);
int lease_run(const struct cli *cli, int argc, char **argv);
int leases_run(const struct cli *cli, int argc, char **argv);
int lock_run(const struct cli *cli, int argc, char **argv);
int replay_run(const struct cli *cli, int argc, char **argv);
int restore_run(const struct cli *cli, int argc, char **argv);
int revoke_run(const struct cli *cli, int argc, char **argv);
int set_run(const struct cli *cli, int argc, char **argv);
int take_run(const struct cli *cli, int argc, char **argv);

#endif
