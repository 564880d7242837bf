/* SPDX-License-Identifier: Apache-2.0 */
/* Who makes room at the admin address. */
#include "proxy/server/places.h"

#include "tests/unit/test.h"

enum { MAX = 3 };

struct guest {
    struct place *place;
    bool ended;
};

struct room {
    uv_loop_t loop;
    struct places *places;
    struct guest guests[MAX + 2];
};

static void on_end(void *context)
{
    struct guest *guest = context;
    guest->ended = true;
}

static void come(struct room *room, size_t i)
{
    room->guests[i].place = place_take(room->places, on_end, &room->guests[i]);
}

static void ask(struct room *room, size_t i)
{
    place_answer(room->guests[i].place);
    place_await(room->guests[i].place);
}

static void ignore(void *context)
{
    (void)context;
}

static void open_room(struct room *room)
{
    *room = (struct room){.places = NULL};
    assert_int_equal(uv_loop_init(&room->loop), 0);
    room->places = places_new(&room->loop, MAX, 1);
}

static void close_room(struct room *room)
{
    for (size_t i = 0; i < sizeof room->guests / sizeof *room->guests; i++)
        if (room->guests[i].place != NULL)
            place_leave(room->guests[i].place);
    places_close(room->places, ignore, NULL);
    assert_int_equal(uv_run(&room->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&room->loop), 0);
}

TEST(a_newcomer_is_spared_while_others_go_on_asking)
{
    struct room room;

    open_room(&room);
    come(&room, 0);
    come(&room, 1);
    ask(&room, 0);
    come(&room, 2);
    ask(&room, 1);
    ask(&room, 0);
    come(&room, 3);
    assert_false(room.guests[2].ended);
    assert_true(room.guests[1].ended);
    come(&room, 4);
    assert_false(room.guests[2].ended);
    assert_true(room.guests[0].ended);
    close_room(&room);
}

TEST(of_newcomers_the_first_makes_room)
{
    struct room room;

    open_room(&room);
    for (size_t i = 0; i <= MAX; i++)
        come(&room, i);
    assert_true(room.guests[0].ended);
    assert_false(room.guests[1].ended);
    close_room(&room);
}
