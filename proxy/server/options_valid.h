/* SPDX-License-Identifier: Apache-2.0 */
/* Private to options: what a value must look like. Each returns false and says in `why` what is
 * right; the caller says what was given. */
#ifndef STOCKADE_SERVER_OPTIONS_VALID_H
#define STOCKADE_SERVER_OPTIONS_VALID_H

#include <stdbool.h>
#include <stddef.h>

bool valid_listen(const char *text, char *why, size_t why_size);
bool valid_store(const char *text, char *why, size_t why_size);
bool valid_lease(const char *text, char *why, size_t why_size);
bool valid_admin(const char *text, char *why, size_t why_size);
bool valid_choice(const char *choices, const char *text, char *why, size_t why_size);

#endif
