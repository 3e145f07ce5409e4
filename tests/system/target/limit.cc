/* C++ under a limit: new throws bad_alloc, nothrow new is NULL, a new handler may make room; containers stay whole. */
#include <cstdio>
#include <new>
#include <vector>

static char *reserve;
static int asked;

static void give_reserve()
{
	asked++;
	if (!reserve)
		throw std::bad_alloc();
	delete[] reserve;
	reserve = nullptr;
}

#define NEED(condition) if (!(condition)) { std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); return 1; }

int main()
{
	std::vector<char *> blocks;
	bool thrown = false;

	blocks.reserve(1 << 16);
	reserve = new char[1 << 20];
	try {
		for (;;)
			blocks.push_back(new char[5000]);
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	NEED(thrown && blocks.size() > 100);
	char *volatile kept = new (std::nothrow) char[100000];	/* volatile: otherwise a compiler may drop
								 * the allocation */
	NEED(!kept);
	size_t before = blocks.size();
	std::set_new_handler(give_reserve);
	blocks.push_back(new char[5000]);
	NEED(asked == 1 && !reserve && blocks.size() == before + 1);
	for (char *block : blocks)
		delete[] block;
	kept = new char[1 << 20];
	delete[] kept;
	return 0;
}
