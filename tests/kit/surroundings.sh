# surroundings.sh: what tests have around them, whoever runs them: no variable of the library but those that TEST_OPTIONS
# brings, the language in which programs say what is looked for, files that other users may read, descriptors 0, 1 and 2
# open (descriptors.h has why). Read by tests/run, by command.bash and by programs.sh.
unset KMEM_OPTIONS KMEM_PERCPU KMEM_STATS KMEM_LEAKS KMEM_DEBUG KMEM_FAILSLAB KMEM_LIBRARY LANGUAGE CDPATH ${!LC_*}
export LANG=C.UTF-8
umask 022
[ -e /proc/self/fd/0 ] || exec </dev/null
[ -e /proc/self/fd/1 ] || exec >/dev/null
[ -e /proc/self/fd/2 ] || exec 2>/dev/null
