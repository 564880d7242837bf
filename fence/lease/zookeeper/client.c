/* SPDX-License-Identifier: Apache-2.0 */
/* See client.h. */
#include "fence/lease/zookeeper/client.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "fence/base/bytes.h"

#define LIBRARY "libzookeeper_mt.so.2"
#define PACKAGE "libzookeeper-mt2"

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
#define X(name) {#name, offsetof(struct zk_client, name)},
    ZK_CLIENT_MAP(X)
#undef X
};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/* The first object is the program itself; one that was linked statically names no interpreter. */
static int look_for_interpreter(struct dl_phdr_info *program, size_t size, void *context)
{
    bool *found = context;

    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++)
        *found |= program->dlpi_phdr[i].p_type == PT_INTERP;
    return 1;
}

/* What dlopen brings into a static program comes with a C library of its own, and crashes. */
static bool can_load(void)
{
    bool dynamic = false;

    (void)dl_iterate_phdr(look_for_interpreter, &dynamic);
    return dynamic;
}

bool zk_client_load(struct zk_client *client, char *why, size_t why_size)
{
    if (!can_load()) {
        text_print(why, why_size,
                   "zookeeper:// is not for programs that are linked statically, as this one is: "
                   "they cannot load ZooKeeper's C client");
        return false;
    }
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < SYMBOLS && library != NULL; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (symbol == NULL)
            library = NULL;
        memcpy((char *)client + symbols[i].offset, &symbol, sizeof symbol);
    }
    if (library == NULL)
        text_print(why, why_size,
                   "zookeeper:// needs ZooKeeper's C client: install the package " PACKAGE " (%s)",
                   dlerror());
    return library != NULL;
}
