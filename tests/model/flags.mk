# A day of a program with guarded objects.
TEST_LIBS_model/day := $(DEBUG_PARTS)
# The byte-code has a header of its own.
$(BUILD)/tests/model/model $(BUILD)/tests/model/fuzz: tests/model/machine.h

# A library that reports each of its basic blocks, so that turns may change there (simulated.h).
TRACED_OBJ := $(OBJ:$(BUILD)/obj/%=$(BUILD)/traced/%)
$(BUILD)/traced/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(LIBFLAGS) -fsanitize-coverage=trace-pc -fPIC -MMD -MP -c $< -o $@
$(BUILD)/traced/libkmem.a: $(TRACED_OBJ)
	@rm -f $@
	$(AR) rcs $@ $^
-include $(TRACED_OBJ:.o=.d)
WRAP_SYSTEM := -Wl,--wrap=clock_gettime,--wrap=km_os_possible_cpus,--wrap=km_os_getcpu,--wrap=km_os_rseq_register \
	-Wl,--wrap=km_os_rseq_unregister,--wrap=km_os_barrier,--wrap=km_os_random,--wrap=km_os_wait,--wrap=km_os_wake
$(BUILD)/tests/model/day: tests/model/day.c tests/model/day.h tests/model/simulated.h $(wildcard tests/kit/*.h) $(BUILD)/traced/libkmem.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) -Isrc -iquote . -Itests $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(BUILD)/traced/libkmem.a $(WRAP_SYSTEM) $(ALL_LDLIBS)
# Tests that feed texts to readers.
$(BUILD)/tests/model/debug_grammar $(BUILD)/tests/model/options_grammar $(BUILD)/tests/model/failslab_grammar \
	$(BUILD)/tests/model/slabinfo_grammar: tests/model/texts.h

$(BUILD)/tests/model/lost_commits: tests/model/machine.h tests/model/model.c
