/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzzers share: libFuzzer's entry points, and the cutting up of inputs. */
#ifndef STOCKADE_TESTS_FUZZ_H
#define STOCKADE_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

/* libFuzzer calls these: once, and with each input. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Cut off what stands before the separator, or all, and move `rest` behind it. */
struct bytes fuzz_cut(struct bytes *rest, char separator);
/* Take the first byte, or 0 where there is none. */
unsigned fuzz_byte(struct bytes *rest);
/* A file in memory that has a path. All zero is a new one. */
struct fuzz_file {
    int fd;
    char path[32];
};

/* Make this its content. */
void fuzz_file_write(struct fuzz_file *file, struct bytes content);
/* Say what is wrong and abort, which libFuzzer reports with the input. */
_Noreturn void fuzz_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
