# rcu.mk: libkmem-rcu makes liburcu the RCU of <kmem/rcu.h>. The root Makefile includes this file. Without liburcu the
# library is not built; the core library needs no RCU.
LIBURCU	:= $(shell $(CC) -E -include urcu/flavor.h -x c /dev/null >/dev/null 2>&1 && echo yes)
LIBS	+= $(if $(LIBURCU),$(if $(SAN),,$(BUILD)/libkmem-rcu.so) $(BUILD)/libkmem-rcu.a)

# The library calls no function of libc, and links with libc, because lintian takes a library without libc for an error.
$(BUILD)/libkmem-rcu.so: $(BUILD)/obj/rcu/liburcu.o $(BUILD)/libkmem.so rcu/libkmem-rcu.map
	$(CC) $(ALL_CFLAGS) -fno-lto $(LDFLAGS) -shared -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,-z,defs -Wl,-soname,$(@F).$(SOVERSION) \
		-Wl,--version-script=rcu/libkmem-rcu.map -o $@ $< -L$(BUILD) -lkmem \
		-Wl,--push-state,--no-as-needed -lc -Wl,--pop-state $(LDLIBS)
	@ln -sfn $(@F) $@.$(SOVERSION)
$(BUILD)/libkmem-rcu.a: $(BUILD)/obj/rcu/liburcu.o
	@rm -f $@
	$(AR) rcs $@ $^
-include $(BUILD)/obj/rcu/liburcu.d
