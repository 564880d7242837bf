/* SPDX-License-Identifier: Apache-2.0 */
/* See process.h. */
#include "proxy/server/process.h"

#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/base/file.h"
#include "fence/base/mem.h"
#include "fence/base/uri.h"

/* For the store, the lease service, admin HTTP (over TLS it takes up to 560), and connections that
 * are being closed. */
enum { FILES_RESERVED = 768, PASSWORD_MAX = 512, LARGE_BYTES = 512 << 10 };

char **process_take_arguments(int argc, char **argv)
{
    char **copy = mem_zalloc(((size_t)argc + 1) * sizeof *copy);

    for (int i = 0; i < argc; i++) {
        struct buf masked = {0};
        size_t len = strlen(argv[i]);
        copy[i] = mem_strdup(argv[i]);
        if (strstr(argv[i], "://") == NULL && strstr(argv[i], "password=") == NULL)
            continue;
        uri_append_masked(&masked, argv[i]);
        explicit_bzero(argv[i], len);
        memcpy(argv[i], masked.data, masked.len < len ? masked.len : len);
        buf_free(&masked);
    }
    return copy;
}

void process_free_arguments(char **arguments)
{
    for (char **argument = arguments; *argument != NULL; argument++)
        mem_free_secret(*argument);
    free(arguments);
}

void process_hide_memory(void)
{
    struct rlimit limit;

    /* The limit is for the system's usual way; a program that takes dumps (systemd-coredump) is
     * kept away by the other, which keeps debuggers of the same user away, too. */
    if (getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = 0;
        (void)setrlimit(RLIMIT_CORE, &limit);
    }
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

void process_prepare(void)
{
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    /* Give a large reply back to the system once it is sent. (By default the first one that is
     * freed raises the threshold, and later ones stay with the process.) */
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    umask(S_IRWXG | S_IRWXO);
}

size_t process_fit_connections(size_t connections, const struct log *log)
{
    struct rlimit limit, raised;
    rlim_t wanted = connections + FILES_RESERVED;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return connections;
    raised = (struct rlimit){wanted, limit.rlim_max < wanted ? wanted : limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        return connections;
    raised = (struct rlimit){limit.rlim_max < wanted ? limit.rlim_max : wanted, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    if (limit.rlim_cur >= wanted)
        return connections;
    size_t fit =
        limit.rlim_cur > 2 * FILES_RESERVED ? limit.rlim_cur - FILES_RESERVED : limit.rlim_cur / 2;
    log_warn(log, "max-connections is %zu: this process may open no more than %llu files", fit,
             (unsigned long long)limit.rlim_cur);
    return fit;
}

static uint64_t microseconds(struct timeval time)
{
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_usec;
}

/* The second number there is the pages in memory. */
static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");

    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &pages, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void process_usage(struct engine_usage *usage)
{
    struct rusage used;

    usage->rss_bytes = resident_bytes();
    if (getrusage(RUSAGE_SELF, &used) != 0)
        return;
    usage->rss_peak_bytes = (uint64_t)used.ru_maxrss * 1024;
    if (usage->rss_peak_bytes < usage->rss_bytes) /* the kernel brings it up to date now and then */
        usage->rss_peak_bytes = usage->rss_bytes;
    usage->cpu_user_us = microseconds(used.ru_utime);
    usage->cpu_system_us = microseconds(used.ru_stime);
}

/* Read a file with secrets, of at most `max` bytes. False: `why` says why not. */
static bool read_secrets(const char *path, size_t max, const struct log *log, struct buf *text,
                         char *why, size_t why_size)
{
    char reason[FILE_WHY_SIZE];
    mode_t mode;

    if (!file_read(path, max, text, &mode, reason)) {
        text_print(why, why_size, "%s", reason);
        return false;
    }
    if ((mode & (S_IRGRP | S_IROTH)) != 0)
        log_warn(log, "%s can be read by others than its owner: chmod 600", path);
    return true;
}

static char *take_line(struct buf *text)
{
    char *line = text->data;
    size_t len = text->len;

    if (len > 0 && line[len - 1] == '\n')
        len--;
    if (len > 0 && line[len - 1] == '\r')
        len--;
    if (len == 0 || len > PASSWORD_MAX || memchr(line, '\n', len) != NULL ||
        memchr(line, '\0', len) != NULL)
        return NULL;
    line[len] = '\0';
    return mem_strdup(line);
}

char *process_read_password(const char *path, const struct log *log, char *why, size_t why_size)
{
    struct buf text = {0};

    if (!read_secrets(path, PASSWORD_MAX + 2, log, &text, why, why_size))
        return NULL;
    char *password = take_line(&text);
    explicit_bzero(text.data, text.len);
    buf_free(&text);
    if (password == NULL)
        snprintf(why, why_size, "expected one line of 1 to %d bytes", PASSWORD_MAX);
    return password;
}

struct acl *process_read_users(const char *path, const struct log *log, char *why, size_t why_size)
{
    struct buf text = {0};
    char reason[ACL_WHY_SIZE];
    struct acl *acl = NULL;

    if (!read_secrets(path, ACL_FILE_MAX, log, &text, why, why_size))
        return NULL;
    acl = acl_parse(buf_bytes(&text), commands, commands_count, reason);
    if (acl == NULL)
        snprintf(why, why_size, "%s", reason);
    explicit_bzero(text.data, text.len);
    buf_free(&text);
    return acl;
}
