/* The command as it is built where ncurses is not there, as with musl-gcc or for another processor. */
#include "command.h"
#include "top/top.h"

int top_screen(const struct top_targets *targets, struct top_view view, double delay)
{
	return kmem_failed(1, "top", "built without ncurses, it has no screen: --once");
}
