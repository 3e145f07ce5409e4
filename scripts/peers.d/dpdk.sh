# dpdk.sh: DPDK's mempool. The bench links with DPDK by pkg-config; this recipe tests the link.
packages="gcc pkg-config libdpdk-dev"
library=no

build() {
	printf '%s\n' '#include <rte_mempool.h>' \
		'int main(void) { return rte_mempool_lookup("none") != 0; }' >link.c
	# shellcheck disable=SC2046
	gcc $(pkg-config --cflags libdpdk) link.c -o link $(pkg-config --libs libdpdk)
	version "$(pkg-config --modversion libdpdk) (Debian)"
}
