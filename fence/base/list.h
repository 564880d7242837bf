/* SPDX-License-Identifier: Apache-2.0 */
/* An intrusive doubly linked list: the links live in the element, so linking never allocates and an
 * element can leave from the middle. A head and an unlinked element point at themselves. */
#ifndef STOCKADE_BASE_LIST_H
#define STOCKADE_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next, *prev;
};

/* The struct of type `type` whose member `member` is at `link`. */
#define list_entry(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Make an empty list, or an unlinked element. */
static inline void list_init(struct list *list)
{
    list->next = list->prev = list;
}

/* Return whether the list is empty, or the element unlinked. */
static inline bool list_empty(const struct list *list)
{
    return list->next == list;
}

/* Link the element in front of `at`: at the tail, where `at` is the head. */
static inline void list_insert(struct list *at, struct list *element)
{
    element->prev = at->prev;
    element->next = at;
    at->prev->next = element;
    at->prev = element;
}

/* Link the element at the tail. */
static inline void list_append(struct list *head, struct list *element)
{
    list_insert(head, element);
}

/* Unlink the element, which then points at itself: removing it twice is harmless. */
static inline void list_remove(struct list *element)
{
    element->prev->next = element->next;
    element->next->prev = element->prev;
    list_init(element);
}

/* Unlink the first element and return it, or NULL. */
static inline struct list *list_pop(struct list *head)
{
    struct list *first = head->next;
    if (first == head)
        return NULL;
    head->next = first->next; /* written out, for static analysis to see who follows */
    first->next->prev = head;
    list_init(first);
    return first;
}

/* Move all elements of `from` to the tail of `to`, in order. */
static inline void list_splice(struct list *to, struct list *from)
{
    if (list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    list_init(from);
}

#endif
