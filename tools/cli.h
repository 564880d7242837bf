/* SPDX-License-Identifier: Apache-2.0 */
/* What every command of `stockade` shares: its place in the command table, its exit codes, and the
 * options that say which server or store is meant. */
#ifndef STOCKADE_TOOLS_CLI_H
#define STOCKADE_TOOLS_CLI_H

#include <stdbool.h>

#include "tools/client.h"

#ifndef STOCKADE_VERSION
#define STOCKADE_VERSION "0.1.0"
#endif

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,       /* a promise was broken, or the work could not be done */
    CLI_USAGE = 2,        /* the command line makes no sense */
    CLI_NOTHING = 3,      /* nothing there, or not enough left */
    CLI_UNREACHABLE = 69, /* EX_UNAVAILABLE of sysexits.h; also: the server cannot do it now */
    CLI_HELD = 75,        /* EX_TEMPFAIL: another holds the lease */
    CLI_STALE = 76,       /* the token is stale; of `lock`: the lease was lost */
    CLI_SIGNAL = 0x100,   /* + n: signal n ended the work, and is to end us */
};

#define CLI_DEFAULT_URI "stockade://127.0.0.1:7379"

/* What every command takes, anywhere on its line, and what comes of it. */
struct cli {
    const char *uri;           /* -u; NULL: not given */
    bool uri_is_store;         /* `uri` was given as --store: for messages */
    bool looks;                /* the command makes no store where there is none */
    const char *password_file; /* --password-file; NULL: not given */
    struct buf full_uri;       /* cli_uri's answer */
};

/* Return the URI that the library connects to, with its password: -u, STOCKADE_URI or the default.
 * A password that is not in it comes from --password-file, STOCKADE_PASSWORD or the file that
 * STOCKADE_PASSWORD_FILE names. NULL: something of that makes no sense. */
const char *cli_uri(struct cli *cli, struct failure *failure);
/* The same for who talks to a daemon without the library. */
bool cli_server(struct cli *cli, struct client_uri *server, struct failure *failure);
/* Is there a store where `uri`, cli_uri's answer, names a file? A command that only looks asks this
 * before it connects, since connecting would make one. */
bool cli_finds_store(const struct cli *cli, const char *uri, struct failure *failure);
/* Return the store that is meant where --store is not given, as a URI, and where that was said: -u,
 * STOCKADE_STORE, or STOCKADE_URI where that is a store's. NULL: nowhere. */
const char *cli_store(struct cli *cli, const char **origin);

struct cli_command {
    const char *name;    /* one or two words */
    const char *summary; /* one line in `stockade --help` */
    /* `argv[0]` is the last word of the name. Return what becomes of us (enum cli_exit). */
    int (*run)(struct cli *cli, int argc, char **argv);
    bool looks; /* at a store, or changes only what is there: it makes none */
};

int audit_verify_run(struct cli *cli, int argc, char **argv);
int backup_run(struct cli *cli, int argc, char **argv);
int check_run(struct cli *cli, int argc, char **argv);
int demo_basket_run(struct cli *cli, int argc, char **argv);
int demo_oversell_run(struct cli *cli, int argc, char **argv);
int get_run(struct cli *cli, int argc, char **argv);
int guard_create_run(struct cli *cli, int argc, char **argv);
int guard_drop_run(struct cli *cli, int argc, char **argv);
int guard_list_run(struct cli *cli, int argc, char **argv);
int lease_run(struct cli *cli, int argc, char **argv);
int leases_run(struct cli *cli, int argc, char **argv);
int lock_run(struct cli *cli, int argc, char **argv);
int move_run(struct cli *cli, int argc, char **argv);
int replay_run(struct cli *cli, int argc, char **argv);
int restore_run(struct cli *cli, int argc, char **argv);
int revoke_run(struct cli *cli, int argc, char **argv);
int set_run(struct cli *cli, int argc, char **argv);
int take_run(struct cli *cli, int argc, char **argv);
int top_run(struct cli *cli, int argc, char **argv);
int why_run(struct cli *cli, int argc, char **argv);

#endif
