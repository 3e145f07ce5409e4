# hardened_malloc_light.sh: hardened_malloc in the configuration it calls light.
. "$recipes/hardened_malloc.sh"

build() {
	hardened light
}
