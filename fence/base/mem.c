/* SPDX-License-Identifier: Apache-2.0 */
/* malloc and its kin, checked once here. */
#include "fence/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *granted(void *memory, size_t size)
{
    /* LCOV_EXCL_START: out of memory ends the process */
    if (memory == NULL && size != 0) {
        fprintf(stderr, "stockade: out of memory (%zu bytes)\n", size);
        abort();
    }
    /* LCOV_EXCL_STOP */
    return memory;
}

void *mem_alloc(size_t size)
{
    return granted(malloc(size), size);
}

void *mem_aligned(size_t to, size_t size)
{
    return granted(aligned_alloc(to, size), size);
}

void *mem_zalloc(size_t size)
{
    return granted(calloc(1, size), size);
}

void *mem_realloc(void *old, size_t size)
{
    return granted(realloc(old, size), size);
}

char *mem_strdup(const char *text)
{
    return granted(strdup(text), strlen(text) + 1);
}

void mem_free_secret(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}
