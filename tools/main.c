/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: `stockade [-u URI] COMMAND`. Options before the command are read here, what
 * follows is the command's own. To add a command, add a row to the table. */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/nearest.h"
#include "proxy/server/environment.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/signals.h"
#include "tools/term.h"

static const struct cli_command commands[] = {
    {"lock", "run a program while it holds a lease", lock_run, false},
    {"get", "print what a key holds", get_run, true},
    {"set", "write a key, under your token or a lease of its own", set_run, false},
    {"take", "take from a number, if enough is left", take_run, false},
    {"lease", "tell who holds a resource", lease_run, true},
    {"revoke", "end a lease, whoever holds it", revoke_run, true},
    {"leases", "list the leases", leases_run, true},
    {"why", "tell who held a resource, who was refused and how late", why_run, true},
    {"top", "watch leases, waiters and rates", top_run, true},
    {"demo oversell", "a flash sale: what locks let through, and what a checked token does not",
     demo_oversell_run, false},
    {"demo basket", "orders over several articles: a basket is sold whole, and once",
     demo_basket_run, false},
    {"replay", "real order history as stock movements, audited SKU by SKU", replay_run, false},
    {"backup", "copy a store into one file, while writes go on", backup_run, true},
    {"restore", "put a backup in the store's place; every lease ends", restore_run, false},
    {"check", "look for damage in a store", check_run, true},
    {"move", "move a store to another place, from SQLite to PostgreSQL or back", move_run, false},
    {"guard create", "let rows of a table change only under their resource's token",
     guard_create_run, true},
    {"guard drop", "take the guard off a table", guard_drop_run, true},
    {"guard list", "list guarded tables, and whether their guards are whole", guard_list_run, true},
    {"audit verify", "tell whether an audit was changed or cut", audit_verify_run, true},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(void)
{
    printf("usage: stockade [-u URI] COMMAND [options]\n\n"
           "The command line of Stockade, a lock service whose tokens are checked where the data\n"
           "is.\n\n"
           "commands:\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-16s %s\n", commands[i].name, commands[i].summary);
    printf("\noptions, anywhere on the line (of `lock`: before the --):\n"
           "  -u, --uri URI    the server: stockade://[user:password@]host[:port], stockades:// by "
           "TLS,\n"
           "                   stockade+unix:PATH, or sqlite:PATH for a store without a daemon;\n"
           "                   default " CLI_DEFAULT_URI ".\n"
           "                   (without -u, demo and replay start private servers)\n"
           "      --password-file FILE\n"
           "                   the password, if the URI has none: FILE's only line\n"
           "  -h, --help       this text; `stockade COMMAND --help` explains one command\n"
           "  -V, --version    the version\n\n"
           "environment: STOCKADE_URI stands for -u, STOCKADE_PASSWORD_FILE for --password-file;\n"
           "STOCKADE_PASSWORD is the password itself\n\n"
           "exit codes: 0 ok, 1 failed or a promise was broken, 2 wrong usage,\n"
           "128 + n ended by signal n; a command's --help lists those that it has besides\n");
}

/* Find the command that argv[0..] begins with; `words` is how many of them are its name. */
static const struct cli_command *find_command(int argc, char **argv, int *words)
{
    for (int i = 0; i < COMMANDS; i++) {
        const char *name = commands[i].name;
        size_t first = strcspn(name, " ");

        if (strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0)
            continue;
        *words = name[first] == '\0' ? 1 : 2;
        if (*words == 1 || (argc > 1 && strcmp(argv[1], name + first + 1) == 0))
            return &commands[i];
    }
    return NULL;
}

static int wrong_usage(const char *what, const char *why)
{
    term_error("stockade: %s%s; see stockade --help", what, why);
    return CLI_USAGE;
}

/* Suggest what argv[0..] may have been meant to be: "demo" needs a second word. */
static int unknown_command(int argc, char **argv)
{
    const char *grouped = NULL;
    char said[200], why[100];

    (void)snprintf(said, sizeof said, "%s%s%s", argv[0], argc > 1 ? " " : "",
                   argc > 1 ? argv[1] : "");
    struct nearest one = nearest_to(bytes_of(argv[0])), both = nearest_to(bytes_of(said));
    for (int i = 0; i < COMMANDS; i++) {
        size_t first = strcspn(commands[i].name, " ");
        if (grouped == NULL && strlen(argv[0]) == first &&
            strncmp(argv[0], commands[i].name, first) == 0)
            grouped = commands[i].name;
        nearest_offer(&one, commands[i].name);
        nearest_offer(&both, commands[i].name);
    }
    const char *meant = grouped == NULL ? one.word : argc > 1 ? both.word : NULL;
    if (meant != NULL) {
        (void)snprintf(why, sizeof why, " is not a command; did you mean %s?", meant);
        return wrong_usage(grouped != NULL ? said : argv[0], why);
    }
    if (grouped != NULL) {
        (void)snprintf(why, sizeof why, " is not a command, but `%s` is", grouped);
        return wrong_usage(said, why);
    }
    return wrong_usage(said, " is not a command");
}

/* `demo --help`: the commands that begin with this word. */
static void print_group(const char *word)
{
    size_t len = strlen(word);

    printf("usage: stockade [-u URI] COMMAND [options]\n\ncommands:\n");
    for (int i = 0; i < COMMANDS; i++)
        if (strncmp(commands[i].name, word, len) == 0 && commands[i].name[len] == ' ')
            printf("  %-16s %s\n", commands[i].name, commands[i].summary);
}

static bool is_group(const char *word)
{
    size_t len = strlen(word);

    for (int i = 0; i < COMMANDS; i++)
        if (strncmp(commands[i].name, word, len) == 0 && commands[i].name[len] == ' ')
            return true;
    return false;
}

/* `stockade help [COMMAND]` */
static int help_on(struct cli *cli, int argc, char **argv)
{
    char help[] = "--help";
    int words = 0;

    if (argc == 0 || argv[0][0] == '-') {
        print_help();
        return CLI_OK;
    }
    const struct cli_command *command = find_command(argc, argv, &words);
    if (command != NULL) {
        char *asked[] = {argv[words - 1], help, NULL};
        return command->run(cli, 2, asked);
    }
    if (argc > 1 || !is_group(argv[0]))
        return unknown_command(argc, argv);
    print_group(argv[0]);
    return CLI_OK;
}

static int run_command(struct cli *cli, int argc, char **argv)
{
    int words = 0;

    if (argc == 0)
        return wrong_usage("a command is missing", "");
    if (strcmp(argv[0], "help") == 0)
        return help_on(cli, argc - 1, argv + 1);
    const struct cli_command *command = find_command(argc, argv, &words);
    if (command == NULL)
        return unknown_command(argc, argv);
    cli->looks = command->looks;
    return command->run(cli, argc - words + 1, argv + words - 1);
}

/* A variable that nobody reads was probably meant to be another one. */
static void warn_of_variables(void)
{
    char text[200];

    for (char **setting = environ; *setting != NULL; setting++)
        if (environment_complaint(*setting, text, sizeof text) != NULL)
            term_error("stockade: %s", text);
}

static bool reader_has_left(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO};
    return poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

/* What was printed has to be where it belongs (a disk may be full); a reader that has left wants no
 * more of it. */
static int close_output(int code)
{
    errno = 0;
    bool wrote = fflush(stdout) == 0 && ferror(stdout) == 0;
    bool left = reader_has_left();
    if ((fclose(stdout) == 0 && wrote) || left)
        return code;
    term_error("stockade: cannot write to stdout: %s",
               errno != 0 ? strerror(errno) : "not all of it was taken");
    return code == CLI_OK ? CLI_FAILED : code;
}

enum { GO_ON = -1 };

static int unknown_option(const struct option *longs, const char *word)
{
    struct nearest nearest = options_nearest(longs, word);
    char said[100];

    (void)snprintf(said, sizeof said, " is not an option%s%s%s",
                   nearest.word != NULL ? "; did you mean --" : "",
                   nearest.word != NULL ? nearest.word : "", nearest.word != NULL ? "?" : "");
    return wrong_usage(word, said);
}

/* Read the options behind argv[0], up to the next word, where optind is then. `group`: the word is
 * that of several commands; else NULL. Return GO_ON, or the exit code. */
static int read_options(struct cli *cli, const char *group, int argc, char **argv)
{
    static const struct option longs[] = {
        {"uri", required_argument, NULL, 'u'},
        {"password-file", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    int got;

    opterr = 0;
    optind = 0; /* glibc: start over */
    while ((got = getopt_long(argc, argv, "+:u:hV", longs, NULL)) != -1)
        switch (got) {
        case 'u': cli->uri = optarg; break;
        case 'p': cli->password_file = optarg; break;
        case 'h':
            if (group != NULL)
                print_group(group);
            else
                print_help();
            return CLI_OK;
        case 'V': printf("stockade " STOCKADE_VERSION "\n"); return CLI_OK;
        case ':': return wrong_usage(argv[optind - 1], " needs a value");
        default: return unknown_option(longs, argv[optind - 1]);
        }
    return GO_ON;
}

int main(int argc, char **argv)
{
    struct cli cli = {.uri = NULL};

    /* A reader that leaves (`stockade demo | head`) must not end us before we have cleaned up. */
    (void)signal(SIGPIPE, SIG_IGN);
    int code = read_options(&cli, NULL, argc, argv);
    if (code != GO_ON)
        return close_output(code);
    argc -= optind;
    argv += optind;
    if (argc > 0 && is_group(argv[0])) { /* options may stand between `demo` and its second word */
        char *group = argv[0];
        code = read_options(&cli, group, argc, argv);
        if (code != GO_ON)
            return close_output(code);
        argc -= optind - 1;
        argv += optind - 1;
        argv[0] = group;
    }
    warn_of_variables();
    code = close_output(run_command(&cli, argc, argv));
    buf_free(&cli.full_uri);
    if (code > CLI_SIGNAL)
        signals_end_by(code - CLI_SIGNAL);
    return code;
}
