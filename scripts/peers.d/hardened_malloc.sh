# hardened_malloc.sh: GrapheneOS's hardened_malloc in its default configuration.
packages="gcc g++ libc6-dev"
crate="hardened-malloc-sys 16.0.2026071503"

build() {
	hardened default
}

# hardened CONFIGURATION: builds by a configuration file, a list of defines KEY=VALUE, one on a line.
hardened() {
	source=$(crate_dir)/vendor/hardened-malloc
	flags="-O2 -w -D_GNU_SOURCE -fPIC -fvisibility=hidden -fno-plt
		-I$source -I$source/include -I$source/third_party
		$(grep '^[A-Z]' "$(crate_dir)/config-$1.conf" | sed 's/^/-D/' | tr '\n' ' ')"
	flags=$(echo "$flags" | tr -s ' \t\n' ' ')
	# The sources are C23, where alignas is a keyword; in gcc 12 alignas is a macro.
	ls "$source"/*.c | objects c "gcc -std=c2x -include stdalign.h $flags"
	echo "$source/new.cc" | objects cc "g++ -std=c++17 $flags"
	g++ -shared c/*.o cc/*.o -o lib.so -lpthread
	ar rcs lib.a c/*.o cc/*.o
	version "$(crate_version | sed 's/.*\.//')"
}
