/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is never NULL. Queues and requests are bounded, so running out means that the machine
 * is out: the process aborts with a message rather than limp on; acknowledged data is on disk. */
#ifndef STOCKADE_BASE_MEM_H
#define STOCKADE_BASE_MEM_H

#include <stddef.h>

/* As malloc; the caller frees what these functions return with free(). */
void *mem_alloc(size_t size);
/* As aligned_alloc: at a multiple of `to`, a power of two that divides `size`. */
void *mem_aligned(size_t to, size_t size);
/* Zeroed, as calloc. */
void *mem_zalloc(size_t size);
/* As realloc. */
void *mem_realloc(void *old, size_t size);
/* As strdup. */
char *mem_strdup(const char *text);
/* As free, for a text that nobody shall find in the memory later. May be NULL. */
void mem_free_secret(char *text);

#endif
