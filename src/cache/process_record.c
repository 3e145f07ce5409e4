/*
 * process_record.c: fill in the record for readers in other processes. Invariant: the magic is written last, so the
 * other fields are then valid.
 */
#include "process_record.h"

#include "os/die.h"
#include "os/secret.h"
#include "page/addr_reuse.h"
#include "kmalloc/realloc_run.h"

_Static_assert(offsetof(struct km_root, head) == 0, "readers look there");
_Static_assert(sizeof(struct km_root) <= KM_METADATA_ROOT_BYTES, "the record has its place");

struct kmem_mail km_mail;
bool km_shadows_drain;
const struct km_control_ops *km_control_ops;
const struct km_debug_ops *km_debug_ops;
const struct km_failure_ops *km_failure_ops;
const struct km_observer_ops *km_observer_ops;

static void show_mail(struct km_root *root)
{
	root->control = !km_control_ops ? KMEM_CONTROL_NONE : km_options.control ? KMEM_CONTROL_ON : KMEM_CONTROL_OFF;
	if (root->control != KMEM_CONTROL_ON)
		return;
	km_mail.version = KMEM_MAIL_VERSION;
	root->mail = &km_mail;
	root->ways = &km_gate;
	root->mail_report = km_control_ops->report;
}

void km_root_start(void)
{
	const struct km_sized_engine *sized = km_engine_sized();
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
	root->discipline = km_discipline_name(km_percpu.discipline);
	root->reason = km_percpu.reason;
	root->hardened = km_hardening.parts;
	root->percpu = &km_percpu;
	km_registry_expose(&root->caches, &root->cache_count);
	root->past_new_slabs = &km_retired_of_process()->new_slabs;
	root->past_freed_slabs = &km_retired_of_process()->freed_slabs;
	km_arena_expose(&root->arena);
	km_large_expose(&root->large_blocks, &root->large_bytes);
	root->growth_at = &km_growth_at;
	root->own_pages = &km_addr_reuse_pages;
	km_huge_expose(&root->mapped_blocks, &root->mapped_bytes, &root->mapped_kept, &root->mapped_spare,
		      &root->mapped_ready);
	km_huge_expose_blocks(&root->mapped_table, &root->mapped_slots, &root->parked, &root->parked_count);
	km_metadata_expose(&root->meta_bytes, &root->spans, &root->span_count);
	root->slob_pages = sized ? sized->pages : NULL;
	root->slob_units = sized ? sized->units : NULL;
	root->guarded = &km_guarded;
	root->guard_objects = &km_guarded.objects;
	root->guard_live = &km_guarded.live;
	root->guard_samples = &km_guarded.samples;
	root->guard_reports = &km_guarded.reports;
	root->grace = &km_grace;
	root->memcg = km_has_accounting() ? km_charge_ops->view : NULL;
	root->profile = km_profile_ops ? km_profile_ops->record : NULL;
	root->stacks = km_debug_ops ? km_debug_ops->stacks : NULL;
	show_mail(root);
	__builtin_memcpy(&magic, KMEM_RECORD_MAGIC, sizeof(magic));
	km_store_release((uint64_t *)root, magic);
}
