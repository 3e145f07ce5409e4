# The script is a header of its own.
$(BUILD)/tests/nomem/nomem $(BUILD)/tests/nomem/limits: tests/nomem/nomem.h
TEST_LIBS_nomem/guarded := $(DEBUG_PARTS)
$(BUILD)/tests/nomem/guarded: tests/nomem/nomem.h tests/nomem/each_call.h
$(BUILD)/tests/nomem/each_name: tests/nomem/nomem.h
# Guarded objects are in it.
TEST_LIBS_nomem/each_name := $(DEBUG_PARTS)
