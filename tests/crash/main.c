/* SPDX-License-Identifier: Apache-2.0 */
/* The crash disk: crash [seed=N] [every] [sample=N] [point=POINT] [SWEEP...]. A failure prints its
 * POINT. After many failures it stops. The last line is `N passed, N failed`, counted in points. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "store/sqlite/sql_memory.h"
#include "tests/crash/sweep.h"
#include "tests/disk/fault_memory.h"
#include "tests/unit/folder.h"

enum { FAILURES_TOLD = 4, FAILURES_MAX = 12, PROGRESS_EVERY = 1000 };
/* Far more than a point takes, or what comes before the first one: SIGALRM ends one that hangs. */
enum { POINT_SECONDS_MAX = 300 };

static const struct {
    const char *name;
    void (*run)(struct sweep *sweep);
} sweeps[] = {
    {"write", sweep_write}, {"again", sweep_again},   {"migrate", sweep_migrate},
    {"io", sweep_io},       {"memory", sweep_memory},
};

enum { SWEEPS = sizeof sweeps / sizeof *sweeps };

/* For a build with the leak sanitizer: requests that wait for a store that is lost are never
 * answered, and the process would end with them. Everything else has to be given back. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:request_new\nleak:command_start_return\nleak:guard_command\nleak:buf_reserve\n"
           "leak:acquire_new\n";
}

static void count(struct sweep_tally *tally, const char *kind)
{
    int at = 0;

    while (at < tally->kinds && strcmp(tally->kind[at].name, kind) != 0)
        at++;
    check(at < SWEEP_KINDS_MAX);
    if (at == tally->kinds)
        snprintf(tally->kind[tally->kinds++].name, sizeof tally->kind[at].name, "%s", kind);
    tally->kind[at].count++;
}

bool sweep_point(struct sweep *sweep, const char *kind, const char *format, ...)
{
    struct sweep_tally *tally = sweep->tally;
    char name[SWEEP_NAME_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    alarm(POINT_SECONDS_MAX);
    if (sweep->skip > 0) {
        sweep->skip--;
        return false;
    }
    if (tally->failed >= FAILURES_MAX)
        exit(0);
    if (sweep->only != NULL ? strcmp(name, sweep->only) != 0 : tally->seen++ % sweep->sample != 0)
        return false;
    memcpy(tally->point, name, sizeof name);
    tally->tried++;
    count(tally, kind);
    if (tally->tried % PROGRESS_EVERY == 0) {
        printf("  %zu points, now at %s\n", tally->tried, name);
        fflush(stdout);
    }
    return true;
}

void sweep_report(struct sweep *sweep, const char *why)
{
    struct sweep_tally *tally = sweep->tally;

    if (why != NULL && why[0] != '\0' && ++tally->failed <= FAILURES_TOLD)
        printf("FAILED %s\n%s\nagain: make crash SEED=%llu POINT=%s\n", tally->point, why,
               (unsigned long long)sweep->seed, tally->point);
    fflush(stdout);
    tally->point[0] = '\0';
}

/* The sweep in processes of its own, as many as it takes. */
static void run_sweep(void (*run)(struct sweep *sweep), const struct sweep *options)
{
    struct sweep_tally *tally = options->tally;
    int status = -1;

    for (tally->seen = 0; status != 0 && tally->failed < FAILURES_MAX;) {
        size_t seen = tally->seen;
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            struct sweep sweep = *options;
            sweep.skip = seen;
            alarm(POINT_SECONDS_MAX);
            sqlite3_config(SQLITE_CONFIG_SINGLETHREAD); /* as we are, and it is quicker */
            sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
            sql_memory_install();
            fault_memory_install();
            sweep.machine = machine_new();
            run(&sweep);
            exit(0);
        }
        check(waitpid(pid, &status, 0) == pid);
        if (status == 0)
            return;
        tally->failed++;
        printf("FAILED %s\nthe process ended with %s %d\nagain: make crash SEED=%llu POINT=%s\n",
               tally->point[0] != '\0' ? tally->point : "(outside of the points)",
               WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
               (unsigned long long)options->seed, tally->point);
        fflush(stdout);
        if (seen == tally->seen)
            return;
    }
}

/* Return which sweeps are named, and fill in the options. A word that is neither ends the program.
 */
static unsigned parse(int argc, char **argv, struct sweep *options)
{
    unsigned named = 0;

    options->sample = 1;
    for (int i = 1; i < argc; i++) {
        bool known = true;
        if (strcmp(argv[i], "every") == 0)
            options->every = true;
        else if (strncmp(argv[i], "sample=", 7) == 0)
            options->sample = strtoul(argv[i] + 7, NULL, 10);
        else if (strncmp(argv[i], "seed=", 5) == 0)
            options->seed = strtoul(argv[i] + 5, NULL, 10);
        else if (strncmp(argv[i], "point=", 6) == 0)
            options->only = argv[i] + 6;
        else
            known = false;
        for (int k = 0; k < SWEEPS; k++) {
            size_t len = strlen(sweeps[k].name);
            if (strcmp(argv[i], sweeps[k].name) == 0 ||
                (options->only != NULL && strncmp(options->only, sweeps[k].name, len) == 0))
                named |= 1u << k;
            known |= strcmp(argv[i], sweeps[k].name) == 0;
        }
        if (!known || options->sample == 0) {
            fprintf(stderr, "crash: what is '%s'? tests/crash/crash.mk tells the words\n", argv[i]);
            exit(2);
        }
    }
    options->prints = options->only != NULL;
    return named;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Go to work in a folder of our own, with the file that host.h speaks of. */
static void work_in(char *folder, size_t size)
{
    folder_make(folder, size);
    check(chdir(folder) == 0);
    int file = open(HOST_PATH, O_CREAT | O_WRONLY, 0600);
    check(file >= 0 && close(file) == 0);
}

int main(int argc, char **argv)
{
    char folder[64];
    struct sweep_tally *tally =
        mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sweep options = {.tally = tally};
    unsigned named = parse(argc, argv, &options);

    check(tally != MAP_FAILED);
    work_in(folder, sizeof folder);
    for (int i = 0; i < SWEEPS; i++) {
        size_t before = tally->tried;
        double start = seconds();
        if (named != 0 && (named & 1u << i) == 0)
            continue;
        run_sweep(sweeps[i].run, &options);
        printf("%-8s %6zu points in %.1f s\n", sweeps[i].name, tally->tried - before,
               seconds() - start);
        fflush(stdout);
    }
    folder_remove(folder);
    printf("points:");
    for (int i = 0; i < tally->kinds; i++)
        printf(" %zu %s%s", tally->kind[i].count, tally->kind[i].name,
               i + 1 < tally->kinds ? "," : "");
    printf("\n%zu passed, %zu failed\n", tally->tried - tally->failed, tally->failed);
    return tally->failed == 0 && tally->tried > 0 ? 0 : 1;
}
