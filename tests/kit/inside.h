/*
 * inside.h: for direct calls of inner layers. A thread with a lock of the library must have km_thread.busy set, as
 * debug builds assert: INSIDE() sets km_thread.busy around a statement. A test with such calls only, if no handler
 * interrupts a thread, uses TEST_IS_INSIDE instead.
 */
#ifndef TESTS_KIT_INSIDE_H
#define TESTS_KIT_INSIDE_H

#include "os/lock.h"

#define INSIDE(statement)                                                                          \
	do {                                                                                       \
		struct km_busy_was inside_was = km_busy_begin();                                   \
		statement;                                                                         \
		km_busy_end(inside_was);                                                           \
	} while (0)

#ifdef KM_DEBUG
#define TEST_IS_INSIDE                                                                             \
	__attribute__((constructor)) static void test_is_inside(void)                              \
	{                                                                                          \
		km_lock_unstruck = true;                                                           \
	}
#else
#define TEST_IS_INSIDE
#endif

#endif
