/* SPDX-License-Identifier: Apache-2.0 */
#include "fence/base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "fence/base/bytes.h"

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

bool library_load(const struct library *library, void *pointers, char *why, size_t why_size)
{
    if (!can_load()) {
        text_print(why, why_size,
                   "%s is not for programs that are linked statically, as this one is: they cannot "
                   "load %s",
                   library->scheme, library->what);
        return false;
    }
    void *loaded = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < library->count && loaded != NULL; i++) {
        void *symbol = dlsym(loaded, library->symbols[i].name);
        if (symbol == NULL)
            loaded = NULL;
        memcpy((char *)pointers + library->symbols[i].offset, &symbol, sizeof symbol);
    }
    if (loaded == NULL)
        text_print(why, why_size, "%s needs %s: install the package %s (%s)", library->scheme,
                   library->what, library->package, dlerror());
    return loaded != NULL;
}
