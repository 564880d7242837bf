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
INCLUDE_FILE(api_js, "api.js");
INCLUDE_FILE(leases_js, "leases.js");
INCLUDE_FILE(resource_js, "resource.js");
INCLUDE_FILE(lane_js, "lane.js");
INCLUDE_FILE(text_js, "text.js");

#define SCRIPT "text/javascript; charset=utf-8"

static const struct {
    const char *path, *type, *begin, *end;
} files[] = {
    {"/", "text/html; charset=utf-8", page_html, page_html_end},
    {"/page.css", "text/css; charset=utf-8", page_css, page_css_end},
    {"/page.js", SCRIPT, page_js, page_js_end},
    {"/api.js", SCRIPT, api_js, api_js_end},
    {"/leases.js", SCRIPT, leases_js, leases_js_end},
    {"/resource.js", SCRIPT, resource_js, resource_js_end},
    {"/lane.js", SCRIPT, lane_js, lane_js_end},
    {"/text.js", SCRIPT, text_js, text_js_end},
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
