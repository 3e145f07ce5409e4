# Tests that go by engine, linked with tests/engine/bump.c as well: tests/engine/bumped runs them with that engine.
BUMPED := contract/caches contract/kmalloc contract/zeroed contract/merging contract/nowait contract/fallback \
	  contract/cache_limit contract/ahead contract/decay contract/grown contract/hooks model/model nomem/nomem
$(BUILD)/tests/engine/bumped/%: tests/%.c tests/engine/bump.c $(BUILD)/libkmem.a Makefile tests/tests.mk $(wildcard tests/*.h tests/*/*.h)
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -Isrc -Itests $(ALL_CFLAGS) $(LDFLAGS) -Wno-unused-function $(TEST_WRONG_$(*D)) $(TEST_CFLAGS_$*) -o $@ $< tests/engine/bump.c $(BUILD)/libkmem.a $(TEST_LIBS_$*) $(ALL_LDLIBS) -lm
.PHONY: bumped
bumped: $(BUMPED:%=$(BUILD)/tests/engine/bumped/%)
tests: bumped
