/*
 * orders.c: a shop with two caches and two tenants, for docs/who-uses-memory.md. Each tenant is a group, and libkmem
 * charges orders to the group of the tenant. Articles belong to the shop: libkmem charges articles to no group.
 *
 * The shop prints the address of one order and "ready", and handles a small request every 0.1 s.
 */
#include <kmem/memcg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ARTICLES 20000

struct article {
	struct article *next;
	char name[120];
};

struct order {
	struct order *next;
	char address[184];
};

static struct kmem_cache *article_cache, *order_cache;
static struct article *articles;
static struct order *orders;

static __attribute__((noinline)) void load_article(int number)
{
	struct article *article = kmem_cache_zalloc(article_cache, GFP_KERNEL | __GFP_NOFAIL);

	snprintf(article->name, sizeof(article->name), "article %d", number);
	article->next = articles;
	articles = article;
}

static __attribute__((noinline)) void place_order(int number)
{
	struct order *order = kmem_cache_zalloc(order_cache, GFP_KERNEL | __GFP_NOFAIL);

	snprintf(order->address, sizeof(order->address), "address %d", number);
	order->next = orders;
	orders = order;
}

static void serve_tenant(const char *name, int order_count)
{
	struct mem_cgroup *tenant = mem_cgroup_create(NULL, name, 0);

	if (!tenant)
		exit(1);
	MEMCG_SCOPE(tenant);
	for (int i = 0; i < order_count; i++)
		place_order(i);
}

int main(void)
{
	article_cache = KMEM_CACHE(article, SLAB_PANIC);
	order_cache = KMEM_CACHE(order, SLAB_PANIC | SLAB_ACCOUNT);	/* SLAB_ACCOUNT: charged to the active group */
	for (int i = 0; i < ARTICLES; i++)
		load_article(i);
	serve_tenant("alice", 80000);
	serve_tenant("bob", 40000);
	printf("%p\nready\n", (void *)orders);
	fflush(stdout);
	for (;;) {
		kfree(kmalloc(100, GFP_KERNEL));
		usleep(100000);
	}
}
