/*
 * os_signal.h: faults of memory, told to one handler of ours; what it does not know goes to the program's own.
 */
#ifndef KM_PORT_OS_SIGNAL_H
#define KM_PORT_OS_SIGNAL_H

#include "cc.h"

struct km_fault {
	const void *address;
	uintptr_t pc;			/* of the instruction; 0: not known */
	enum km_access { KM_ACCESS, KM_ACCESS_READ, KM_ACCESS_WRITE } access;	/* the first: not known which */
	uintptr_t sp, fp, lr;		/* registers there; sp 0: not known; lr: aarch64's */
};

/* KNOWN and NOT_OURS: as if there were no handler of ours. RESUMED: the instruction may be tried again. */
enum km_fault_end { KM_FAULT_NOT_OURS, KM_FAULT_KNOWN, KM_FAULT_RESUMED };
typedef enum km_fault_end km_fault_fn(const struct km_fault *fault);

/*
 * From now on SIGSEGV comes to the handler, on the thread's alternate stack if it has one. over: also where the program
 * has a handler, which is called after ours, and both where it asked for, on the alternate stack or not. False: it has
 * one, or the system refuses. The handler may only do what is safe in a signal handler. Once.
 */
bool km_os_catch_faults(km_fault_fn *handler, bool over);

/* May the aligned word at this address be read? True also where the system can't be asked: behind a filter. */
bool km_os_may_read(uintptr_t at);

#endif
