/* engines.h: the list of engines by name. A new engine is entered here (src/README.md, "To add an engine"). Options,
 * tools and tests take the names from here; tests/tidy/engines compares the texts. The first is the default. */
#ifndef KM_SLAB_ENGINES_H
#define KM_SLAB_ENGINES_H

/* The table of each engine is km_engine_NAME. `between` separates two names. A build with fewer engines defines its own
 * list. */
#ifndef KM_ENGINES
#define KM_ENGINES(engine, between)                                                                \
	engine(sheaf) between engine(slub) between engine(slab) between engine(slob)
#endif

#define KM_ENGINE_DEFAULT	km_engine_sheaf
#define KM_ENGINE_QUOTED(name)	#name
#define KM_ENGINE_LISTED(name)	#name,
/* "sheaf", "slub", ... */
#define KM_ENGINE_NAMES		KM_ENGINES(KM_ENGINE_LISTED, )
/* "sheaf|slub|..." */
#define KM_ENGINE_CHOICE	KM_ENGINES(KM_ENGINE_QUOTED, "|")

#endif
