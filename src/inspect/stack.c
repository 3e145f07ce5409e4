/*
 * stack.c: stack walks, at some nanoseconds a frame. A compiler writes beside each function how to undo the function's
 * frame (.eh_frame, DWARF's call frame information). For the place of a call this information is a few numbers: where
 * the caller's frame begins, and where the return address and the caller's frame pointer lie in the frame. These
 * numbers are the rule of the place, learnt once and kept. A walk loads no library, allocates nothing and takes no
 * lock; libgcc's unwinder does all three, and is never called. A stack ends at a frame of another form, at code of no
 * file, and at code interrupted by a signal.
 *
 * Invariants: a kept rule is one word, checked by its key, so a reader never gets half of a rule. A kept rule may
 * belong to an unloaded library, with another library at the same addresses. So kept rules are used only in a stack
 * with a known end, and nothing beyond the end is read. In a stack made by the program itself every rule is learnt
 * anew, and the system is asked whether a page may be read: code that changes stacks may have a table that is wrong.
 * After dlclose (km_stack_forget) all are learnt anew.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include "stack.h"

#include "base/bits.h"
#include "os/die.h"

#define MOST_STEPS	64u		/* most frames of a walk, the library's own among them */
#define MOST_FRAME	((uintptr_t)1 << 24)
#define MOST_STACK	((uintptr_t)64 << 20)	/* the largest believed size of a thread's stack */

#define LOOKS		4u		/* trails of stacks with a common beginning that a lookup tries */
#define RULES		4096u		/* number of kept rules, a power of two */
/* How a function's frame is undone, by the place of a call. */
static struct rule {
	uint64_t key, rule;
} rules[RULES] km_sparse;
static struct km_stack_trail trails[KM_STACK_TRAILS] km_sparse;
static uint64_t unloads;		/* number of unloaded libraries, shifted by 48 bits; keys with an older number
					 * never match */

/* ------------------------------------------------------------------ what DWARF says */

#if defined(__x86_64__)
enum { REG_FP = 6, REG_SP = 7, REG_RA = 16 };
#else
enum { REG_FP = 29, REG_SP = 31, REG_RA = 30 };
#endif

/* The beginning of the caller's frame (cfa), and the places of saved registers, as offsets from the cfa. */
struct row {
	unsigned reg;			/* the cfa is reg + offset, or *(reg + offset) if `indirect` */
	int64_t offset;
	bool indirect, strange;		/* strange: the frame has a rule that this file does not support */
	bool has_fp, has_ra, last;
	int64_t fp, ra;
};

/* A part of the tables. The tables are written by the compiler, and mapped as a whole. */
struct text {
	const uint8_t *at, *end;
};

/* A LEB128 number; is_signed: bit 6 of the last byte is the sign. */
static uint64_t leb(struct text *text, bool is_signed)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = text->at < text->end ? *text->at++ : 0;
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return is_signed && shift < 64 && byte & 0x40 ? value | ~(uint64_t)0 << shift : value;
}

static uint64_t uleb(struct text *text)
{
	return leb(text, false);
}

static int64_t sleb(struct text *text)
{
	return (int64_t)leb(text, true);
}

/* A block of bytes behind its length. Returns: the block; the text continues behind it. */
static struct text block(struct text *text)
{
	const uint64_t bytes = uleb(text);
	const struct text inside = { text->at, text->at + bytes };

	text->at += bytes;
	return inside;
}

static uint64_t take(struct text *text, unsigned bytes)
{
	uint64_t value = 0;

	if ((size_t)(text->end - text->at) < bytes)
		bytes = 0;
	__builtin_memcpy(&value, text->at, bytes);
	text->at = bytes ? text->at + bytes : text->end;
	return value;
}

/* Bytes of an address in this encoding; 0: not supported. */
static unsigned width(uint8_t encoding)
{
	switch (encoding & 0x0f) {
	case 0x00: case 0x04: case 0x0c:
		return 8;
	case 0x03: case 0x0b:
		return 4;
	default:
		return 0;
	}
}

