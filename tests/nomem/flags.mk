# The script is a header of its own.
$(BUILD)/tests/nomem/nomem $(BUILD)/tests/nomem/limits: tests/nomem/nomem.h
