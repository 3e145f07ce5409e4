/*
 * profile_flame.c: a profile as a tree of functions: callers are parents of callees, and caches are the leaves. Three
 * formats: an interactive page, a picture, or a line for each stack (the folded format of flame graph tools).
 * Invariant: names come from untrusted files; each name is escaped, so no reader of a format takes a name for markup.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "base/text.h"
#include "profile_data.h"

struct node {
	const char *name;
	uint64_t shown, out, bytes;
	struct node *child, *next;
};

/* ------------------------------------------------------------------ the tree */

static struct node *child_of(struct node *node, const char *name)
{
	struct node **link = &node->child;

	while (*link && strcmp((*link)->name, name) < 0)
		link = &(*link)->next;
	if (*link && !strcmp((*link)->name, name))
		return *link;
	struct node *child = kmem_need(calloc(1, sizeof(*child)));
	child->name = kmem_need(strdup(name));
	child->next = *link;
	return *link = child;
}

static struct node *add(struct node *node, const struct profile *profile, const struct stack *stack)
{
	node->shown += profile_shown(profile, stack);
	node->out += stack->out_bytes;
	node->bytes += stack->bytes;
	return node;
}

#define CACHE_NAME	128	/* bytes, for the names of a cache and a group */

static void cache_name(const struct stack *stack, char text[CACHE_NAME])
{
	snprintf(text, CACHE_NAME, *stack->group ? "[%s of %s]" : "[%s]", stack->cache, stack->group);
}

static void add_stack(struct node *node, const struct profile *profile, const struct stack *stack)
{
	char cache[CACHE_NAME];

	add(node, profile, stack);
	for (unsigned i = stack->depth; i-- > 0;)
		for (unsigned step = profile_steps(profile, stack->frame[i]); step-- > 0;)
			node = add(child_of(node, profile_frame_name(profile, stack->frame[i], step)), profile, stack);
	cache_name(stack, cache);
	add(child_of(node, cache), profile, stack);
}

static void build(struct node *root, const struct profile *profile)
{
	*root = (struct node){ .name = "all" };
	for (size_t i = 0; i < profile->stacks; i++)
		add_stack(root, profile, &profile->stack[i]);
}

static void clear(struct node *node)
{
	for (struct node *child = node->child, *next; child; child = next) {
		next = child->next;
		clear(child);
		free((char *)child->name);
		free(child);
	}
}

/* ------------------------------------------------------------------ a line for each stack */

static void put_folded(FILE *to, const char *name)
{
	for (; *name; name++)
		putc(*name == ';' || (unsigned char)*name < ' ' ? ':' : *name, to);
}

bool profile_write_folded(const struct profile *profile, FILE *to)
{
	char cache[CACHE_NAME];

	for (size_t i = 0; i < profile->stacks; i++) {
		const struct stack *stack = &profile->stack[i];

		if (!profile_shown(profile, stack))
			continue;
		for (unsigned k = stack->depth; k-- > 0;)
			for (unsigned step = profile_steps(profile, stack->frame[k]); step-- > 0;) {
				put_folded(to, profile_frame_name(profile, stack->frame[k], step));
				putc(';', to);
			}
		cache_name(stack, cache);
		put_folded(to, cache);
		fprintf(to, " %llu\n", (unsigned long long)profile_shown(profile, stack));
	}
	return !ferror(to);
}

/* ------------------------------------------------------------------ a picture */

#define WIDTH	1200.0
#define HEIGHT	17.0
#define HEAD	40.0
#define LETTER	6.6			/* average width of a letter of the font */
#define LEAST	0.4			/* narrower boxes are left out */

static void put_xml(FILE *to, const char *text, size_t most)
{
	char one[8];

	for (; *text && most; most--)
		fputs(km_text_xml(&text, one), to);
}

static const char *megabytes(uint64_t bytes, char text[32])
{
	snprintf(text, 32, bytes < 10u << 20 ? "%.1f KiB" : "%.1f MiB",
		 (double)bytes / (bytes < 10u << 20 ? 1024.0 : 1048576.0));
	return text;
}

