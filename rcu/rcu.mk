# rcu.mk: libkmem-rcu, by which liburcu is the RCU of <kmem/rcu.h>. Included by the root Makefile. Where this compiler finds no
# liburcu it is not built: the core library needs none.
LIBURCU	:= $(shell $(CC) -E -include urcu/flavor.h -x c /dev/null >/dev/null 2>&1 && echo yes)
LIBS	+= $(if $(LIBURCU),$(if $(SAN),,$(BUILD)/libkmem-rcu.so) $(BUILD)/libkmem-rcu.a)

# It calls nothing of libc, and names it all the same: a library that names none looks to lintian as if it had been forgotten.
$(BUILD)/libkmem-rcu.so: $(BUILD)/obj/rcu/liburcu.o $(BUILD)/libkmem.so rcu/libkmem-rcu.map
	$(CC) $(ALL_CFLAGS) -fno-lto $(LDFLAGS) -shared -Wl,-z,nodelete -Wl,-z,relro -Wl,-z,now -Wl,-z,defs -Wl,-soname,$(@F).$(SOVERSION) \
		-Wl,--version-script=rcu/libkmem-rcu.map -o $@ $< -L$(BUILD) -lkmem \
		-Wl,--push-state,--no-as-needed -lc -Wl,--pop-state $(LDLIBS)
	@ln -sfn $(@F) $@.$(SOVERSION)
$(BUILD)/libkmem-rcu.a: $(BUILD)/obj/rcu/liburcu.o
	@rm -f $@
	$(AR) rcs $@ $^
-include $(BUILD)/obj/rcu/liburcu.d
