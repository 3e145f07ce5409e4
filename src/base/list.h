/*
 * list.h: intrusive doubly linked lists. Invariant: an entry on no list points to itself or was never initialised,
 * and only the holder of the list's lock uses the links of an entry.
 */
#ifndef KM_BASE_LIST_H
#define KM_BASE_LIST_H

#include "atomic.h"
#include "cc.h"
#include "invariant.h"

struct km_list {
	struct km_list *next, *prev;
};

km_inline void km_list_init(struct km_list *list)
{
	list->next = list->prev = list;
}

km_inline bool km_list_empty(const struct km_list *list)
{
	return list->next == list;
}

km_inline void km_list_insert(struct km_list *entry, struct km_list *before, struct km_list *after)
{
	km_debug(before->next == after && after->prev == before, "neighbours on a list point to each other");
	after->prev = entry;
	entry->next = after;
	entry->prev = before;
	before->next = entry;
}

km_inline void km_list_add_head(struct km_list *entry, struct km_list *list)
{
	km_list_insert(entry, list, list->next);
}

km_inline void km_list_add_tail(struct km_list *entry, struct km_list *list)
{
	km_list_insert(entry, list->prev, list);
}

km_inline void km_list_del(struct km_list *entry)
{
	km_debug(entry->next->prev == entry && entry->prev->next == entry,
		 "the neighbours of an entry point to the entry");
	entry->next->prev = entry->prev;
	entry->prev->next = entry->next;
	entry->next = entry->prev = entry;
}

#define km_list_first(list, type, member) km_container_of((list)->next, type, member)
#define km_list_last(list, type, member)  km_container_of((list)->prev, type, member)
#define km_list_for_each(entry, list)                                                              \
	for (struct km_list *entry = (list)->next; entry != (list); entry = entry->next)
/* The same, with `item` as the entry's structure; the list is its `member`. At the end `item` points at no structure,
 * perhaps with a wrong alignment: its member is not accessed. */
#define km_list_for_each_entry(type, item, list, member)                                           \
	for (type *item = km_list_first(list, type, member);                                       \
	     (const char *)item + offsetof(type, member) != (const char *)(list);                  \
	     item = km_list_first(&item->member, type, member))
#define km_list_for_each_safe(entry, list)                                                         \
	for (struct km_list *entry = (list)->next, *next_##entry = entry->next; entry != (list);   \
	     entry = next_##entry, next_##entry = entry->next)
/* Walk at most `most` entries. After a fork by a signal handler, a list that another thread was changing may be a
 * circle in the child. So the child must walk no more entries than the list's count. */
#define km_list_for_some(entry, list, most)                                                        \
	for (size_t left_##entry = (most); left_##entry; left_##entry = 0)                         \
		for (struct km_list *entry = (list)->next; entry != (list) && left_##entry;        \
		     entry = entry->next, left_##entry--)
#define km_list_for_some_safe(entry, list, most)                                                   \
	for (size_t left_##entry = (most); left_##entry; left_##entry = 0)                         \
		for (struct km_list *entry = (list)->next, *next_##entry = entry->next;            \
		     entry != (list) && left_##entry;                                              \
		     entry = next_##entry, next_##entry = entry->next, left_##entry--)

/* Push an entry to a list without a lock. link: the entry's pointer to the next entry. A taker takes the whole list, by
 * km_swap_acquire(head, NULL). So no thread waits for another thread, or for itself in a signal handler. Release: the
 * taker sees what was written to the entry before. */
#define km_list_push(head, entry, link)                                                            \
	do {                                                                                       \
		__typeof__(*(head)) first_ = km_load(head);                                        \
		do                                                                                 \
			(link) = first_;                                                           \
		while (!km_cas_release((head), &first_, (entry)));                                 \
	} while (0)

#endif
