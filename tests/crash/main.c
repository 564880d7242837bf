/* SPDX-License-Identifier: Apache-2.0 */
/* The crash disk: crash [SWEEP...], or crash --point POINT as a failure prints it. The last line is
 * `N passed, N failed`, counted in points. */
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "tests/crash/sweep.h"

enum { FAILURES_TOLD = 8, PROGRESS_EVERY = 1000 };

static const struct {
    const char *name;
    void (*run)(struct sweep *sweep);
} sweeps[] = {
    {"write", sweep_write}, {"again", sweep_again},   {"migrate", sweep_migrate},
    {"io", sweep_io},       {"memory", sweep_memory},
};

enum { SWEEPS = sizeof sweeps / sizeof *sweeps };

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
    if (sweep->only != NULL ? strcmp(name, sweep->only) != 0 : sweep->skip > 0) {
        sweep->skip -= sweep->skip > 0;
        return false;
    }
    memcpy(tally->point, name, sizeof name);
    tally->seen++;
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
        printf("FAILED %s\n%s\nagain: make crash POINT=%s\n", tally->point, why, tally->point);
    fflush(stdout);
    tally->point[0] = '\0';
}

/* The sweep in processes of its own, as many as it takes. */
static void run_sweep(void (*run)(struct sweep *sweep), struct sweep_tally *tally, const char *only,
                      bool every)
{
    int status = -1;

    tally->seen = 0;
    while (status != 0) {
        size_t seen = tally->seen;
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0) {
            struct sweep sweep = {
                .every = every, .only = only, .skip = seen, .prints = only != NULL, .tally = tally};
            memory_install();
            sweep.vfs = crash_vfs_new();
            run(&sweep);
            exit(0);
        }
        check(waitpid(pid, &status, 0) == pid);
        if (status == 0)
            return;
        tally->failed++;
        printf("FAILED %s\nthe process ended with %s %d\nagain: make crash POINT=%s\n",
               tally->point[0] != '\0' ? tally->point : "(outside of the points)",
               WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), tally->point);
        if (seen == tally->seen)
            return;
    }
}

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    struct sweep_tally *tally =
        mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *only = argc == 3 && strcmp(argv[1], "--point") == 0 ? argv[2] : NULL;
    bool every = argc > 1 && strcmp(argv[1], "--every") == 0;

    check(tally != MAP_FAILED);
    argc -= every;
    argv += every;
    for (int i = 0; i < SWEEPS; i++) {
        size_t before = tally->tried, len = strlen(sweeps[i].name);
        double start = seconds();
        if (only != NULL ? strncmp(only, sweeps[i].name, len) != 0 || only[len] != ':'
                         : !wanted(sweeps[i].name, argc, argv))
            continue;
        run_sweep(sweeps[i].run, tally, only, every);
        printf("%-8s %6zu points in %.1f s\n", sweeps[i].name, tally->tried - before,
               seconds() - start);
    }
    printf("points:");
    for (int i = 0; i < tally->kinds; i++)
        printf(" %zu %s%s", tally->kind[i].count, tally->kind[i].name,
               i + 1 < tally->kinds ? "," : "");
    printf("\n%zu passed, %zu failed\n", tally->tried - tally->failed, tally->failed);
    return tally->failed == 0 && tally->tried > 0 ? 0 : 1;
}
