/* top_screen_none.c: replaces top_screen.c in builds without ncurses, e.g. with musl-gcc or a cross compiler. */
#include "command.h"
#include "top/top.h"

int top_screen(const struct top_targets *targets, struct top_view view, double delay)
{
	return kmem_failed(1, "top", "this kmem is built without ncurses; kmem top --once prints the same once");
}
