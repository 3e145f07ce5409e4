/*
 * vfork.h: who runs. A child of vfork has its parent's memory, and what it does to itself is not done to its parent.
 */
#ifndef KM_EDGE_VFORK_H
#define KM_EDGE_VFORK_H

#include "../port/cc.h"

/* Not 0 in the child of a vfork, until it calls exec or ends. */
extern km_hidden km_tls unsigned km_in_vfork;

#endif
