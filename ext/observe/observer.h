/*
 * observer.h: the socket name used by observers to ask a process for statistics (observer.c;
 * tools/kmem/info/observer_client.c).
 */
#ifndef KM_OBSERVER_H
#define KM_OBSERVER_H

/* Name in Linux's abstract socket namespace, followed by the PID. The answer is one byte and a descriptor of sealed,
 * immutable memory with the JSON of kmem_print_json. A byte without a descriptor means: no answer at the moment.
 * Users without permission receive nothing. */
#define KM_OBSERVER_NAME	"libkmem-observer-%u"
#define KM_OBSERVER_NAME_BYTES	40u

#endif
