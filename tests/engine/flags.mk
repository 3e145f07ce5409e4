# Tests for each engine, linked with tests/engine/bump.c as well: tests/engine/bumped runs them with engine bump.
BUMPED := promise/caches promise/kmalloc promise/zeroed promise/merging promise/nowait promise/lowest_order \
	  promise/cache_limit promise/committed_ahead promise/decay promise/grown_blocks promise/hooks model/model nomem/nomem
$(BUILD)/tests/engine/bumped/%: tests/%.c tests/engine/bump.c $(BUILD)/libkmem.a Makefile tests/tests.mk $(wildcard tests/*.h tests/*/*.h)
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -Isrc -iquote . -Itests $(ALL_CFLAGS) $(LDFLAGS) $(TEST_WARN) $(TEST_WRONG_$(*D)) $(call test_cflags,$*) -o $@ $< tests/engine/bump.c $(BUILD)/libkmem.a $(call test_libs,$*) $(ALL_LDLIBS) -lm
.PHONY: bumped
bumped: $(BUMPED:%=$(BUILD)/tests/engine/bumped/%)
tests: bumped
