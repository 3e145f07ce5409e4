# The tests: every tests/<kind>/*.c is a program linked with the static library (tests may look inside: src/ is on
# their include path); every executable file tests/<kind>/<name> without a suffix is one as well. Exit status 0 is
# passed, 77 skipped, anything else failed. tests/run prints a line each and "N passed, N failed, N skipped" at the end.

TEST_SRC := $(wildcard tests/*/*.c)
TEST_BIN := $(TEST_SRC:%.c=$(BUILD)/%)
.PHONY: tests check check-full check-long coverage
tests: $(TEST_BIN)

# A test's own flags are in tests/flags, its rules in tests/<kind>/flags.mk.
test_words = $(if $(filter promise/malloc_%,$(1)),malloc -fno-builtin) $(shell sed -n 's|^$(1):||p' tests/flags)
test_cflags = $(filter-out -Wl%,$(filter -W% -f%,$(test_words)))
test_libs = $(patsubst malloc,$(BUILD)/libkmem-malloc.a,$(filter-out needs=% -f%,$(filter-out $(test_cflags),$(test_words))))
# A test has only the parts named in tests/flags (packaging/README.md); tests/tidy/archive checks the parts of
# programs.
TEST_PARTS := -Wl,--defsym=km_all_parts=0 -Wl,-u,km_sanitizing
DEBUG_PARTS := -Wl,-u,km_debugging,-u,km_guarding,-u,km_profiling
-include $(wildcard tests/*/flags.mk)

# Without warnings of one compiler only, and without unknown warnings of the other.
TEST_WARN := -Wno-unused-function -Wno-unknown-warning-option -Wno-unknown-attributes
# Errors of newer compilers are errors with older ones, too.
TEST_STRICT := -Werror=implicit -Werror=int-conversion -Werror=incompatible-pointer-types

# These kinds do on purpose the misuses of compiler warnings; tests/tidy/wrong checks the warnings.
TEST_WRONG_promise := -Wno-use-after-free -Wno-free-nonheap-object -Wno-alloc-size-larger-than -Wno-alloc-size \
	-Wno-non-power-of-two-alignment -Wno-builtin-assume-aligned-alignment
TEST_WRONG_engine := $(TEST_WRONG_promise)
TEST_WRONG_account := $(TEST_WRONG_promise)
TEST_WRONG_unit := $(TEST_WRONG_promise)
TEST_WRONG_death := $(TEST_WRONG_promise) -Wno-mismatched-dealloc

$(BUILD)/tests/%: tests/%.c $(BUILD)/libkmem.a $(BUILD)/libkmem-malloc.a Makefile tests/tests.mk tests/flags $(wildcard tests/*.h tests/*/*.h)
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -Isrc -iquote . -Itests $(ALL_CFLAGS) $(LDFLAGS) $(TEST_WARN) $(TEST_STRICT) $(TEST_WRONG_$(*D)) $(call test_cflags,$*) $(TEST_PARTS) -o $@ $< $(BUILD)/libkmem.a $(call test_libs,$*) $(ALL_LDLIBS) -lm

# Tests have two tiers (tests/run): check runs the quick tier, check-full the full one, check-long both, with all work
# of tests that do only a part in a tier (CHECK_LONG): hours. The build has as many processes as tests run at once,
# unless the caller's -j sets the number. The quick tier's build has its own programs only, the full tier's build also
# the programs that several tests would otherwise build at the same time.
check: TIER := quick
check-full: TIER := full
check-long: export CHECK_LONG := 1
check-long: export TEST_TIMEOUT := 20000
check check-full check-long:
	scripts/need -k $$(cat tests/packages-$(or $(filter quick,$(TIER)),*))
	$(MAKE) $(if $(filter -j%,$(MAKEFLAGS)),,-j$(or $(JOBS),$(shell nproc))) all $(if $(filter quick,$(TIER)), \
		$$(BUILD=$(BUILD) tests/run --tier quick --programs), tests $(if $(filter build,$(BUILD)),bench-workers))
	tests/run $(if $(TIER),--tier $(TIER))

# Lines and branches of src/ reached by tests, as a table; docs/coverage.md.
coverage:
	scripts/coverage
