# command.bash: common code for tests of the command `kmem`. A test changes into a directory of its own, and kills the
# processes of the test at the end.
set -u
# With own_mounts the test has a mount namespace of its own, where the kernel permits one: the mounts end with the last
# process of the test.
if [ "${own_mounts:-}" = yes ] && unshare -m true 2>/dev/null; then
	export own_mounts=here
	exec unshare -m "$0" "$@"
fi
top=$PWD
build=$top/${BUILD:-build}
kmem=$build/kmem
out=$build/tests/system/$(basename "$0").d
rm -rf "$out"
mkdir -p "$out"
cd "$out" || exit 1
. "$top/tests/kit/surroundings.sh"
unset LD_PRELOAD
started=()	# NUMBER:BORN of each process
trap end_started EXIT
bad=0

# born NUMBER: when the process began; nothing, where there is none.
born() {
	local stat
	read -r stat 2>/dev/null <"/proc/$1/stat" || return
	set -- ${stat##*) }
	echo "${20}"
}

# remember NUMBER...: processes to kill at the end of the test.
remember() {
	local number
	for number; do started+=("$number:$(born "$number")"); done
}

# ours NUMBER: true if the remembered process still runs. The number of a process that ended may belong to another
# process, for example to a compiler of another test.
ours() { [[ " ${started[*]} " == *" $1:$(born "$1") "* ]]; }

end_started() {
	local process
	for process in "${started[@]}"; do ! ours "${process%:*}" || kill -9 "${process%:*}"; done
} 2>/dev/null

fail() {
	echo "FAIL: $*"
	bad=1
}

# status WANTED COMMAND...: runs COMMAND, with its output in the files stdout and stderr, and checks
# the exit status.
status() {
	local wanted=$1 got
	shift
	"$@" >stdout 2>stderr </dev/null
	got=$?
	[ "$got" = "$wanted" ] || { fail "status $got, not $wanted: $*"; head -5 stderr; }
}

# says WORDS: checks that the last command printed exactly one line on stderr, with WORDS.
says() {
	[ "$(wc -l <stderr)" = 1 ] || { fail "not one line on stderr:"; cat stderr; }
	grep -qF -- "$1" stderr || { fail "no '$1' in: $(cat stderr)"; }
}

# start COMMAND...: starts COMMAND in the background, and waits for the line "ready"; $pid is the
# process number.
start() {
	local end=$((SECONDS + 580))
	: >ready
	"$@" >ready &
	pid=$!
	remember "$pid"
	while [ $SECONDS -lt $end ]; do
		grep -q ready ready && return
		kill -0 "$pid" 2>/dev/null || break
		sleep 0.02
	done
	fail "did not start: $*"
}

stop() {
	ours "$1" && kill -9 "$1" && wait "$1"
} 2>/dev/null

# compile NAME SOURCE... FLAGS...: no compiler is to know better what malloc and free are.
compile() {
	local name=$1
	shift
	cc -std=gnu17 -O1 -w -fno-builtin -mcx16 -I"$top/include" -I"$top/src" -iquote "$top" -o "$name" "$@" || { fail "cc $name"; exit 1; }
}

json() {
	python3 -m json.tool "$1" >/dev/null || fail "not JSON: $1"
}
