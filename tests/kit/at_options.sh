# at_options.sh: reads the first lines of a test: the tools the test calls, and the options (TEST_OPTIONS) under which
# the test does not run.

# says FILE WORDS [MORE]: prints WORDS where the first lines of FILE have the words. MORE: also the
# match of the pattern MORE behind the words.
says() {
	head -n 20 "$1" | sed 's/^ \*\|^#//' | tr -s ' \n' ' ' | grep -o${3:+P} ${3:+--} "\b$2${3:-}" | grep -m 1 .
}

# at_options FILE: true if FILE is a test under TEST_OPTIONS; `more` then holds the options to append, else `why`
# holds the reason.
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

# tools_of FILE: prints the interpreter of a script, and the tools in the script's "Needs:".
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

# is_built NAME: true if the build has the parts that tests/flags names for the test; else `why` names the missing part.
# A build without a file `features` has all parts.
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
