# mappings.bash: the resident memory of the library's mappings as the kernel reports the memory, for scripts
# that compare.

# stack_pointers PID: prints the stack pointers of the threads that do not run now; a stopped thread
# has one.
stack_pointers() {
	local file words
	for file in /proc/"$1"/task/*/syscall; do
		read -r -a words <"$file" 2>/dev/null && [ ${#words[@]} -ge 3 ] && echo "${words[-2]#0x}"
	done
}

# anonymous PID: KiB resident in anonymous mappings, without the stacks (a thread's stack pointer lies in each) and
# without the program's variables directly behind the program's file. The rest is the library's, except for some pages
# of libc.
anonymous() {
	awk -v pointers="$(stack_pointers "$1")" '
		function below(a, b) {
			return length(a) == length(b) ? "x" a < "x" b : length(a) < length(b)
		}
		function is_stack(from, to,   i) {
			for (i = 1; i <= threads; i++)
				if (!below(pointer[i], from) && below(pointer[i], to))
					return 1
			return 0
		}
		BEGIN { threads = split(pointers, pointer) }
		/^[0-9a-f]+-[0-9a-f]+ / {
			split($1, at, "-")
			ours = (NF == 5 && at[1] != behind && !is_stack(at[1], at[2])) || /\[anon:libkmem/
			behind = NF == 6 && $6 ~ /^\// ? at[2] : ""
		}
		/^Rss:/ && ours { sum += $2 }
		END { print sum }' "/proc/$1/smaps"
}
