/* SPDX-License-Identifier: Apache-2.0 */
/* The assembler puts the files into the program as they are; the Makefile knows that this object
 * depends on them. */
#include "proxy/server/page/page.h"

#include <string.h>

/* Include a file as read-only bytes from NAME to NAME_end. Paths are from the top, where the
 * compiler runs. */
#define INCLUDE_FILE(name, path)                                                                   \
    __asm__(".pushsection .rodata\n"                                                               \
            ".local " #name ", " #name "_end\n" #name ": .incbin \"proxy/server/page/" path        \
            "\"\n" #name "_end:\n"                                                                 \
            ".popsection\n");                                                                      \
    extern const char name[] __attribute__((visibility("hidden")));                                \
    extern const char name##_end[] __attribute__((visibility("hidden")))

INCLUDE_FILE(page_html, "page.html");
INCLUDE_FILE(page_css, "page.css");
INCLUDE_FILE(page_js, "page.js");
INCLUDE_FILE(page_lane_js, "lane.js");

static const struct {
    const char *path, *type, *begin, *end;
} files[] = {
    {"/", "text/html; charset=utf-8", page_html, page_html_end},
    {"/page.css", "text/css; charset=utf-8", page_css, page_css_end},
    {"/page.js", "text/javascript; charset=utf-8", page_js, page_js_end},
    {"/lane.js", "text/javascript; charset=utf-8", page_lane_js, page_lane_js_end},
};

bool page_find(const char *path, struct page_file *file)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(path, files[i].path) == 0) {
            *file = (struct page_file){
                .type = files[i].type,
                .body = {files[i].begin, (size_t)(files[i].end - files[i].begin)},
            };
            return true;
        }
    }
    return false;
}
