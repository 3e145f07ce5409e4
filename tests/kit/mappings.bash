# mappings.bash: what the kernel says is resident of the mappings that are ours, for scripts that compare it.

# anonymous PID: KiB that are resident of no file, and neither of the stack nor of the program's variables, which stand
# right behind its file: ours, but for some pages of libc's.
anonymous() {
	awk '/^[0-9a-f]+-[0-9a-f]+ / {
			split($1, at, "-")
			ours = (NF == 5 && at[1] != behind) || /\[anon:libkmem/
			behind = NF == 6 && $6 ~ /^\// ? at[2] : ""
		}
		/^Rss:/ && ours { sum += $2 }
		END { print sum }' "/proc/$1/smaps"
}