static unsigned depth_of(const struct node *node, uint64_t all)
{
	unsigned most = 0;

	for (const struct node *child = node->child; child; child = child->next) {
		unsigned depth = (double)child->shown / (double)all * WIDTH < LEAST ? 0 : depth_of(child, all);

		most = depth > most ? depth : most;
	}
	return most + 1;
}

/* Writes a colour hashed from the name: equal names have equal colours. Functions are warm, caches blue. */
static void put_colour(FILE *to, const char *name)
{
	unsigned hash = 2166136261u;

	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 16777619u;
	if (*name == '[')
		fprintf(to, "rgb(%u,%u,%u)", 120 + hash % 40, 170 + hash / 64 % 40, 215 + hash / 4096 % 30);
	else
		fprintf(to, "rgb(%u,%u,%u)", 215 + hash % 40, 120 + hash / 64 % 80, 60 + hash / 4096 % 40);
}

static void put_box(FILE *to, const struct node *node, uint64_t all, double left, double top)
{
	double width = (double)node->shown / (double)all * WIDTH;
	char text[32];

	if (width < LEAST)
		return;
	fprintf(to, "<g><title>");
	put_xml(to, node->name, 400);
	fprintf(to, ": %s, %.1f %%</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.0f\" fill=\"",
		megabytes(node->shown, text), 100.0 * (double)node->shown / (double)all, left, top, width, HEIGHT - 1);
	put_colour(to, node->name);
	fprintf(to, "\"/>");
	if (width > 4 * LETTER) {
		fprintf(to, "<text x=\"%.1f\" y=\"%.1f\">", left + 3, top + 12);
		put_xml(to, node->name, (size_t)((width - 6) / LETTER));
		fprintf(to, "</text>");
	}
	fprintf(to, "</g>\n");
	for (const struct node *child = node->child; child; child = child->next) {
		put_box(to, child, all, left, top - HEIGHT);
		left += (double)child->shown / (double)all * WIDTH;
	}
}

bool profile_write_svg(const struct profile *profile, FILE *to)
{
	struct node root;
	char text[32];

	build(&root, profile);
	uint64_t all = root.shown ? root.shown : 1;
	double height = HEAD + HEIGHT * depth_of(&root, all) + 8;
	fprintf(to, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
		"height=\"%.0f\" font-family=\"monospace\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fffdf8\"/>\n<text x=\"6\" y=\"22\" font-size=\"14\">",
		WIDTH, height, WIDTH, height);
	put_xml(to, profile->program, 64);
	fprintf(to, ": %s that %s, by stack</text>\n", megabytes(root.shown, text),
		profile->nothing_out ? "were allocated; none is allocated now" : "are allocated now");
	put_box(to, &root, all, 0, height - HEIGHT - 4);
	fprintf(to, "</svg>\n");
	clear(&root);
	return !ferror(to);
}

/* ------------------------------------------------------------------ a page */

static const char page_head[] =
	"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>kmem profile</title>\n<style>\n"
	"body{font:13px sans-serif;margin:12px;background:#fffdf8;color:#222}\n"
	"#graph{position:relative;margin-top:8px;overflow:hidden}\n"
	"#graph div{position:absolute;height:17px;line-height:17px;font:11px monospace;white-space:nowrap;"
	"overflow:hidden;padding-left:3px;box-sizing:border-box;border-right:1px solid #fffdf8;"
	"border-bottom:1px solid #fffdf8;cursor:pointer}\n"
	"#graph div:hover{outline:1px solid #222}#graph .hit{background:#c080e0!important}\n"
	"#about{font:12px monospace;min-height:1.4em;margin-top:6px}label{margin-right:1em}\n"
	"</style></head><body>\n";

