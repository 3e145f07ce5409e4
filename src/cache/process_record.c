/*
 * process_record.c: fill in the record for readers in other processes. Invariant: the magic is written last, so the
 * other fields are then valid.
 */
#include "process_record.h"

#include "os/die.h"
#include "os/secret.h"
#include "page/addr_reuse.h"
#include "page/huge_region.h"
#include "kmalloc/realloc_run.h"

_Static_assert(offsetof(struct km_root, head) == 0, "readers look there");
_Static_assert(sizeof(struct km_root) <= KM_METADATA_ROOT_BYTES, "the record has its place");

struct kmem_mail km_mail;
bool km_shadows_drain;
const struct km_control_ops *km_control_ops;
const struct km_debug_ops *km_debug_ops;
const struct km_failure_ops *km_failure_ops;
const struct km_observer_ops *km_observer_ops;

void km_root_start(void)
{
	const struct km_sized_engine *sized = km_engine_sized();
	const bool serves = km_control_ops && km_options.control;
	struct km_root *root = km_metadata_root();
	uint64_t magic;

	if (!root)
		return;
	km_debug(!*(uint64_t *)root, "the magic comes last");
	root->head.major = KMEM_RECORD_MAJOR;
	root->head.minor = KMEM_RECORD_MINOR;
	root->head.fields = km_fields;
	root->head.field_count = km_field_count;
	__builtin_memcpy(root->head.version, KMEM_VERSION, sizeof(KMEM_VERSION));
	if (serves)
		km_mail.version = KMEM_MAIL_VERSION;
	km_arena_expose(&root->arena);
#define SET(type, name, value) root->name = value;
	KM_ROOT_FIELDS(SET)
	__builtin_memcpy(&magic, KMEM_RECORD_MAGIC, sizeof(magic));
	km_store_release((uint64_t *)root, magic);
}
