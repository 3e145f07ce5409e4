/*
 * coverage.c: for scripts/coverage, linked into each test: a process that ends by _exit, or because the library stops
 * it, writes down what it reached before it ends. The linker leads both calls here (--wrap).
 */
void __gcov_dump(void);
_Noreturn void __real__exit(int status);
_Noreturn void __real_km_os_abort(void) __attribute__((weak));	/* libkmem-rcu has none */
_Noreturn void __wrap__exit(int status);
_Noreturn void __wrap_km_os_abort(void);

/* A handler that strikes in the middle of it, and ends the process, would wait for its own thread. */
static void dump(void)
{
	static _Bool dumping;

	if (!dumping) {
		dumping = 1;
		__gcov_dump();
	}
}

_Noreturn void __wrap__exit(int status)
{
	dump();
	__real__exit(status);
}

_Noreturn void __wrap_km_os_abort(void)
{
	dump();
	__real_km_os_abort();
}