static const char page_script[] =
	"<script>\n"
	"'use strict';\n"
	"const NAME=0,OUT=1,BYTES=2,CHILDREN=3,graph=document.getElementById('graph'),\n"
	"about=document.getElementById('about'),find=document.getElementById('find');\n"
	"let path=[data],which=data[OUT]?OUT:BYTES;\n"
	"const amount=b=>b<1024?b+' B':b<1048576?(b/1024).toFixed(1)+' KiB':b<1073741824?(b/1048576).toFixed(1)+\n"
	"' MiB':(b/1073741824).toFixed(2)+' GiB';\n"
	"function colour(n){let h=2166136261;for(let i=0;i<n.length;i++)h=Math.imul(h^n.charCodeAt(i),16777619)>>>0;\n"
	"return n[0]=='['?`rgb(${120+h%40},${170+(h>>>6)%40},${215+(h>>>12)%30})`:\n"
	"`rgb(${215+h%40},${120+(h>>>6)%80},${60+(h>>>12)%40})`}\n"
	"function say(n){const all=data[which]||1;about.textContent=n?`${n[NAME]}: ${amount(n[OUT])} out, `+\n"
	"`${amount(n[BYTES])} allocated, ${(100*n[which]/all).toFixed(1)} %`:''}\n"
	"function draw(){graph.textContent='';const width=graph.clientWidth,top=path[path.length-1];\n"
	"let deepest=0,word=find.value.toLowerCase();\n"
	"function box(n,left,wide,level,line){if(wide<0.5)return;if(level>deepest)deepest=level;\n"
	"const d=document.createElement('div');d.style.left=left+'px';d.style.width=Math.max(wide,1)+'px';\n"
	"d.style.top=level*17+'px';d.style.background=colour(n[NAME]);if(wide>20)d.textContent=n[NAME];\n"
	"if(word&&n[NAME].toLowerCase().includes(word))d.className='hit';\n"
	"d.onmouseenter=()=>say(n);d.onclick=()=>{path=line;draw()};graph.appendChild(d);\n"
	"if(level<path.length-1){box(path[level+1],0,width,level+1,path.slice(0,level+2));return}\n"
	"let at=left;for(const c of n[CHILDREN]){const w=n[which]?wide*c[which]/n[which]:0;\n"
	"box(c,at,w,level+1,line.concat([c]));at+=w}}\n"
	"box(data,0,width,0,[data]);graph.style.height=(deepest+1)*17+'px';say(top)}\n"
	"for(const i of document.getElementsByName('which'))i.onchange=()=>{which=+i.value;draw()};\n"
	"find.oninput=draw;window.onresize=draw;draw();\n"
	"</script></body></html>\n";

/* Writes a JavaScript string literal; escapes keep the text from ending the literal or the script. */
static void put_string(FILE *to, const char *text)
{
	putc('"', to);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < ' ' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&')
			fprintf(to, "\\u%04x", c);
		else
			putc(c, to);
	}
	putc('"', to);
}

static void put_node(FILE *to, const struct node *node)
{
	putc('[', to);
	put_string(to, node->name);
	fprintf(to, ",%llu,%llu,[", (unsigned long long)node->out, (unsigned long long)node->bytes);
	for (const struct node *child = node->child; child; child = child->next) {
		put_node(to, child);
		if (child->next)
			fputs(",\n", to);
	}
	fputs("]]", to);
}

bool profile_write_html(const struct profile *profile, FILE *to)
{
	struct node root;

	build(&root, profile);
	fputs(page_head, to);
	fprintf(to, "<b>");
	put_xml(to, profile->program, 64);
	fprintf(to, "</b> %d: %.1f s, %llu samples, one for %llu bytes on the average<br>\n"
		"<label><input type=\"radio\" name=\"which\" value=\"1\"%s> bytes allocated now%s</label>"
		"<label><input type=\"radio\" name=\"which\" value=\"2\"%s> bytes of all allocations</label>"
		"<label>find <input id=\"find\" size=\"20\"></label>\n"
		"<div id=\"graph\"></div><div id=\"about\"></div>\n<script>const data=\n", (int)profile->pid,
		(double)profile->ms / 1000, (unsigned long long)profile->samples, (unsigned long long)profile->mean,
		profile->nothing_out ? "" : " checked", profile->nothing_out ? ": none" : "",
		profile->nothing_out ? " checked" : "");
	put_node(to, &root);
	fputs("</script>\n", to);
	fputs(page_script, to);
	clear(&root);
	return !ferror(to);
}