struct function {
	struct text common, own;	/* instructions common to functions (CIE), and of this function (FDE) */
	uintptr_t start;
	uint64_t code_align;
	int64_t data_align;
	uint8_t encoding;		/* encoding of addresses */
	bool has_data;			/* augmentation data follows the range */
	bool signal;			/* the frame is of a signal handler's return */
	bool in_file;			/* the place is in a mapped file */
};

/* An entry begins with its length, 4 bytes. The longer form of a length gives an empty text. */
static struct text entry_at(const uint8_t *at)
{
	uint32_t bytes;

	__builtin_memcpy(&bytes, at, sizeof(bytes));
	return (struct text){ at + 4, bytes < 0xfffffff0u ? at + 4 + bytes : at + 4 };
}

static bool read_common(struct function *function, const uint8_t *cie)
{
	struct text text = entry_at(cie);

	if (text.end - text.at < 8)
		return false;
	uint8_t version = text.at[4];
	const char *letters = (const char *)text.at + 5;
	text.at += 5 + __builtin_strlen(letters) + 1;
	if (letters[0] && letters[0] != 'z')
		return false;
	function->code_align = uleb(&text);
	function->data_align = sleb(&text);
	if ((version == 1 ? take(&text, 1) : uleb(&text)) != REG_RA)
		return false;
	function->has_data = letters[0] == 'z';
	struct text data = function->has_data ? block(&text) : text;
	for (const char *letter = letters + function->has_data; *letter; letter++) {
		if (*letter == 'R')
			function->encoding = (uint8_t)take(&data, 1);
		else if (*letter == 'L')
			take(&data, 1);
		else if (*letter == 'P')
			take(&data, width((uint8_t)take(&data, 1)));
		else if (*letter == 'S')
			function->signal = true;
	}
	function->common = text;
	return width(function->encoding) != 0;
}

