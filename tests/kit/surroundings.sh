# surroundings.sh: the same surroundings for each test and each caller: no variable of the library except TEST_OPTIONS,
# the language of the expected messages, files readable for other users, open descriptors 0, 1 and 2 (reason:
# descriptors.h). Read by tests/run, command.bash and programs.sh.
unset KMEM_OPTIONS KMEM_PERCPU KMEM_STATS KMEM_LEAKS KMEM_DEBUG KMEM_FAILSLAB KMEM_LIBRARY LANGUAGE CDPATH ${!LC_*}
export LANG=C.UTF-8
umask 022
[ -e /proc/self/fd/0 ] || exec </dev/null
[ -e /proc/self/fd/1 ] || exec >/dev/null
[ -e /proc/self/fd/2 ] || exec 2>/dev/null
