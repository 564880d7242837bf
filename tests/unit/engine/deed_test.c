/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever can be done says what it does, so that the right which that needs is asked for. (Which
 * rights those are is in tests/system/test_acl.py.) */
#include "tests/unit/test.h"

#include <string.h>

#include "proxy/engine/command/command.h"
#include "proxy/engine/lockkeys/scripts.h"

static void assert_said(const struct command *command)
{
    if (command->deed == DEED_NOT_SAID)
        fail_msg("%s does not say what it does", command->name);
    for (const struct subcommand *sub = command->subcommands; sub != NULL && sub->name != NULL;
         sub++)
        if (sub->deed == DEED_NOT_SAID)
            fail_msg("%s does not say what it does", sub->name);
}

TEST(each_command_names_its_deed)
{
    for (size_t i = 0; i < commands_count; i++)
        assert_said(&commands[i]);
    for (size_t i = 0; i < lock_commands_count; i++)
        assert_said(&lock_commands[i]);
    assert_said(&lock_command_refused);
    assert_said(&lock_command_token);
    assert_said(&lock_command_forget);
}

TEST(each_script_has_a_verb)
{
    size_t i = 0;

    for (; lock_script_at(i) != NULL; i++)
        if (lock_script_at(i)->form->verb == LOCK_NO_VERB)
            fail_msg("script %s of %s does nothing", lock_script_at(i)->sha1,
                     lock_script_at(i)->library);
    assert_true(i > 50);
}

/* Of the scripts of this one's library: how many that are of `verb` are done, or else are not. */
static size_t count_of(const struct lock_script *one, enum lock_verb verb, bool done)
{
    const struct lock_script *script;
    size_t count = 0;

    for (size_t i = 0; (script = lock_script_at(i)) != NULL; i++)
        count += strcmp(script->library, one->library) == 0 && script->form->verb == verb &&
                 (script->form->refused == NULL) == done;
    return count;
}

/* Most libraries acquire by SET, which any may send; so this is of all that have a script. */
TEST(whoever_can_acquire_by_a_library_can_keep_and_give_back_what_it_has)
{
    const struct lock_script *script;

    for (size_t i = 0; (script = lock_script_at(i)) != NULL; i++) {
        if (script->form->refused != NULL)
            continue;
        if (count_of(script, LOCK_GIVE, true) == 0)
            fail_msg("%s can acquire, and not give back", script->library);
        if (count_of(script, LOCK_GIVE, false) + count_of(script, LOCK_EXTEND, false) > 0)
            fail_msg("%s acquires what it cannot keep or give back: refuse that, too",
                     script->library);
    }
}

TEST(the_command_that_stands_for_a_deed_has_its_category)
{
    struct command_index index;

    command_index_fill(&index, commands, commands_count);
    for (enum deed deed = DEED_NOT_SAID + 1; deed < DEEDS_END; deed++) {
        const struct deed_needs *needs = deed_needs(deed);
        if (needs->command == NULL)
            continue;
        const struct command *command = command_find(&index, bytes_of(needs->command));
        assert_non_null(command);
        assert_int_equal(command_category(command), needs->category);
    }
}
