/*
 * inside.h: for tests that call the floors beneath directly. Whoever takes a lock of the library has km_thread_busy
 * set, which debug builds assert: INSIDE() sets it around a statement. A test whose every step is such a call, and
 * whose threads no handler strikes, says TEST_IS_INSIDE instead.
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
