# The examples: programs of a page that use the library as anybody would, into build/examples/. Not part of `all`, for they
# want packages of others, which `make examples` installs where they are missing. Included by the root Makefile.

EXAMPLES_FIRST := $(BUILD)/examples/first/shop $(BUILD)/examples/first/twice
EXAMPLES := $(EXAMPLES_FIRST) $(BUILD)/examples/tenants/lua $(BUILD)/examples/tenants/sqlite $(BUILD)/examples/tenants/bomb
EXAMPLE_PACKAGES := liblua5.4-dev libsqlite3-dev zlib1g-dev pkg-config
EXAMPLE_LIBS_lua := lua5.4
EXAMPLE_LIBS_sqlite := sqlite3
EXAMPLE_LIBS_bomb := zlib

.PHONY: examples example-packages
examples: $(EXAMPLES)
example-packages:
	scripts/need $(EXAMPLE_PACKAGES)

# These want nothing but the library.
EXAMPLE_CFLAGS_twice := -Wno-use-after-free
$(EXAMPLES_FIRST): $(BUILD)/examples/%: examples/%.c $(wildcard include/kmem/*.h) $(BUILD)/libkmem.a
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(EXAMPLE_CFLAGS_$(*F)) $(LDFLAGS) -o $@ $< $(BUILD)/libkmem.a $(ALL_LDLIBS)

$(BUILD)/examples/%: examples/%.c $(wildcard examples/*/*.h) $(wildcard include/kmem/*.h) $(BUILD)/libkmem.a | example-packages
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $$(pkg-config --cflags $(EXAMPLE_LIBS_$(*F))) -o $@ $< $(BUILD)/libkmem.a \
		$$(pkg-config --libs $(EXAMPLE_LIBS_$(*F))) $(ALL_LDLIBS)