/* Search .eh_frame_hdr: a sorted table of pairs of offsets from the header: a function, and the function's entry. */
static const uint8_t *entry_of(const uint8_t *header, uintptr_t pc)
{
	const int32_t *table = (const void *)(header + 12);
	uint32_t count, low = 0;

	/* The form written by linkers: version 1; a pointer of 4 bytes, a count of 4, offsets of 4 from the header. */
	if (header[0] != 1 || (header[1] & 0x0f) != 0x0b || header[2] != 0x03 || header[3] != 0x3b)
		return NULL;
	__builtin_memcpy(&count, header + 8, sizeof(count));
	for (uint32_t high = count; low < high;) {
		uint32_t middle = low + (high - low) / 2;

		if ((uintptr_t)header + (uintptr_t)(intptr_t)table[2 * middle] <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? header + table[2 * low - 1] : NULL;
}

/* Reads an entry of the tables. Returns: false if the entry is not of the function at pc. */
static bool read_entry(struct function *function, const uint8_t *fde, uintptr_t pc)
{
	struct text text = entry_at(fde);
	const uint8_t *place = text.at;
	uint32_t back = (uint32_t)take(&text, 4);

	*function = (struct function){ .in_file = true };
	if (!back || !read_common(function, place - back))
		return false;
	unsigned bytes = width(function->encoding);
	const uint8_t *at = text.at;
	uint64_t start = take(&text, bytes), range = take(&text, bytes);
	if (bytes == 4 && function->encoding & 0x08)
		start = (uint64_t)(int64_t)(int32_t)start;
	function->start = (function->encoding & 0x70) == 0x10 ? (uintptr_t)at + start : start;
	if (function->has_data)
		block(&text);
	function->own = text;
	return pc - function->start < range;
}

static bool find_function(uintptr_t pc, struct function *function)
{
	struct km_stack_tables tables;

	*function = (struct function){ .in_file = km_stack_tables_of(pc, &tables) };
	if (tables.sorted) {
		const uint8_t *fde = entry_of(tables.sorted, pc);
		return fde && read_entry(function, fde, pc);
	}
	for (const uint8_t *at = tables.entry; at && tables.end - at > 8; at = entry_at(at).end)
		if (read_entry(function, at, pc))
			return true;
	return false;
}

/* Notes a register's place in the frame, or that it has none. */
static void save(struct row *row, uint64_t reg, bool saved, int64_t offset)
{
	if (reg == REG_FP) {
		row->has_fp = saved;
		row->fp = offset;
	} else if (reg == REG_RA) {
		row->has_ra = saved;
		row->ra = offset;
		row->last = false;
	}
}

/* DW_CFA_def_cfa_expression: *(reg + offset), of functions that align their stack. */
static void cfa_by_expression(struct row *row, struct text *text)
{
	struct text part = block(text);
	uint8_t first = (uint8_t)take(&part, 1);

	row->strange = true;
	if (first != 0x70 + REG_FP)
		return;
	row->reg = REG_FP;
	row->offset = sleb(&part);
	row->indirect = true;
	row->strange = take(&part, 1) != 0x06 || part.at != part.end;
}

static void cfa_is(struct row *row, uint64_t reg, int64_t offset)
{
	row->reg = (unsigned)reg;
	row->offset = offset;
	row->indirect = false;
	row->strange = reg != REG_SP && reg != REG_FP;
}

/* A rule for a register other than a place in the frame: the row becomes strange, if the register matters. */
static void is_elsewhere(struct row *row, struct text *text, uint8_t code)
{
	uint64_t reg = uleb(text);

	save(row, reg, false, 0);
	if (code == 0x07 && reg == REG_RA)
		row->last = true;
	else if ((code != 0x08 && code != 0x07) && (reg == REG_FP || reg == REG_RA))
		row->strange = true;
	if (code == 0x09 || code == 0x14)
		uleb(text);
	else if (code == 0x15)
		sleb(text);
	else if (code == 0x10 || code == 0x16)
		block(text);
}

static bool run_one(const struct function *function, struct row *row, struct text *text, uint8_t code)
{
	int64_t offset;
	uint64_t reg;

	switch (code) {
	case 0x00:
	case 0x2d:			/* aarch64: the return address is signed from here on */
		return true;
	case 0x05: case 0x11: case 0x2f:
		reg = uleb(text);
		offset = code == 0x11 ? sleb(text) : (int64_t)uleb(text);
		save(row, reg, true, offset * function->data_align * (code == 0x2f ? -1 : 1));
		return true;
	case 0x07: case 0x08: case 0x09: case 0x10: case 0x14: case 0x15: case 0x16:
		is_elsewhere(row, text, code);
		return true;
	case 0x0c: case 0x12:
		reg = uleb(text);
		cfa_is(row, reg, code == 0x12 ? sleb(text) * function->data_align : (int64_t)uleb(text));
		return true;
	case 0x0d:
		cfa_is(row, uleb(text), row->offset);
		return true;
	case 0x0e: case 0x13:
		row->offset = code == 0x13 ? sleb(text) * function->data_align : (int64_t)uleb(text);
		return true;
	case 0x0f:
		cfa_by_expression(row, text);
		return true;
	case 0x2e:
		uleb(text);
		return true;
	default:
		return false;
	}
}

/* The distance to the code of the next instructions, for an "advance" instruction; SIZE_MAX: another instruction. */
static uint64_t advance(struct text *text, uint8_t code)
{
	if (code >> 6 == 1)
		return code & 0x3f;
	return code == 0x02 ? take(text, 1) : code == 0x03 ? take(text, 2) : code == 0x04 ? take(text, 4) : SIZE_MAX;
}

#define ROWS 8u				/* most rows that DW_CFA_remember_state saves at once */

/* Run the instructions for the code up to pc. first: the row for DW_CFA_restore. */
static bool run(const struct function *function, struct text text, uintptr_t pc, struct row *row,
		const struct row *first)
{
	struct row rows[ROWS];
	uintptr_t at = function->start;
	unsigned depth = 0;

	while (text.at < text.end) {
		uint8_t code = (uint8_t)take(&text, 1);
		uint64_t far = advance(&text, code), reg = code & 0x3f;

		if (far != SIZE_MAX) {
			at += far * function->code_align;
			if (at > pc)
				break;
		} else if (code >> 6 == 2) {
			save(row, reg, true, (int64_t)uleb(&text) * function->data_align);
		} else if (code >> 6 == 3 || code == 0x06) {
			reg = code == 0x06 ? uleb(&text) : reg;
			save(row, reg, reg == REG_FP ? first->has_fp : first->has_ra,
			     reg == REG_FP ? first->fp : first->ra);
		} else if (code == 0x0a) {
			if (depth == ROWS)
				return false;
			rows[depth++] = *row;
		} else if (code == 0x0b) {
			if (!depth)
				return false;
			*row = rows[--depth];
		} else if (!run_one(function, row, &text, code)) {
			return false;
		}
	}
	return true;
}

/* ------------------------------------------------------------------ a rule */

/* One word: what the frame's caller is found by. Offsets are in words of 8 bytes.         0 known | 1 end of the stack
 * | 2 library's own | 3 by fp | 4 indirect | 5 fp saved | 6 ra saved | 7 of a signal         16..31 fp | 32..47 ra |
 * 48..63 and 8..15 cfa */
enum {
	KNOWN = 1, END = 2, OWN = 4, BY_FP = 8, INDIRECT = 16, HAS_FP = 32, HAS_RA = 64, SIGNAL = 128,
};
#define FITS(words, bits) ((words) >= -(1l << ((bits) - 1)) && (words) < 1l << ((bits) - 1))

static int64_t cfa_words(uint64_t rule)
{
	return (int64_t)(int32_t)((uint32_t)(rule >> 48) << 16 | (uint32_t)(rule >> 8 & 0xff) << 8) >> 8;
}

static uint64_t pack(const struct row *row)
{
	int64_t cfa = row->offset / 8, fp = row->fp / 8, ra = row->ra / 8;
	bool odd = row->offset % 8 || row->fp % 8 || row->ra % 8;

	if (row->strange || row->last || odd || !FITS(cfa, 24) || !FITS(fp, 16) || !FITS(ra, 16))
		return KNOWN | END;
	return KNOWN | (row->reg == REG_FP ? BY_FP : 0u) | (row->indirect ? INDIRECT : 0u) |
	       (row->has_fp ? HAS_FP : 0u) | (row->has_ra ? HAS_RA : 0u) |
	       (uint64_t)(uint16_t)fp << 16 | (uint64_t)(uint16_t)ra << 32 |
	       ((uint64_t)cfa & 0xff) << 8 | ((uint64_t)cfa >> 8 & 0xffff) << 48;
}

/* A handler returns to code with a system call for the interrupted registers; these registers lie on the stack. The
 * code is recognised by its instructions, because musl and the kernel's aarch64 vDSO have no table of this code. */
#if defined(__x86_64__)
static const uint8_t goes_back[] = { 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05 };	/* mov $15, %rax; syscall */
#define INTERRUPTED	offsetof(ucontext_t, uc_mcontext.gregs[REG_RIP])
#else
static const uint8_t goes_back[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4 };	/* mov x8, #139; svc #0 */
#define INTERRUPTED	(sizeof(siginfo_t) + offsetof(ucontext_t, uc_mcontext.pc))
#endif

static bool is_return_of_signal(uintptr_t pc)
{
	struct km_stack_tables tables;

	return km_stack_tables_of(pc, &tables) && km_stack_tables_of(pc + sizeof(goes_back) - 1, &tables) &&
	       __builtin_memcmp((const void *)pc, goes_back, sizeof(goes_back)) == 0;
}

static km_noinline uint64_t learn(uintptr_t pc)
{
	struct function function;
	struct row row = { .strange = true }, first;
	uint64_t own = km_stack_is_own(pc) ? OWN : 0;

	/* pc is the return address: the call is before it. */
	bool found = find_function(pc - 1, &function);
	if (!found || function.signal) {
		row = (struct row){ .reg = REG_SP, .offset = INTERRUPTED + 8, .has_ra = true, .ra = -8 };
		return own | (function.in_file && is_return_of_signal(pc) ? SIGNAL | pack(&row) : KNOWN | END);
	}
	first = row;
	if (!run(&function, function.common, UINTPTR_MAX, &row, &first))
		return KNOWN | END | own;
	first = row;
	if (!run(&function, function.own, pc - 1, &row, &first))
		return KNOWN | END | own;
	uint64_t rule = pack(&row);
	km_debug(rule & END || cfa_words(rule) * 8 == row.offset, "a cached rule equals the rule of the table");
	return rule | own;
}

static uint64_t rule_of(uintptr_t pc, bool may_keep)
{
	struct rule *place = &rules[pc * 0x9e3779b97f4a7c15ull >> 32 & (RULES - 1)];
	uint64_t rule = km_load(&place->rule), key = pc ^ km_load(&unloads);

	if (km_likely(may_keep && (km_load(&place->key) ^ rule) == key && rule))
		return rule;
	rule = learn(pc);
	km_debug(rule & KNOWN && place < rules + RULES, "a learned rule has an entry");
	km_store(&place->rule, rule);
	km_store(&place->key, key ^ rule);
	return rule;
}

/* ------------------------------------------------------------------ a stack */

struct walk {
	uintptr_t pc, sp, fp, end;	/* registers of the walk; end: end of the stack, 0: unknown */
	uintptr_t page;			/* with an unknown end: a page checked to be readable */
	uintptr_t start, fp_at;		/* sp at the beginning; where fp was read, or 0 */
	struct km_stack_trail *trail;	/* trail that this walk records, or NULL */
};

static uintptr_t first_here;	/* thread data of the first thread; other than those of other threads they do not lie
				 * above its stack */

void km_stack_first_thread(void)
{
	km_store(&first_here, (uintptr_t)__builtin_thread_pointer());
}

/* Returns: whether the stack from sp to `end` is one stack. A stack made by the program may lie below the thread's
 * own. */
static bool goes_on_to(uintptr_t end, uintptr_t sp)
{
	uintptr_t page = km_thread.stack_low ?: km_align_down(end, KM_PAGE_SIZE);

	if (km_likely(km_thread.stack_low && sp >= km_thread.stack_low))
		return true;
	while (sp < page && km_os_may_read(page - KM_PAGE_SIZE))
		page -= KM_PAGE_SIZE;
	km_thread.stack_low = page;
	return sp >= page;
}

/* Returns an address above all frames of the calling thread's stack; 0: not a stack of the system or of libc. The
 * kernel puts random bytes (AT_RANDOM) above the frames of the first thread, libc puts thread data above those of
 * other threads. */
static uintptr_t end_of(uintptr_t sp)
{
	static uintptr_t first_end;
	uintptr_t here = (uintptr_t)__builtin_thread_pointer();

	uintptr_t first = km_load(&first_end);
	/* Threads at the first walk store the same answer. */
	if (km_unlikely(!first))
		km_store(&first_end, first = (uintptr_t)getauxval(AT_RANDOM));
	uintptr_t end = here == km_load(&first_here) ? first : here;
	return sp < end && end - sp < MOST_STACK && goes_on_to(end, sp) ? end : 0;
}

static bool may_read(struct walk *walk, uintptr_t at)
{
	if (at % 8 || at < walk->sp || (walk->end && at + 8 > walk->end))
		return false;
	if (!walk->end && km_align_down(at, KM_PAGE_SIZE) != walk->page) {
		if (!km_os_may_read(at))
			return false;
		walk->page = km_align_down(at, KM_PAGE_SIZE);
	}
	return true;
}

/* Removes the signature of a return address (aarch64). */
static uintptr_t stripped(uintptr_t pc)
{
#if defined(__aarch64__)
	register uintptr_t lr __asm__("x30") = pc;

	__asm__("hint #7" : "+r"(lr));
	return lr;
#else
	return pc;
#endif
}

/* ---- trails */

/* Add a word to the trail. at: its address; 0: the register of the frame pointer. A stack too long for a trail gets
 * none. */
static void note_word(struct walk *walk, uintptr_t at, uintptr_t word, uint32_t is_base)
{
	const uintptr_t place = at ? (at - walk->start) / 8 : KM_STACK_IN_REGISTER;
	struct km_stack_trail *trail = walk->trail;

	if (!trail)
		return;
	if (place > KM_STACK_IN_REGISTER || trail->words == KM_STACK_WORDS) {
		walk->trail = NULL;
		return;
	}
	km_store(&trail->at[trail->words], (uint32_t)place | is_base);
	km_store(&trail->word[trail->words], word - (is_base ? walk->start : 0));
	km_bump(&trail->words, 1);
}

/* Compare the stack with a trail. Returns: 0 for the same stack; else a hash input: the length of the common part and
 * the differing word, to find the trail of a stack with a common beginning. Reads nothing beyond the stack's end, even
 * during a write of the trail. */
static km_noinline uint64_t differs(const struct km_stack_trail *trail, const struct walk *here)
{
	const unsigned words = km_min(km_load(&trail->words), KM_STACK_WORDS);
	const uintptr_t *start = (const uintptr_t *)here->sp;
	const uint64_t last = (here->end - here->sp) / 8 - 1;

	for (unsigned i = 0; i < words; i++) {
		const uint32_t at = km_load(&trail->at[i]), place = at & ~KM_STACK_IS_BASE;
		uintptr_t word = here->fp;

		if (km_likely(place <= last))
			word = start[place];
		else if (place != KM_STACK_IN_REGISTER)
			return 0x800 | i;
		word -= at & KM_STACK_IS_BASE ? here->sp : 0;
		if (km_unlikely(word != km_load(&trail->word[i])))
			return word << 12 | 0x800 | i;
	}
	return 0;
}

static bool step(struct walk *walk, uint64_t rule)
{
	uintptr_t cfa = (rule & BY_FP ? walk->fp : walk->sp) + (uintptr_t)cfa_words(rule) * 8;

	if (rule & BY_FP)
		note_word(walk, walk->fp_at, walk->fp, KM_STACK_IS_BASE);
	if (rule & INDIRECT) {
		if (!may_read(walk, cfa))
			return false;
		note_word(walk, cfa, *(uintptr_t *)cfa, KM_STACK_IS_BASE);
		cfa = *(uintptr_t *)cfa;
	}
	uintptr_t ra = cfa + (uintptr_t)(int64_t)(int16_t)(rule >> 32) * 8;
	uintptr_t fp = cfa + (uintptr_t)(int64_t)(int16_t)(rule >> 16) * 8;
	if (!(rule & HAS_RA) || cfa <= walk->sp || cfa - walk->sp > MOST_FRAME || !may_read(walk, ra) ||
	    (rule & HAS_FP && !may_read(walk, fp)))
		return false;
	if (rule & HAS_FP) {
		walk->fp = *(uintptr_t *)fp;
		walk->fp_at = fp;
	}
	note_word(walk, ra, *(uintptr_t *)ra, 0);
	walk->pc = stripped(*(uintptr_t *)ra);
	walk->sp = cfa;
	return walk->pc != 0;
}

/* The registers at this place, for a walk by the rule of this place. */
#if defined(__x86_64__)
#define HERE(walk)                                                                                 \
	__asm__ volatile("lea 0f(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2\n0:"                 \
			 : "=&r"((walk)->pc), "=&r"((walk)->sp), "=&r"((walk)->fp))
#else
#define HERE(walk)                                                                                 \
	__asm__ volatile("adr %0, 0f\n\tmov %1, sp\n\tmov %2, x29\n0:"                             \
			 : "=&r"((walk)->pc), "=&r"((walk)->sp), "=&r"((walk)->fp))
#endif

/* Walk the stack by the rules. Returns: the number of frames. */
static unsigned walk_all(struct walk *walk, uintptr_t *frame, unsigned most)
{
	unsigned depth = 0;

	for (unsigned i = 0; i < MOST_STEPS && depth < most; i++) {
		uint64_t rule = rule_of(walk->pc, walk->end);

		km_debug(rule & KNOWN && depth < most, "a frame has a rule and a place");
		if (depth || !(rule & OWN))
			frame[depth++] = walk->pc;
		if (rule & END || !step(walk, rule))
			break;
		/* The interrupted code may have moved the stack pointer, unknown to the table. */
		if (rule & SIGNAL) {
			if (depth && depth < most)
				frame[depth++] = walk->pc;
			break;
		}
	}
	return depth;
}

km_noinline unsigned km_stack_walk(uintptr_t *frame, unsigned most)
{
	struct walk walk = { .fp_at = 0 };

	HERE(&walk);
	walk.end = end_of(walk.sp);
	return walk_all(&walk, frame, most);
}

unsigned km_stack_behind(const struct km_fault *fault, uintptr_t *frame, unsigned most)
{
	/* pc + 1, because a rule is looked up for the instruction before pc. */
	struct walk walk = { .pc = fault->pc + 1, .sp = fault->sp, .fp = fault->fp, .end = end_of(fault->sp) };
	uint64_t rule = rule_of(walk.pc, walk.end);

	if (rule & END || !fault->sp)
		return 0;
	if (rule & HAS_RA) {
		if (!step(&walk, rule))
			return 0;
	} else {
		walk.pc = stripped(fault->lr);
		walk.sp += rule & BY_FP ? 0 : (uintptr_t)cfa_words(rule) * 8;
	}
	return walk_all(&walk, frame, most);
}

/* Only this walk writes the trail until km_stack_keep: a reader sees an odd turn, before or after the read. */
static struct km_stack_trail *take_trail(struct km_stack_trail *trail)
{
	uint32_t turn = km_load(&trail->turn);

	if (turn & 1 || !km_cas_acquire(&trail->turn, &turn, turn + 1))
		return NULL;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	km_store(&trail->words, 0u);
	return trail;
}

/* Find a stack's trail; else *found is the trail to reuse. Threads' stacks are compared by offsets from the start. */
static bool find_trail(struct km_stack *stack, const struct walk *here, uint64_t key, struct km_stack_trail **found)
{
	uint64_t other = here->end - here->sp;

	for (unsigned i = 0; i < LOOKS; i++) {
		key = ((key ^ other) + (key >> 32)) * 0x9e3779b97f4a7c15ull | 1;
		struct km_stack_trail *trail = *found = &trails[key >> 32 & (KM_STACK_TRAILS - 1)];
		/* Acquire pairs with km_stack_keep: what the key stands for is there. */
		const uint32_t turn = km_load_acquire(&trail->turn);

		stack->key = key;
		if (km_load(&trail->key) != key || turn & 1)
			return false;
		other = differs(trail, here);
		stack->what = km_load(&trail->what);
		/* If `turn` is unchanged, all words read above belong to this trail. */
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (km_load(&trail->turn) != turn)
			return false;
		if (!other)
			return true;
	}
	return false;
}

km_noinline void km_stack_take(struct km_stack *stack, uint64_t key, unsigned most, bool anew)
{
	struct walk walk = { .fp_at = 0 };
	struct km_stack_trail *trail;

	HERE(&walk);
	km_debug(most <= KMEM_PROFILE_FRAMES, "a stack has room for its frames");
	walk.start = walk.sp;
	walk.end = end_of(walk.sp);
	stack->known = false;
	stack->trail = NULL;
	if (km_likely(walk.end)) {
		stack->known = find_trail(stack, &walk, key ^ km_load(&unloads), &trail) && !anew;
		if (km_likely(stack->known))
			return;
		stack->trail = walk.trail = take_trail(trail);
		if (walk.trail)
			km_store(&walk.trail->key, stack->key);
	}
	stack->depth = walk_all(&walk, stack->frame, most);
	if (stack->trail && !walk.trail)
		km_store(&stack->trail->key, 0ul);
	if (km_unlikely(!stack->depth))
		stack->frame[stack->depth++] = (uintptr_t)__builtin_return_address(0);
}

void km_stack_forget(void)
{
	km_add(&unloads, (uint64_t)1 << 48);
}

void km_stack_keep(struct km_stack *stack, uint32_t what)
{
	struct km_stack_trail *trail = stack->trail;

	if (!trail)
		return;
	km_debug(km_load(&trail->turn) & 1, "a trail has one writer");
	if (what == KM_STACK_NOTHING)
		km_store(&trail->key, 0ul);
	km_store(&trail->what, what);
	/* Release pairs with find_trail: the words are those of the key. */
	km_store_release(&trail->turn, km_load(&trail->turn) + 1);
	stack->trail = NULL;
}
