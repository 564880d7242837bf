/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/page/page.h"

#include <string.h>

#include "fence/base/embed.h"

EMBED_FILE(page_html, "proxy/server/page/page.html");
EMBED_FILE(page_css, "proxy/server/page/page.css");
EMBED_FILE(page_js, "proxy/server/page/page.js");
EMBED_FILE(api_js, "proxy/server/page/api.js");
EMBED_FILE(leases_js, "proxy/server/page/leases.js");
EMBED_FILE(resource_js, "proxy/server/page/resource.js");
EMBED_FILE(lane_js, "proxy/server/page/lane.js");
EMBED_FILE(text_js, "proxy/server/page/text.js");

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
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (strcmp(path, files[i].path) == 0) {
            *file = (struct page_file){
                .type = files[i].type,
                .body = {files[i].begin, (size_t)(files[i].end - files[i].begin)},
            };
            return true;
        }
    return false;
}
