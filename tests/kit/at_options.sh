# at_options.sh: what a test says in its first lines of the tools that it calls, and of options that all tests are run with
# (TEST_OPTIONS).

# says FILE WORDS [MORE]: does it say so? With MORE, what follows of a sentence, or a word.
says() {
	head -n 20 "$1" | sed 's/^ \*\|^#//' | tr -s ' \n' ' ' | grep -o${3:+P} ${3:+--} "\b$2${3:-}" | grep -m 1 .
}

# at_options FILE: is it a test where those are? Then `more` has what it wants behind them, else `why` says why not.
at_options() {
	local option
	more= why=
	for option in ${TEST_OPTIONS//,/ }; do
		if why=$(says "$1" "Not with ${option%%:*}: " '\K[^.]*'); then
			why="not with $option: $why"
			return 1
		fi
		more+=$(says "$1" "With ${option%%:*}: " '\K[a-z_:0-9,]*[0-9]' | sed 's/^/,/')
	done
	return 0
}

# tools_of FILE: prints the interpreter of a script, and the tools that it says it needs.
tools_of() {
	local first
	[[ $1 != *.c ]] && read -r first <"$1" && echo "${first##*[ /]}" && says "$1" 'Needs: ' '\K[^.]*' | tr -d ,
}

# has_tools FILE: true if what FILE needs is installed; else `why` names the missing tool.
has_tools() {
	local tool
	why=
	for tool in $(tools_of "$1"); do
		command -v "$tool" >/dev/null || { why="$tool is not installed"; return 1; }
	done
}

# is_built NAME: true if the build has what tests/flags says that the test needs; else `why` names what is missing. A build
# without a file `features` has all.
is_built() {
	local word of_malloc=
	why=
	[ -f "$build/features" ] || return 0
	[[ $1 != promise/malloc_* ]] || of_malloc=malloc
	for word in $of_malloc $(sed -n "s|^${1%%/*}: ||p; s|^$1: ||p" tests/flags); do
		[[ $word == malloc || $word == needs=* ]] || continue
		grep -qw "${word#needs=}" "$build/features" || { why="${word#needs=} is not built"; return 1; }
	done
}
