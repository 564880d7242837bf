/* SPDX-License-Identifier: Apache-2.0 */
/* The page: its style and its script are built in. */
#include "tools/report/report.h"

#include <errno.h>
#include <string.h>

#include "fence/base/embed.h"

EMBED_FILE(report_css, "tools/report/report.css");
EMBED_FILE(report_js, "tools/report/report.js");

#define HEAD                                                                                       \
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"                      \
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"                   \
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "                  \
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"                    \
    "<link rel=\"icon\" href=\"data:,\">\n<title>Stockade: who oversells</title>\n<style>\n"

FILE *report_open(const char *path, struct failure *failure)
{
    FILE *file = fopen(path, "we");

    if (file == NULL)
        (void)failure_set(failure, "cannot write %s: %s", path, strerror(errno));
    return file;
}

bool report_write(FILE *file, const char *path, struct bytes json, struct failure *failure)
{
    const char *const parts[] = {HEAD, report_css,
                                 "</style>\n</head>\n<body>\n<main id=\"report\"></main>\n"
                                 "<p id=\"story\" role=\"status\" hidden></p>\n"
                                 "<noscript>This page draws its data with a script.</noscript>\n"
                                 "<script type=\"application/json\" id=\"data\">\n"};
    bool good = true;

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        good = fputs(parts[i], file) >= 0 && good;
    good = fwrite(json.data, 1, json.len, file) == json.len && good;
    good = fprintf(file, "\n</script>\n<script>\n%s</script>\n</body>\n</html>\n", report_js) > 0 &&
           good;
    good = fclose(file) == 0 && good;
    return good || failure_set(failure, "cannot write %s: %s", path, strerror(errno));
}
