/*
 * shop.c: a program with one cache for each kind of object. `kmem info --memory PID` shows the memory by the names
 * of the caches. The program allocates its objects, prints "ready" and waits for the end of standard input.
 */
#include <kmem/kmem.h>
#include <stdio.h>
#include <string.h>

struct customer {
	struct order *orders;
	char *name;
	long since, credit;
};

struct order {
	struct order *next;
	struct item *items;
	long number, placed, paid[4];
};

struct item {
	struct item *next;
	char article[32];
	long count, cents;
};

static struct kmem_cache *customers, *orders, *items;

static void add_order(struct customer *customer, int item_count)
{
	struct order *order = kmem_cache_zalloc(orders, GFP_KERNEL | __GFP_NOFAIL);

	order->next = customer->orders;
	customer->orders = order;
	while (item_count--) {
		struct item *item = kmem_cache_zalloc(items, GFP_KERNEL | __GFP_NOFAIL);

		item->next = order->items;
		order->items = item;
		snprintf(item->article, sizeof(item->article), "article %d", item_count);
	}
}

int main(void)
{
	customers = KMEM_CACHE(customer, SLAB_PANIC);	/* a failure ends the process */
	orders = KMEM_CACHE(order, SLAB_PANIC);
	items = KMEM_CACHE(item, SLAB_PANIC);
	for (int i = 0; i < 20000; i++) {
		struct customer *customer = kmem_cache_zalloc(customers, GFP_KERNEL | __GFP_NOFAIL);

		customer->name = kstrdup("a customer's name", GFP_KERNEL);
		for (int k = 0; k < i % 6; k++)
			add_order(customer, 1 + k);
	}
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
