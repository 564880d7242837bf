/* SPDX-License-Identifier: Apache-2.0 */
/* The server's URI: which one is meant, and with which login. A password may stand in the URI, in
 * a file or in the environment; whatever reads the list of processes must not need to see it. */
#include "tools/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/bytes.h"
#include "fence/base/file.h"
#include "proxy/client/target.h"
#include "store/kinds.h"

enum { MEANT_MAX = 160 };
enum { PASSWORD_MAX = sizeof((struct uri_login *)NULL)->password - 1 };

/* The variable's value; NULL where it is not set or empty. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Read the file's only line. */
static bool read_password(const char *path, const char *origin, char *password,
                          struct failure *failure)
{
    struct buf text = {0};
    char why[FILE_WHY_SIZE];

    if (!file_read(path, PASSWORD_MAX + 2, &text, NULL, why)) /* with CR LF */
        return failure_set(failure, "%s %s: %s", origin, path, why);
    size_t len = text.len;
    if (len > 0 && text.data[len - 1] == '\n')
        len--;
    if (len > 0 && text.data[len - 1] == '\r')
        len--;
    text.data[len] = '\0';
    bool good = len > 0 && len <= PASSWORD_MAX && strcspn(text.data, "\n") == len;
    if (good)
        memcpy(password, text.data, len + 1);
    explicit_bzero(text.data, text.len);
    buf_free(&text);
    return good || failure_set(failure, "%s %s: takes a file with one line of 1 to %d bytes",
                               origin, path, PASSWORD_MAX);
}

/* The password that does not stand in the URI; "": there is none. */
static bool find_password(const struct cli *cli, char password[PASSWORD_MAX + 1],
                          struct failure *failure)
{
    const char *file = environment("STOCKADE_PASSWORD_FILE");
    const char *word = environment("STOCKADE_PASSWORD");

    password[0] = '\0';
    if (cli->password_file != NULL)
        return read_password(cli->password_file, "--password-file", password, failure);
    if (word != NULL) {
        if (strlen(word) > PASSWORD_MAX)
            return failure_set(failure, "STOCKADE_PASSWORD takes at most %d bytes", PASSWORD_MAX);
        memcpy(password, word, strlen(word) + 1);
        return true;
    }
    return file == NULL || read_password(file, "STOCKADE_PASSWORD_FILE", password, failure);
}

