# Builds the examples into build/examples/. The root Makefile includes this file. The examples are not part of `all`, because
# some examples need packages of other projects. `make examples` installs missing packages; `make examples-questions` needs none.

EXAMPLES_FIRST := $(BUILD)/examples/first/shop $(BUILD)/examples/first/twice
EXAMPLES_QUESTIONS := $(BUILD)/examples/questions/sessions $(BUILD)/examples/questions/orders $(BUILD)/examples/questions/import
EXAMPLES := $(EXAMPLES_FIRST) $(EXAMPLES_QUESTIONS) $(BUILD)/examples/tenants/lua $(BUILD)/examples/tenants/sqlite $(BUILD)/examples/tenants/bomb
EXAMPLE_PACKAGES := liblua5.4-dev libsqlite3-dev zlib1g-dev pkg-config
EXAMPLE_LIBS_lua := lua5.4
EXAMPLE_LIBS_sqlite := sqlite3
EXAMPLE_LIBS_bomb := zlib

.PHONY: examples examples-questions example-packages
examples: $(EXAMPLES)
examples-questions: $(EXAMPLES_QUESTIONS)
example-packages:
	scripts/need $(EXAMPLE_PACKAGES)

# Programs that need only libkmem.
EXAMPLE_CFLAGS_twice := -Wno-use-after-free
$(EXAMPLES_FIRST): $(BUILD)/examples/%: examples/%.c $(wildcard include/kmem/*.h) $(BUILD)/libkmem.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(EXAMPLE_CFLAGS_$(*F)) $(LDFLAGS) -o $@ $< $(BUILD)/libkmem.a $(ALL_LDLIBS)

# Programs of docs/: sessions does not link libkmem, import replaces malloc.
EXAMPLE_ARCHIVE_orders := $(BUILD)/libkmem.a
EXAMPLE_ARCHIVE_import := $(BUILD)/libkmem-malloc.a
$(EXAMPLES_QUESTIONS): $(BUILD)/examples/%: examples/%.c $(wildcard include/kmem/*.h) $(BUILD)/libkmem.a $(BUILD)/libkmem-malloc.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< $(EXAMPLE_ARCHIVE_$(*F)) $(ALL_LDLIBS)

$(BUILD)/examples/%: examples/%.c $(wildcard examples/*/*.h) $(wildcard include/kmem/*.h) $(BUILD)/libkmem.a | example-packages
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $$(pkg-config --cflags $(EXAMPLE_LIBS_$(*F))) -o $@ $< $(BUILD)/libkmem.a \
		$$(pkg-config --libs $(EXAMPLE_LIBS_$(*F))) $(ALL_LDLIBS)
