/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are built into a program as they are. The Makefile has to know that the object depends
 * on them. */
#ifndef STOCKADE_BASE_EMBED_H
#define STOCKADE_BASE_EMBED_H

/* Declare the bytes of a file, from `name` to `name`_end, where there is a zero. The path is from
 * the top, where the compiler runs. */
#define EMBED_FILE(name, path)                                                                     \
    __asm__(".pushsection .rodata\n"                                                               \
            ".local " #name ", " #name "_end\n" #name ": .incbin \"" path "\"\n" #name             \
            "_end: .byte 0\n"                                                                      \
            ".popsection\n");                                                                      \
    extern const char(name)[] __attribute__((visibility("hidden")));                               \
    extern const char name##_end[] __attribute__((visibility("hidden")))

#endif