/* Append the password as URIs have it: each byte but letters and digits as %XX. */
static void append_encoded(struct buf *out, const char *password)
{
    for (const char *at = password; *at != '\0'; at++) {
        bool plain =
            (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
        buf_printf(out, plain ? "%c" : "%%%02X", (unsigned char)*at);
    }
}

/* What follows the scheme of a daemon's address, or NULL. */
static const char *after_scheme(const char *uri)
{
    const char *host = uri_after(uri, "stockade://");
    return host != NULL ? host : uri_after(uri, "stockades://");
}

/* Write the URI with this password, which has none of its own, to `out`. A file of the store needs
 * no login. */
static void append_with_login(struct buf *out, const char *uri, const char *password)
{
    const char *host = after_scheme(uri);

    if (host != NULL) {
        const char *at_sign = strrchr(host, '@');
        size_t user_len = at_sign != NULL ? (size_t)(at_sign - host) : 0;
        buf_append(out, uri, (size_t)(host - uri) + user_len);
        buf_append_text(out, ":");
        append_encoded(out, password);
        buf_append_text(out, at_sign != NULL ? at_sign : "@");
        buf_append_text(out, at_sign != NULL ? "" : host);
    } else {
        buf_append_text(out, uri);
        buf_append_text(out, strchr(uri, '?') != NULL ? "&password=" : "?password=");
        append_encoded(out, password);
    }
}

/* Whether a password is missing that the URI could have. */
static bool wants_password(const char *uri)
{
    const char *host = after_scheme(uri);
    const char *at_sign = host != NULL ? strrchr(host, '@') : NULL;

    if (host != NULL)
        return at_sign == NULL || memchr(host, ':', (size_t)(at_sign - host)) == NULL;
    return uri_after(uri, "stockade+unix:") != NULL && strstr(uri, "password=") == NULL;
}

/* Return a hint at the URI that may have been meant where the scheme is missing. "": there is none,
 * or the text has a password, which must not be shown. */
static const char *suggest_scheme(const char *said, char meant[MEANT_MAX])
{
    bool is_path = strchr(said, '/') != NULL || strstr(said, ".db") != NULL;

    if (said[0] == '\0' || said[0] == ':' || strpbrk(said, "@?") != NULL ||
        strstr(said, "://") != NULL || uri_after(said, "sqlite:") != NULL ||
        uri_after(said, "stockade") != NULL)
        return "";
    text_print(meant, MEANT_MAX, "; did you mean %s%s?", is_path ? "sqlite:" : "stockade://", said);
    return meant;
}

const char *cli_uri(struct cli *cli, struct failure *failure)
{
    const char *said = cli->uri, *origin = "-u";
    char password[PASSWORD_MAX + 1] = "", why[256], meant[MEANT_MAX];
    struct target target;

    if (cli->uri_is_store)
        origin = "--store";
    if (said == NULL) {
        said = environment("STOCKADE_URI");
        origin = "STOCKADE_URI";
    }
    if (said == NULL)
        said = CLI_DEFAULT_URI;
    bool wants = wants_password(said);
    if (wants && !find_password(cli, password, failure))
        return NULL;
    buf_clear(&cli->full_uri);
    if (password[0] != '\0')
        append_with_login(&cli->full_uri, said, password);
    else
        buf_append_text(&cli->full_uri, said);
    buf_append(&cli->full_uri, "", 1);
    if (!target_parse(cli->full_uri.data, &target, why, sizeof why)) {
        (void)failure_set(failure, "%s: %s%s", origin, why, suggest_scheme(said, meant));
        return NULL;
    }
    return cli->full_uri.data;
}

bool cli_finds_store(const struct cli *cli, const char *uri, struct failure *failure)
{
    struct target target;
    char why[256];
    const char *path =
        target_parse(uri, &target, why, sizeof why) ? uri_after(target.path, "sqlite:") : NULL;

    if (!cli->looks || target.kind != TARGET_EMBEDDED || path == NULL || access(path, F_OK) == 0 ||
        errno != ENOENT)
        return true;
    return failure_set(failure, "there is no %s", path);
}

bool cli_server(struct cli *cli, struct client_uri *server, struct failure *failure)
{
    const char *uri = cli_uri(cli, failure);

    if (uri == NULL)
        return false;
    if (uri_after(uri, "sqlite:") != NULL)
        return failure_set(failure, "-u takes stockade:// or stockade+unix: here: it talks to a "
                                    "daemon as Redis clients do");
    return client_uri_parse(server, "stockade", uri, failure);
}

const char *cli_store(struct cli *cli, const char **origin)
{
    const char *said = cli->uri, *store = environment("STOCKADE_STORE");
    const char *uri = environment("STOCKADE_URI");

    *origin = "-u";
    if (said == NULL && store != NULL) {
        *origin = "STOCKADE_STORE";
        return store;
    }
    if (said == NULL && uri != NULL && store_kind_of(uri) != NULL) {
        *origin = "STOCKADE_URI";
        said = uri;
    }
    if (said == NULL)
        return NULL;
    const char *lease = strstr(said, "?lease="); /* of no concern to who works on the store */
    if (lease == NULL && store_is_in_network(said))
        lease = strstr(said, "&lease=");
    buf_clear(&cli->full_uri);
    buf_append(&cli->full_uri, said, lease != NULL ? (size_t)(lease - said) : strlen(said));
    buf_append(&cli->full_uri, "", 1);
    return cli->full_uri.data;
}
