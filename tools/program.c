/* SPDX-License-Identifier: Apache-2.0 */
/* fork and exec, and the end of it. */
#include "tools/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/clock.h"

enum { END_LIMIT_MS = 3000 };

extern char **environ;

/* In the child. */
static void forget_stockade_settings(void)
{
    char name[128];

    for (char **entry = environ; *entry != NULL;) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "STOCKADE_", 9) == 0 && length < sizeof name) {
            memcpy(name, *entry, length);
            name[length] = '\0';
            (void)unsetenv(name); /* moves the rest up */
        } else {
            entry++;
        }
    }
}

bool program_start(struct program *program, char *const *argv, const char *name, const char *folder,
                   int out, const struct signals *signals, struct failure *failure)
{
    pid_t parent = getpid();

    (void)snprintf(program->log_path, sizeof program->log_path, "%s/%s.log", folder, name);
    int log = open(program->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) {
        return failure_set(failure, "cannot write %s: %s", program->log_path, strerror(errno));
    }
    program->pid = fork();
    if (program->pid == 0) {
        signals_before_exec(signals, parent);
        forget_stockade_settings();
        (void)dup2(out >= 0 ? out : log, STDOUT_FILENO);
        (void)dup2(log, STDERR_FILENO);
        (void)execvp(argv[0], argv);
        dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    (void)close(log);
    if (program->pid < 0) {
        program->pid = 0;
        return failure_set(failure, "cannot start %s: %s", name, strerror(errno));
    }
    return true;
}

bool program_has_ended(struct program *program)
{
    if (program->pid != 0 && waitpid(program->pid, NULL, WNOHANG) == program->pid) {
        program->pid = 0;
    }
    return program->pid == 0;
}

void program_end(struct program *program, struct signals *signals)
{
    int64_t deadline_ms = clock_now_ms(&clock_monotonic) + END_LIMIT_MS;

    if (program->pid == 0) {
        return;
    }
    (void)kill(program->pid, SIGTERM);
    while (!program_has_ended(program)) {
        int64_t left_ms = deadline_ms - clock_now_ms(&clock_monotonic);
        if (left_ms <= 0) {
            (void)kill(program->pid, SIGKILL);
            (void)waitpid(program->pid, NULL, 0);
            program->pid = 0;
            return;
        }
        (void)signals_wait(signals, -1, left_ms);
    }
}

const char *program_last_words(const struct program *program, char *out, size_t size)
{
    char line[256];
    FILE *file = fopen(program->log_path, "re");

    out[0] = '\0';
    if (file == NULL) {
        return out;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0') {
            (void)snprintf(out, size, "; it said: %s", line);
        }
    }
    (void)fclose(file);
    return out;
}
