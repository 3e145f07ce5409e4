/* os_signal.h: one library handler for memory faults. Unknown faults go to the program's handler. */
#ifndef KM_OS_SIGNAL_H
#define KM_OS_SIGNAL_H

#include "base/cc.h"

struct km_fault {
	const void *address;
	uintptr_t pc;			/* address of the faulting instruction; 0: unknown */
	enum km_access { KM_ACCESS, KM_ACCESS_READ, KM_ACCESS_WRITE } access;	/* kind of access; KM_ACCESS: unknown */
	uintptr_t sp, fp, lr;		/* registers at the fault; sp 0: unknown; lr: aarch64 only */
};

/* KNOWN and NOT_OURS: go on as without the handler. RESUMED: the instruction may run again. */
enum km_fault_end { KM_FAULT_NOT_OURS, KM_FAULT_KNOWN, KM_FAULT_RESUMED };
typedef enum km_fault_end km_fault_fn(const struct km_fault *fault);

/* Handle SIGSEGV from now on, on the thread's alternate stack if there is one. over: also if the program has a handler.
 * The program's handler then runs after this one, both on the stack (alternate or not) that the program chose. Returns:
 * false if the program has a handler, or the system refuses. The handler must be safe in a signal handler. Context:
 * once. */
bool km_os_catch_faults(km_fault_fn *handler, bool over);

/* Returns: true if the aligned word at this address is readable, or if the system can't be asked: after km_os_shut. */
bool km_os_may_read(uintptr_t at);

#endif
