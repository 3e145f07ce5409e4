# programs.sh: a program's work is done once plainly and then on libkmem under each discipline; what it prints must be
# the same, and the allocations must have been ours. Sourced by the tests of programs in tests/system/.
#
#	work() { run PROGRAM ARGUMENTS...; }	prints what is to be compared on stdout
#	compare work
#
# TEST_ENGINE=slub runs them on another engine.
set -u
build=${BUILD:-build}
case $build in *-address* | *-thread*) echo "a program can't preload a sanitized library"; exit 77 ;; esac
library=$PWD/$build/libkmem-malloc.so
engine=${TEST_ENGINE:-sheaf}
out=$PWD/$build/tests/system/$(basename "$0")-$engine.d
python=/usr/bin/python3
[ -x "$python" ] || { echo "$python is not installed"; exit 77; }
mode=plain
rm -rf "$out"
mkdir -p "$out"
# The plain run must not see the variables of the test's own caller.
. tests/kit/surroundings.sh
unset LD_PRELOAD
# A gcc of ccache would answer without a compilation.
export CCACHE_DISABLE=1

fail() {
	echo "$(basename "$0") ($mode): $*"
	exit 1
}

# run PROGRAM...: runs the program in the present mode.
run() {
	if [ "$mode" = plain ]; then
		"$@"
	else
		LD_PRELOAD=$library KMEM_OPTIONS=engine:$engine KMEM_PERCPU=$mode KMEM_STATS=$out/stats-$mode.%p "$@"
	fi
}

# launch PROGRAM ... & server=$!: the same as `run`, with $server as the process of the program.
launch() {
	if [ "$mode" != plain ]; then
		export LD_PRELOAD=$library KMEM_OPTIONS=engine:$engine
		export KMEM_PERCPU=$mode KMEM_STATS=$out/stats-$mode.%p
	fi
	exec "$@"
}

# Checks that each process with a file of statistics allocated from the library, under the wanted
# discipline.
assert_ours() {
	"$python" - "$mode" "$engine" "${1:-1}" "$out"/stats-"$mode".* <<-'END' || fail "the allocations were not ours"
	import json, sys
	mode, engine, least, files = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
	slabs = 0
	for name in files:
	    with open(name) as file:
	        stats = json.load(file)
	    assert stats["discipline"] == mode, (name, stats["discipline"], stats["reason"])
	    mine = "kmalloc" if engine == "slob" else "malloc-"
	    caches = [c for c in stats["caches"] if c["name"].startswith(mine)]
	    assert all(c["engine"] == engine for c in caches), (name, "not on", engine)
	    mine = sum(c["alloc_slab"] for c in caches)
	    assert mine > 0, (name, "no slab of malloc")
	    slabs += mine
	print(f"{mode}: {len(files)} processes, {slabs} slabs")
	assert slabs >= least, (slabs, least)
	END
}

# compare FUNCTION [SLABS]: at least SLABS slabs must have been the library's in each run.
compare() {
	for mode in plain rseq cmpxchg lock; do
		"$1" >"$out/result-$mode" 2>"$out/log-$mode" ||
			fail "status $?: $(tail -n 3 "$out/log-$mode" "$out/result-$mode")"
		[ "$mode" = plain ] && continue
		cmp -s "$out/result-plain" "$out/result-$mode" ||
			fail "another result: $(diff "$out/result-plain" "$out/result-$mode" | head -n 20)"
		! grep '^libkmem:' "$out/log-$mode" || fail "the library complained"
		assert_ours "${2:-1}"
	done
}

# free_port: prints a loopback port without a listener.
free_port() {
	"$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for SECONDS COMMAND...: repeats COMMAND until success, or for SECONDS.
wait_for() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.1
	done
}

# Launched servers end with the test.
server=
trap '{ kill $(jobs -rp); } 2>/dev/null' EXIT
