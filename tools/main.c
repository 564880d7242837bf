/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: `stockade [-u URI] COMMAND`. Options before the command are read here, what
 * follows is the command's own. To add a command, add a row to the table. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "tools/cli.h"

#define DEFAULT_URI "stockade://127.0.0.1:7379"

static const struct cli_command commands[] = {
    {"lock", "run a program while it holds a lease", lock_run},
    {"get", "print what a key holds", get_run},
    {"set", "write a key, under a token or a lease of the moment", set_run},
    {"take", "take from a number where enough is left", take_run},
    {"lease", "tell who holds a resource", lease_run},
    {"revoke", "end a lease, whoever holds it", revoke_run},
    {"leases", "list the leases", leases_run},
    {"demo oversell", "a flash sale: what locks let through, and what a checked token does not",
     demo_oversell_run},
    {"demo basket", "orders over several articles: a basket is sold whole, and once",
     demo_basket_run},
    {"replay", "real order history as stock movements, audited SKU by SKU", replay_run},
    {"backup", "copy a store into one file, while writes go on", backup_run},
    {"restore", "put a backup in the store's place; every lease ends", restore_run},
    {"check", "look for damage in a store", check_run},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(void)
{
    printf("usage: stockade [-u URI] COMMAND [options]\n\n"
           "The command line of Stockade, a lock service whose tokens are checked where the data\n"
           "is.\n\n"
           "commands:\n");
    for (int i = 0; i < COMMANDS; i++) {
        printf("  %-16s %s\n", commands[i].name, commands[i].summary);
    }
    printf("\noptions:\n"
           "  -u, --uri URI    the server: stockade://[user:password@]host:port or\n"
           "                   stockade+unix:PATH; default " DEFAULT_URI ".\n"
           "                   (demo and replay start private servers where -u is not given)\n"
           "  -h, --help       this text; `stockade COMMAND --help` tells of one command\n"
           "  -V, --version    the version\n\n"
           "exit codes: 0 ok, 1 failed or a promise was broken, 2 wrong usage,\n"
           "128 + n ended by signal n\n");
}

/* Find the command that argv[0..] begins with; `words` is how many of them are its name. */
static const struct cli_command *find_command(int argc, char **argv, int *words)
{
    for (int i = 0; i < COMMANDS; i++) {
        const char *name = commands[i].name;
        size_t first = strcspn(name, " ");

        if (strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0) {
            continue;
        }
        *words = name[first] == '\0' ? 1 : 2;
        if (*words == 1 || (argc > 1 && strcmp(argv[1], name + first + 1) == 0)) {
            return &commands[i];
        }
    }
    return NULL;
}

static int wrong_usage(const char *what, const char *why)
{
    fprintf(stderr, "stockade: %s%s; see stockade --help\n", what, why);
    return CLI_USAGE;
}

/* Suggest what argv[0..] may have been meant to be: "demo" needs a second word. */
static int unknown_command(int argc, char **argv)
{
    char said[160];

    (void)snprintf(said, sizeof said, "%s%s%s", argv[0], argc > 1 ? " " : "",
                   argc > 1 ? argv[1] : "");
    for (int i = 0; i < COMMANDS; i++) {
        size_t first = strcspn(commands[i].name, " ");
        if (strlen(argv[0]) == first && strncmp(argv[0], commands[i].name, first) == 0) {
            (void)snprintf(said + strlen(said), sizeof said - strlen(said),
                           " is not a command, but `%s` is", commands[i].name);
            return wrong_usage(said, "");
        }
    }
    return wrong_usage(said, " is not a command");
}

static int run_command(const struct cli *cli, int argc, char **argv)
{
    int words = 0;

    if (argc == 0) {
        return wrong_usage("a command is missing", "");
    }
    const struct cli_command *command = find_command(argc, argv, &words);
    if (command == NULL) {
        return unknown_command(argc, argv);
    }
    return command->run(cli, argc - words + 1, argv + words - 1);
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"uri", required_argument, NULL, 'u'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    struct cli cli = {.uri_given = false};
    struct failure failure;
    int got;

    /* A reader that leaves (`stockade demo | head`) must not end us before we have cleaned up. */
    (void)signal(SIGPIPE, SIG_IGN);
    check(client_uri_parse(&cli.uri, "stockade", DEFAULT_URI, &failure));
    opterr = 0;
    while ((got = getopt_long(argc, argv, "+:u:hV", longs, NULL)) != -1) {
        switch (got) {
        case 'u':
            if (!client_uri_parse(&cli.uri, "stockade", optarg, &failure)) {
                return wrong_usage("-u ", failure.text);
            }
            cli.uri_given = true;
            break;
        case 'h': print_help(); return CLI_OK;
        case 'V': printf("stockade " STOCKADE_VERSION "\n"); return CLI_OK;
        case ':': return wrong_usage(argv[optind - 1], " needs a value");
        default: return wrong_usage(argv[optind - 1], " is not an option");
        }
    }
    return run_command(&cli, argc - optind, argv + optind);
}
