/* observer.h: the name by which an observer asks a process for its numbers (observer.c;
 * tools/kmem/info/observer_client.c). */
#ifndef KM_OBSERVER_H
#define KM_OBSERVER_H

/* Of Linux' abstract sockets, with the process's number behind it. The answer is one byte and a descriptor: JSON, as
 * kmem_print_json writes it, in memory that nobody can change any more. The byte alone says that there is no answer
 * just now. Others than who may ask get nothing. */
#define KM_OBSERVER_NAME	"libkmem-observer-%u"
#define KM_OBSERVER_NAME_BYTES	40u

#endif
