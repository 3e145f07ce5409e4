# rpmalloc.sh: rpmalloc with the override of malloc; version 1 needs a define for the hook at the end of threads.
packages="gcc libc6-dev"
release="mjansson/rpmalloc 2.0.1"
crate="rpmalloc-sys 0.2.3+b097fd0"

build() {
	from=$(release_version)
	source=$(release_dir) || {
		source=$(crate_dir)/rpmalloc
		from="$(head -n 1 "$source/CHANGELOG") (commit $(crate_version | sed 's/.*+//'))"
	}
	flags="-O2 -std=gnu11 -w -DNDEBUG -D_GNU_SOURCE -DENABLE_OVERRIDE=1 -DENABLE_PRELOAD=1"
	# shellcheck disable=SC2086
	gcc $flags -fPIC -shared "$source/rpmalloc/rpmalloc.c" -o lib.so -lpthread -ldl
	# shellcheck disable=SC2086
	gcc $flags -c "$source/rpmalloc/rpmalloc.c" -o rpmalloc.o
	ar rcs lib.a rpmalloc.o
	version "$from"
}
