/*
 * baretree: a multicast/reduction tree with nothing in it but sockets.
 *
 * It is the floor that Sheaf's tree is measured against: the same shapes, the
 * same process per node, the same loopback links, and no packets, streams,
 * filters, credits or recovery. A root spawns its children, they spawn theirs;
 * what the root sends goes to every leaf unparsed, what the leaves send is
 * summed wave by wave at every node on the way up.
 *
 * Down, a node is one ring of bytes with one writer (the parent) and one
 * cursor per child: data is forwarded as soon as it is there and is never
 * copied inside the process. Up, a node keeps a window of open waves; a child
 * that runs ahead of the window is not read until the others have caught up,
 * which bounds the memory of every node.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum {
	DEPTH_MAX = 8,
	FANOUT_MAX = 4096,
	ROUNDS_MAX = 1 << 20,
	WINDOW_WAVES = 8192,          /* waves open at once in a node; a power of two */
	CHILD_BUF_BYTES = 64 << 10,   /* what one read from a child may bring */
	OUT_WAVES_MAX = 2 * WINDOW_WAVES,
	LEAF_BUF_BYTES = 256 << 10,
	EVENTS_MAX = 64,
	STRANGERS_MAX = 16,           /* room in the backlog beside the children */
	PARENT_FD = 3,                /* where a child finds its socketpair end */
	PATH_BYTES_MAX = 4096,
};

/* What an epoll event belongs to when it is not the number of a child. */
#define EV_PARENT UINT32_MAX
#define EV_LISTENER (UINT32_MAX - 1)

enum { T_HELLO = 1, T_SUM, T_ECHO, T_GO, T_OPEN, T_DATA, T_END };

struct frame {
	uint32_t len; /* payload bytes that follow */
	uint32_t type;
	uint64_t wave;
	uint64_t value;
};

struct config {
	const char *mode;
	unsigned fanout[DEPTH_MAX];
	unsigned depth;
	bool unix_link;
	unsigned port;       /* of the parent, for a TCP child */
	uint64_t token;      /* keeps stray connections out of the tree */
	uint64_t first_leaf; /* number of the first leaf below this node */
	unsigned batch;      /* waves per write; 0 is all that is ready */
	unsigned deadline_s;
	size_t ring_bytes;
	bool verify;
	bool fsync;
	/* the root's own */
	unsigned rounds;
	uint64_t waves;
	uint64_t bytes;
	size_t chunk_bytes;
	const char *file, *dest;
	uint64_t t0_ns;
};

struct child {
	int fd; /* -1 until it has connected */
	pid_t pid;
	bool hello, stalled;
	uint32_t armed; /* the epoll events asked for */
	uint8_t *buf;
	size_t pos, len;
	uint64_t cursor; /* bytes of the down stream already sent to it */
};

struct node {
	const struct config *cfg;
	int ep, parent, listener;
	uint32_t parent_armed;
	unsigned nchildren, greeted, stalled;
	struct child *child;
	uint8_t *ring;
	size_t ring_cap;
	uint64_t head; /* bytes ever put into the ring */
	struct { uint64_t sum; uint64_t count; } window[WINDOW_WAVES];
	uint64_t base; /* the oldest open wave */
	struct frame *out;
	size_t out_first, out_pos, out_end; /* out_pos in bytes */
	uint64_t (*expected)(const struct config *, uint64_t wave); /* the root's */
};

static const char *role = "root";

static void die(const char *fmt, ...)
{
	va_list ap;
	fprintf(stderr, "baretree %s: ", role);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static void *must_alloc(size_t n, size_t size)
{
	void *p = calloc(n, size);
	if (!p)
		die("out of memory (%zu bytes)", n * size);
	return p;
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t leaves_of(const unsigned *fanout, unsigned depth)
{
	uint64_t n = 1;
	for (unsigned i = 0; i < depth; i++)
		n *= fanout[i];
	return n;
}

static uint64_t fnv1a(uint64_t h, const uint8_t *p, size_t n)
{
	while (n--)
		h = (h ^ *p++) * 0x100000001b3u;
	return h;
}
#define FNV_START 0xcbf29ce484222325u

/* ---------------------------------------------------------------- sockets */

static void set_nodelay(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static int listen_loopback(unsigned *port, int backlog)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, len) || listen(fd, backlog) ||
	    getsockname(fd, (struct sockaddr *)&a, &len))
		die("listen: %s", strerror(errno));
	*port = ntohs(a.sin_port);
	return fd;
}

static int join_parent(const struct config *cfg)
{
	if (cfg->unix_link) {
		fcntl(PARENT_FD, F_SETFD, FD_CLOEXEC);
		return PARENT_FD;
	}
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(cfg->port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a))
		die("connect: %s", strerror(errno));
	set_nodelay(fd);
	return fd;
}

/* A child's own command line; positional, since only this file reads it. */
static pid_t spawn_child(const struct config *cfg, unsigned port, uint64_t first_leaf, int fd)
{
	char shape[128] = "1", num[9][24];
	size_t used = 1;
	for (unsigned i = 1; i < cfg->depth; i++)
		used += (size_t)snprintf(shape + used, sizeof shape - used, "x%u", cfg->fanout[i]);
	snprintf(num[0], 24, "%d", cfg->unix_link);
	snprintf(num[1], 24, "%u", port);
	snprintf(num[2], 24, "%" PRIu64, cfg->token);
	snprintf(num[3], 24, "%" PRIu64, first_leaf);
	snprintf(num[4], 24, "%u", cfg->batch);
	snprintf(num[5], 24, "%u", cfg->deadline_s);
	snprintf(num[6], 24, "%zu", cfg->ring_bytes);
	snprintf(num[7], 24, "%d", cfg->verify);
	snprintf(num[8], 24, "%d", cfg->fsync);
	char *argv[] = {"baretree", "child", shape, num[0], num[1], num[2], num[3],
	                num[4], num[5], num[6], num[7], num[8], NULL};
	posix_spawn_file_actions_t actions;
	pid_t pid;
	posix_spawn_file_actions_init(&actions);
	if (fd >= 0)
		posix_spawn_file_actions_adddup2(&actions, fd, PARENT_FD);
	int err = posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	if (err)
		die("spawn: %s", strerror(err));
	return pid;
}

static void arm(struct node *n, int fd, uint32_t key, uint32_t *armed, uint32_t want)
{
	if (*armed == want)
		return;
	struct epoll_event ev = {.events = want, .data.u32 = key};
	if (epoll_ctl(n->ep, EPOLL_CTL_MOD, fd, &ev))
		die("epoll_ctl: %s", strerror(errno));
	*armed = want;
}

static void watch(struct node *n, int fd, uint32_t key)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u32 = key};
	if (epoll_ctl(n->ep, EPOLL_CTL_ADD, fd, &ev))
		die("epoll_ctl: %s", strerror(errno));
}

static void adopt(struct node *n, unsigned slot, int fd)
{
	struct child *c = &n->child[slot];
	c->fd = fd;
	c->armed = EPOLLIN;
	c->pos = c->len = 0;
	if (!c->buf)
		c->buf = must_alloc(1, CHILD_BUF_BYTES);
	watch(n, fd, slot);
}

/* ------------------------------------------------------------------- down */

static uint64_t slowest_cursor(const struct node *n)
{
	uint64_t min = n->head;
	for (unsigned i = 0; i < n->nchildren; i++)
		if (n->child[i].cursor < min)
			min = n->child[i].cursor;
	return min;
}

static void want_out(struct node *n, unsigned slot, bool on)
{
	struct child *c = &n->child[slot];
	arm(n, c->fd, slot, &c->armed, (c->armed & ~EPOLLOUT) | (on ? EPOLLOUT : 0));
}

static void send_down(struct node *n, unsigned slot)
{
	struct child *c = &n->child[slot];
	while (c->cursor < n->head) {
		size_t have = n->head - c->cursor, at = c->cursor % n->ring_cap;
		size_t first = have < n->ring_cap - at ? have : n->ring_cap - at;
		struct iovec v[2] = {{n->ring + at, first}, {n->ring, have - first}};
		ssize_t k = have > first ? writev(c->fd, v, 2) : write(c->fd, v[0].iov_base, first);
		if (k < 0 && errno == EAGAIN) {
			want_out(n, slot, true);
			return;
		}
		if (k < 0)
			die("child %u: %s", slot, strerror(errno));
		c->cursor += (uint64_t)k;
	}
	want_out(n, slot, false);
}

static void send_down_all(struct node *n)
{
	for (unsigned i = 0; i < n->nchildren; i++)
		if (!(n->child[i].armed & EPOLLOUT))
			send_down(n, i);
}

static size_t ring_room(const struct node *n, struct iovec v[2])
{
	size_t room = n->ring_cap - (n->head - slowest_cursor(n)), at = n->head % n->ring_cap;
	size_t first = room < n->ring_cap - at ? room : n->ring_cap - at;
	v[0] = (struct iovec){n->ring + at, first};
	v[1] = (struct iovec){n->ring, room - first};
	return room;
}

/* An inner node reads from its parent only while a worthwhile part of the ring is free. */
static void rearm_parent(struct node *n)
{
	size_t room = n->ring_cap - (n->head - slowest_cursor(n));
	bool in = room >= n->ring_cap / 4;
	arm(n, n->parent, EV_PARENT, &n->parent_armed,
	    (n->parent_armed & ~EPOLLIN) | (in ? EPOLLIN : 0));
}

static bool recv_down(struct node *n)
{
	struct iovec v[2];
	if (!ring_room(n, v))
		return true;
	ssize_t k = readv(n->parent, v, v[1].iov_len ? 2 : 1);
	if (k < 0 && errno == EAGAIN)
		return true;
	if (k <= 0)
		return false;
	n->head += (uint64_t)k;
	send_down_all(n);
	return true;
}

/* --------------------------------------------------------------------- up */

static void want_in(struct node *n, unsigned slot, bool on)
{
	struct child *c = &n->child[slot];
	if (c->stalled == on) {
		c->stalled = !on;
		n->stalled += on ? -1u : 1u;
	}
	arm(n, c->fd, slot, &c->armed, (c->armed & ~EPOLLIN) | (on ? EPOLLIN : 0));
}

static bool greet(struct node *n, struct child *c, const struct frame *f)
{
	if (f->type != T_HELLO || f->wave != n->cfg->token)
		return false;
	c->hello = true;
	if (++n->greeted == n->nchildren && n->listener >= 0) {
		close(n->listener);
		n->listener = -1;
	}
	return true;
}

/* Adds every complete frame of a child's buffer to its wave. */
static void parse_child(struct node *n, unsigned slot)
{
	struct child *c = &n->child[slot];
	bool stall = false;
	while (c->len - c->pos >= sizeof(struct frame)) {
		struct frame f;
		memcpy(&f, c->buf + c->pos, sizeof f);
		if (!c->hello) {
			if (!greet(n, c, &f)) {
				close(c->fd);
				c->fd = -1;
				return;
			}
		} else {
			uint64_t ahead = f.wave - n->base;
			if (f.wave < n->base || f.type != T_SUM)
				die("child %u: bad frame", slot);
			if (ahead >= WINDOW_WAVES) {
				stall = true;
				break;
			}
			n->window[f.wave % WINDOW_WAVES].sum += f.value;
			n->window[f.wave % WINDOW_WAVES].count++;
		}
		c->pos += sizeof f;
	}
	if (stall || c->stalled)
		want_in(n, slot, !stall);
}

static void recv_up(struct node *n, unsigned slot)
{
	struct child *c = &n->child[slot];
	if (c->pos) {
		memmove(c->buf, c->buf + c->pos, c->len - c->pos);
		c->len -= c->pos;
		c->pos = 0;
	}
	ssize_t k = read(c->fd, c->buf + c->len, CHILD_BUF_BYTES - c->len);
	if (k < 0 && errno == EAGAIN)
		return;
	if (k <= 0 && !c->hello && !n->cfg->unix_link) {
		close(c->fd);
		c->fd = -1;
		return;
	}
	if (k <= 0)
		die("child %u is gone", slot);
	c->len += (size_t)k;
	parse_child(n, slot);
}

static bool finish_waves(struct node *n)
{
	uint64_t before = n->base;
	while (n->window[n->base % WINDOW_WAVES].count == n->nchildren) {
		uint64_t sum = n->window[n->base % WINDOW_WAVES].sum;
		if (n->parent >= 0) {
			if (n->out_end == OUT_WAVES_MAX)
				break;
			n->out[n->out_end++] = (struct frame){0, T_SUM, n->base, sum};
		} else if (sum != n->expected(n->cfg, n->base)) {
			die("wave %" PRIu64 ": sum %" PRIu64 ", not %" PRIu64, n->base, sum,
			    n->expected(n->cfg, n->base));
		}
		n->window[n->base % WINDOW_WAVES].sum = 0;
		n->window[n->base % WINDOW_WAVES].count = 0;
		n->base++;
	}
	return n->base != before;
}

static bool send_up(struct node *n)
{
	size_t end = n->out_end * sizeof(struct frame);
	size_t most = n->cfg->batch ? n->cfg->batch * sizeof(struct frame) : SIZE_MAX;
	bool full = false;
	while (n->out_pos < end && !full) {
		size_t want = end - n->out_pos < most ? end - n->out_pos : most;
		ssize_t k = write(n->parent, (uint8_t *)n->out + n->out_pos, want);
		if (k < 0 && errno == EAGAIN)
			full = true;
		else if (k < 0)
			return false;
		else
			n->out_pos += (size_t)k;
	}
	if (n->out_pos == end)
		n->out_pos = n->out_end = 0;
	arm(n, n->parent, EV_PARENT, &n->parent_armed,
	    (n->parent_armed & ~EPOLLOUT) | (full ? EPOLLOUT : 0));
	return true;
}

/* After a round of events: what is complete goes up, and who was held back goes on. */
static bool settle(struct node *n)
{
	bool progress;
	do {
		progress = finish_waves(n);
		if (n->parent >= 0 && n->out_end && !send_up(n))
			return false;
		for (unsigned i = 0; progress && n->stalled && i < n->nchildren; i++)
			if (n->child[i].stalled)
				parse_child(n, i);
	} while (n->out_end < OUT_WAVES_MAX &&
	         n->window[n->base % WINDOW_WAVES].count == n->nchildren);
	return true;
}

/* --------------------------------------------------------------- the node */

/* A stranger holds a slot until its first frame shows it; who finds none free waits in the backlog. */
static void accept_children(struct node *n)
{
	for (unsigned slot = 0; slot < n->nchildren; slot++) {
		if (n->child[slot].fd >= 0)
			continue;
		int fd = accept4(n->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0)
			return;
		set_nodelay(fd);
		adopt(n, slot, fd);
	}
}

static struct node *node_new(const struct config *cfg)
{
	struct node *n = must_alloc(1, sizeof *n);
	n->cfg = cfg;
	n->parent = n->listener = -1;
	n->ep = epoll_create1(EPOLL_CLOEXEC);
	n->nchildren = cfg->fanout[0];
	n->child = must_alloc(n->nchildren, sizeof *n->child);
	n->out = must_alloc(OUT_WAVES_MAX, sizeof *n->out);
	uint64_t below = leaves_of(cfg->fanout + 1, cfg->depth - 1);
	unsigned port = 0;
	if (!cfg->unix_link) {
		n->listener = listen_loopback(&port, (int)n->nchildren + STRANGERS_MAX);
		watch(n, n->listener, EV_LISTENER);
	}
	for (unsigned i = 0; i < n->nchildren; i++) {
		int pair[2] = {-1, -1};
		n->child[i].fd = -1;
		if (cfg->unix_link &&
		    socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
			die("socketpair: %s", strerror(errno));
		n->child[i].pid = spawn_child(cfg, port, cfg->first_leaf + i * below, pair[1]);
		if (cfg->unix_link) {
			close(pair[1]);
			fcntl(pair[0], F_SETFL, O_NONBLOCK);
			adopt(n, i, pair[0]);
		}
	}
	return n;
}

static void give_ring(struct node *n, uint8_t *ring, size_t cap, uint64_t filled)
{
	n->ring = ring;
	n->ring_cap = cap;
	n->head = filled;
	for (unsigned i = 0; i < n->nchildren; i++)
		n->child[i].cursor = 0;
}

/* Waits for events once and deals with them; false when the parent is gone. */
static bool node_turn(struct node *n)
{
	struct epoll_event ev[EVENTS_MAX];
	int k = epoll_wait(n->ep, ev, EVENTS_MAX, (int)n->cfg->deadline_s * 1000);
	if (k == 0)
		die("nothing happened for %u s", n->cfg->deadline_s);
	for (int i = 0; i < k; i++) {
		uint32_t key = ev[i].data.u32;
		if (key == EV_LISTENER) {
			if (n->listener >= 0)
				accept_children(n);
		} else if (key == EV_PARENT) {
			if ((ev[i].events & ~(uint32_t)EPOLLOUT) && !recv_down(n))
				return false;
		} else {
			if (n->child[key].fd >= 0 && (ev[i].events & ~(uint32_t)EPOLLOUT))
				recv_up(n, key);
			if (n->child[key].fd >= 0 && (ev[i].events & EPOLLOUT))
				send_down(n, key);
		}
	}
	if (n->parent >= 0)
		rearm_parent(n);
	return settle(n);
}

/* Closes the links below, which ends the processes below, and waits for them. */
static void node_end(struct node *n)
{
	for (unsigned i = 0; i < n->nchildren; i++)
		if (n->child[i].fd >= 0)
			close(n->child[i].fd);
	if (n->listener >= 0)
		close(n->listener);
	for (unsigned i = 0; i < n->nchildren; i++) {
		int status = 0;
		if (waitpid(n->child[i].pid, &status, 0) < 0 || status)
			die("child %u ended with status %#x", i, (unsigned)status);
	}
}

static void run_inner(const struct config *cfg)
{
	struct node *n = node_new(cfg);
	give_ring(n, must_alloc(1, cfg->ring_bytes), cfg->ring_bytes, 0);
	n->parent = join_parent(cfg);
	struct frame hello = {0, T_HELLO, cfg->token, 0};
	if (write(n->parent, &hello, sizeof hello) != sizeof hello)
		die("hello: %s", strerror(errno));
	fcntl(n->parent, F_SETFL, O_NONBLOCK);
	n->parent_armed = EPOLLIN;
	watch(n, n->parent, EV_PARENT);
	while (node_turn(n))
		;
	node_end(n);
}

/* --------------------------------------------------------------- the leaf */

struct leaf {
	const struct config *cfg;
	int fd;
	uint64_t bytes, hash; /* of the data since the last acknowledgement */
	int file;
	char path[PATH_BYTES_MAX], temp[PATH_BYTES_MAX];
};

/* A leaf has one socket and nothing else to do, so it blocks on it. */
static void leaf_send(const struct leaf *l, const void *p, size_t n)
{
	while (n) {
		ssize_t k = write(l->fd, p, n);
		if (k <= 0)
			exit(errno == EPIPE || errno == ECONNRESET ? 0 : 1);
		p = (const uint8_t *)p + k;
		n -= (size_t)k;
	}
}

static void leaf_sum(const struct leaf *l, uint64_t wave, uint64_t value)
{
	struct frame f = {0, T_SUM, wave, value};
	leaf_send(l, &f, sizeof f);
}

static void leaf_waves(const struct leaf *l, uint64_t wave, uint64_t count)
{
	static struct frame batch[CHILD_BUF_BYTES / sizeof(struct frame)];
	size_t most = l->cfg->batch ? l->cfg->batch : sizeof batch / sizeof *batch;
	if (most > sizeof batch / sizeof *batch)
		most = sizeof batch / sizeof *batch;
	for (size_t i = 0; i < most; i++)
		batch[i].type = T_SUM;
	while (count) {
		size_t k = count < most ? count : most;
		for (size_t i = 0; i < k; i++, wave++) {
			batch[i].wave = wave;
			batch[i].value = l->cfg->first_leaf + 1 + wave;
		}
		leaf_send(l, batch, k * sizeof *batch);
		count -= k;
	}
}

/* The destination may contain %h, which becomes this leaf's name (n1, n2, …). */
static void leaf_open(struct leaf *l, const char *dest, size_t len)
{
	char host[32];
	const char *mark = memmem(dest, len, "%h", 2);
	snprintf(host, sizeof host, "n%" PRIu64, l->cfg->first_leaf + 1);
	if (mark)
		snprintf(l->path, sizeof l->path, "%.*s%s%.*s", (int)(mark - dest), dest, host,
		         (int)(len - (size_t)(mark + 2 - dest)), mark + 2);
	else
		snprintf(l->path, sizeof l->path, "%.*s.%s", (int)len, dest, host);
	if ((size_t)snprintf(l->temp, sizeof l->temp, "%s.part", l->path) >= sizeof l->temp)
		die("destination too long");
	l->file = open(l->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (l->file < 0)
		die("%s: %s", l->temp, strerror(errno));
}

static void leaf_data(struct leaf *l, const uint8_t *p, size_t n)
{
	l->bytes += n;
	if (l->cfg->verify)
		l->hash = fnv1a(l->hash, p, n);
	while (l->file >= 0 && n) {
		ssize_t k = write(l->file, p, n);
		if (k < 0) {
			unlink(l->temp);
			die("%s: %s", l->temp, strerror(errno));
		}
		p += k;
		n -= (size_t)k;
	}
}

static void leaf_end(struct leaf *l, uint64_t wave)
{
	if (l->file >= 0) {
		if ((l->cfg->fsync && fsync(l->file)) || close(l->file) ||
		    rename(l->temp, l->path)) {
			unlink(l->temp);
			die("%s: %s", l->path, strerror(errno));
		}
		l->file = -1;
	}
	leaf_sum(l, wave, l->cfg->verify ? l->hash : l->bytes);
	l->bytes = 0;
	l->hash = FNV_START;
}

static void leaf_frame(struct leaf *l, const struct frame *f)
{
	if (f->type == T_ECHO)
		leaf_sum(l, f->wave, l->cfg->first_leaf + 1 + f->value);
	else if (f->type == T_GO)
		leaf_waves(l, f->wave, f->value);
	else if (f->type == T_END)
		leaf_end(l, f->wave);
	else if (f->type != T_DATA && f->type != T_OPEN)
		die("bad frame type %u", f->type);
}

/* Takes apart what one read brought; returns how much of it was used. */
static size_t leaf_parse(struct leaf *l, struct frame *cur, size_t *left, uint8_t *p, size_t n)
{
	size_t used = 0;
	for (;;) {
		if (*left && cur->type == T_OPEN) {
			if (n - used < *left)
				return used;
			leaf_open(l, (char *)p + used, *left);
			used += *left;
			*left = 0;
		} else if (*left) {
			size_t k = n - used < *left ? n - used : *left;
			if (!k)
				return used;
			leaf_data(l, p + used, k);
			used += k;
			*left -= k;
		} else {
			if (n - used < sizeof *cur)
				return used;
			memcpy(cur, p + used, sizeof *cur);
			used += sizeof *cur;
			*left = cur->len;
			leaf_frame(l, cur);
		}
	}
}

static void run_leaf(const struct config *cfg)
{
	struct leaf l = {.cfg = cfg, .file = -1, .hash = FNV_START};
	uint8_t *buf = must_alloc(1, LEAF_BUF_BYTES);
	struct frame cur = {0};
	size_t left = 0, have = 0;
	l.fd = join_parent(cfg);
	struct timeval tv = {.tv_sec = cfg->deadline_s};
	setsockopt(l.fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	setsockopt(l.fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
	struct frame first[2] = {{0, T_HELLO, cfg->token, 0}, {0, T_SUM, 0, 1}};
	leaf_send(&l, first, sizeof first);
	ssize_t k;
	while ((k = read(l.fd, buf + have, LEAF_BUF_BYTES - have)) > 0) {
		have += (size_t)k;
		size_t used = leaf_parse(&l, &cur, &left, buf, have);
		have -= used;
		if (have && used)
			memmove(buf, buf + used, have);
	}
	if (l.file >= 0)
		unlink(l.temp);
	if (k < 0 && errno != ECONNRESET)
		die("parent: %s", strerror(errno));
}

/* --------------------------------------------------------------- the root */

static uint64_t sum_of_leaf_numbers(const struct config *c)
{
	uint64_t n = leaves_of(c->fanout, c->depth);
	return n * (n + 1) / 2;
}

static uint64_t expect_wave(const struct config *c, uint64_t wave)
{
	uint64_t n = leaves_of(c->fanout, c->depth);
	return wave == 0 ? n : sum_of_leaf_numbers(c) + n * wave;
}

static uint64_t data_hash;

static uint64_t expect_bytes(const struct config *c, uint64_t wave)
{
	uint64_t n = leaves_of(c->fanout, c->depth);
	return wave == 0 ? n : n * (c->verify ? data_hash : c->bytes);
}

static void wait_waves(struct node *n, uint64_t base)
{
	while (n->base < base)
		node_turn(n);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double quantile(double *v, unsigned n, double q)
{
	return v[(unsigned)(q * (n - 1) + 0.5)];
}

static void print_head(const struct config *c)
{
	printf("{\"contestant\":\"baretree\",\"mode\":\"%s\",\"shape\":\"1", c->mode);
	for (unsigned i = 0; i < c->depth; i++)
		printf("x%u", c->fanout[i]);
	printf("\",\"leaves\":%" PRIu64 ",\"link\":\"%s\"", leaves_of(c->fanout, c->depth),
	       c->unix_link ? "unix" : "tcp");
}

static void print_spread(const char *unit, double *v, unsigned n)
{
	qsort(v, n, sizeof *v, by_value);
	printf(",\"n\":%u,\"median_%s\":%.6g,\"p10_%s\":%.6g,\"p90_%s\":%.6g"
	       ",\"min_%s\":%.6g,\"max_%s\":%.6g",
	       n, unit, quantile(v, n, 0.5), unit, quantile(v, n, 0.1), unit, quantile(v, n, 0.9),
	       unit, v[0], unit, v[n - 1]);
}

static double seconds(struct timeval t)
{
	return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* The most memory this program has used; ru_maxrss would include whoever spawned it. */
static long own_rss_max_kb(void)
{
	char line[128];
	long kb = 0;
	FILE *f = fopen("/proc/self/status", "re");
	while (f && fgets(line, sizeof line, f) && sscanf(line, "VmHWM: %ld", &kb) != 1)
		;
	if (f)
		fclose(f);
	return kb;
}

/* The tree's own cost: this process and, reaped by now, every process below it. */
static void print_tail(double start_s)
{
	struct rusage a, b;
	long rss_max_kb = own_rss_max_kb();
	getrusage(RUSAGE_SELF, &a);
	getrusage(RUSAGE_CHILDREN, &b);
	printf(",\"start_s\":%.6f,\"cpu_s\":%.6f,\"rss_max_kb\":%ld,\"check\":\"ok\"}\n", start_s,
	       seconds(a.ru_utime) + seconds(a.ru_stime) + seconds(b.ru_utime) +
	           seconds(b.ru_stime),
	       rss_max_kb > b.ru_maxrss ? rss_max_kb : b.ru_maxrss);
}

static void push(struct node *n, struct frame f)
{
	/* Every earlier frame has been sent by now, so the ring may start afresh. */
	memcpy(n->ring, &f, sizeof f);
	give_ring(n, n->ring, n->ring_cap, sizeof f);
	send_down_all(n);
}

static void root_rtt(const struct config *c, struct node *n, double *v)
{
	unsigned warmup = c->rounds / 10 + 10;
	give_ring(n, must_alloc(1, 4096), 4096, 0);
	for (unsigned r = 0; r < warmup + c->rounds; r++) {
		uint64_t t = now_ns();
		push(n, (struct frame){0, T_ECHO, 1 + r, 1 + r});
		wait_waves(n, 2 + r);
		if (r >= warmup)
			v[r - warmup] = (double)(now_ns() - t) / 1e3;
	}
}

static void root_waves(const struct config *c, struct node *n, double *v)
{
	give_ring(n, must_alloc(1, 4096), 4096, 0);
	uint64_t wave = 1;
	for (unsigned r = 0; r < c->rounds; r++, wave += c->waves) {
		uint64_t t = now_ns();
		push(n, (struct frame){0, T_GO, wave, c->waves});
		wait_waves(n, wave + c->waves);
		v[r] = (double)c->waves * 1e9 / (double)(now_ns() - t);
	}
}

/* Lays the whole down stream out in memory: headers, payload, and the end mark. */
static size_t lay_out_bcast(const struct config *c, uint8_t **out, size_t *end_at)
{
	uint64_t chunks = (c->bytes + c->chunk_bytes - 1) / c->chunk_bytes, x = 88172645463325252u;
	size_t total = c->bytes + (chunks + 1) * sizeof(struct frame), at = 0;
	uint8_t *p = *out = must_alloc(1, total);
	data_hash = FNV_START;
	for (uint64_t left = c->bytes; left;) {
		size_t k = left < c->chunk_bytes ? left : c->chunk_bytes;
		struct frame f = {(uint32_t)k, T_DATA, 0, 0};
		memcpy(p + at, &f, sizeof f);
		at += sizeof f;
		for (size_t i = 0; i < k; i++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			p[at + i] = (uint8_t)x;
		}
		if (c->verify)
			data_hash = fnv1a(data_hash, p + at, k);
		at += k;
		left -= k;
	}
	*end_at = at;
	return total;
}

static void root_bcast(const struct config *c, struct node *n, double *v)
{
	uint8_t *stream;
	size_t end_at, total = lay_out_bcast(c, &stream, &end_at);
	for (unsigned r = 0; r < c->rounds; r++) {
		struct frame f = {0, T_END, 1 + r, 0};
		memcpy(stream + end_at, &f, sizeof f);
		uint64_t t = now_ns();
		give_ring(n, stream, total, total);
		send_down_all(n);
		wait_waves(n, 2 + r);
		v[r] = (double)(now_ns() - t) / 1e9;
	}
}

static void put(struct node *n, const void *p, size_t len)
{
	size_t at = n->head % n->ring_cap;
	size_t first = len < n->ring_cap - at ? len : n->ring_cap - at;
	memcpy(n->ring + at, p, first);
	memcpy(n->ring, (const uint8_t *)p + first, len - first);
	n->head += len;
}

/* Reads one chunk of the file into the ring behind its header; false when it does not fit. */
static bool put_chunk(const struct config *c, struct node *n, int fd, uint64_t left)
{
	struct frame f = {(uint32_t)(left < c->chunk_bytes ? left : c->chunk_bytes), T_DATA, 0, 0};
	struct iovec v[2];
	if (ring_room(n, v) < sizeof f + f.len)
		return false;
	put(n, &f, sizeof f);
	ring_room(n, v);
	if (v[0].iov_len > f.len)
		v[0].iov_len = f.len;
	v[1].iov_len = f.len - v[0].iov_len;
	if (readv(fd, v, 2) != (ssize_t)f.len)
		die("%s: short read", c->file);
	n->head += f.len;
	return true;
}

static void root_cp(struct config *c, struct node *n, double *v)
{
	struct frame open_frame = {(uint32_t)strlen(c->dest), T_OPEN, 0, 0};
	give_ring(n, must_alloc(1, c->ring_bytes), c->ring_bytes, 0);
	for (unsigned r = 0; r < c->rounds; r++) {
		uint64_t t = now_ns();
		int fd = open(c->file, O_RDONLY | O_CLOEXEC);
		struct stat st;
		if (fd < 0 || fstat(fd, &st))
			die("%s: %s", c->file, strerror(errno));
		c->bytes = (uint64_t)st.st_size;
		put(n, &open_frame, sizeof open_frame);
		put(n, c->dest, open_frame.len);
		for (uint64_t left = c->bytes; left;) {
			bool fits = put_chunk(c, n, fd, left);
			if (fits)
				left -= left < c->chunk_bytes ? left : c->chunk_bytes;
			send_down_all(n);
			if (!fits)
				node_turn(n);
		}
		close(fd);
		struct iovec room[2];
		while (ring_room(n, room) < sizeof(struct frame))
			node_turn(n);
		put(n, &(struct frame){0, T_END, 1 + r, 0}, sizeof(struct frame));
		send_down_all(n);
		wait_waves(n, 2 + r);
		v[r] = (double)(now_ns() - t) / 1e9;
	}
}

static int run_root(struct config *c)
{
	double *v = must_alloc(c->rounds, sizeof *v);
	bool sums = !strcmp(c->mode, "rtt") || !strcmp(c->mode, "waves");
	if (getrandom(&c->token, sizeof c->token, 0) != sizeof c->token)
		die("getrandom: %s", strerror(errno));
	struct node *n = node_new(c);
	n->expected = sums ? expect_wave : expect_bytes;
	wait_waves(n, 1);
	double start_s = (double)(now_ns() - c->t0_ns) / 1e9;
	if (!strcmp(c->mode, "rtt"))
		root_rtt(c, n, v);
	else if (!strcmp(c->mode, "waves"))
		root_waves(c, n, v);
	else if (!strcmp(c->mode, "bcast"))
		root_bcast(c, n, v);
	else if (!strcmp(c->mode, "cp"))
		root_cp(c, n, v);
	node_end(n);
	if (!strcmp(c->mode, "once")) {
		printf("%.9f\n", start_s);
		return 0;
	}
	print_head(c);
	if (!strcmp(c->mode, "rtt"))
		print_spread("us", v, c->rounds);
	else if (!strcmp(c->mode, "waves"))
		printf(",\"waves\":%" PRIu64 ",\"batch\":%u", c->waves, c->batch),
		    print_spread("waves_per_s", v, c->rounds);
	else
		printf(",\"bytes\":%" PRIu64, c->bytes), print_spread("s", v, c->rounds),
		    printf(",\"mb_per_s\":%.6g", (double)c->bytes / 1e6 / quantile(v, c->rounds, 0.5));
	print_tail(start_s);
	return 0;
}

/* Times a fresh tree per round, from before the root's exec to the last leaf's report. */
static int run_start(struct config *c, int argc, char **argv)
{
	double *up = must_alloc(c->rounds, sizeof *up), *whole = must_alloc(c->rounds, sizeof *whole);
	char **args = must_alloc((size_t)argc + 3, sizeof *args), t0[24];
	memcpy(args, argv, (size_t)argc * sizeof *args);
	args[1] = "once";
	args[argc] = "--t0";
	args[argc + 1] = t0;
	for (unsigned r = 0; r < c->rounds; r++) {
		int out[2], status;
		char text[32] = "";
		pid_t pid;
		posix_spawn_file_actions_t actions;
		if (pipe2(out, O_CLOEXEC))
			die("pipe: %s", strerror(errno));
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, out[1], 1);
		uint64_t t = now_ns();
		snprintf(t0, sizeof t0, "%" PRIu64, t);
		if (posix_spawn(&pid, "/proc/self/exe", &actions, NULL, args, environ))
			die("spawn");
		posix_spawn_file_actions_destroy(&actions);
		close(out[1]);
		if (waitpid(pid, &status, 0) != pid || status || read(out[0], text, 31) <= 0)
			die("a root ended with status %#x", (unsigned)status);
		close(out[0]);
		whole[r] = (double)(now_ns() - t) / 1e9;
		up[r] = strtod(text, NULL);
	}
	qsort(whole, c->rounds, sizeof *whole, by_value);
	print_head(c);
	print_spread("s", up, c->rounds);
	printf(",\"median_start_and_end_s\":%.6g", quantile(whole, c->rounds, 0.5));
	print_tail(quantile(up, c->rounds, 0.5));
	return 0;
}

/* ----------------------------------------------------------- command line */

static void usage(void)
{
	fputs("usage: baretree rtt|waves|bcast|start|cp [--shape 1x8x8|flat:N] [--link tcp|unix]\n"
	      "  [--rounds N] [--waves N] [--batch N (0: all that is ready)] [--bytes N] [--chunk N]\n"
	      "  [--ring N] [--file F --dest PATH%h] [--fsync] [--verify] [--deadline SECONDS]\n",
	      stderr);
	exit(2);
}

static void parse_shape(struct config *c, const char *s)
{
	char *end;
	c->depth = 0;
	if (!strncmp(s, "flat:", 5)) {
		c->fanout[c->depth++] = (unsigned)strtoul(s + 5, &end, 10);
	} else {
		if (strtoul(s, &end, 10) != 1)
			usage();
		while (*end == 'x' && c->depth < DEPTH_MAX)
			c->fanout[c->depth++] = (unsigned)strtoul(end + 1, &end, 10);
	}
	for (unsigned i = 0; i < c->depth; i++)
		if (!c->fanout[i] || c->fanout[i] > FANOUT_MAX)
			usage();
	if (*end)
		usage();
}

static void parse_options(struct config *c, int argc, char **argv)
{
	for (int i = 2; i < argc; i++) {
		const char *o = argv[i];
		if (!strcmp(o, "--verify")) {
			c->verify = true;
			continue;
		}
		if (!strcmp(o, "--fsync")) {
			c->fsync = true;
			continue;
		}
		if (i + 1 == argc)
			usage();
		const char *a = argv[++i];
		uint64_t num = strtoull(a, NULL, 10);
		if (!strcmp(o, "--shape")) parse_shape(c, a);
		else if (!strcmp(o, "--link")) c->unix_link = !strcmp(a, "unix");
		else if (!strcmp(o, "--rounds")) c->rounds = (unsigned)num;
		else if (!strcmp(o, "--waves")) c->waves = num;
		else if (!strcmp(o, "--batch")) c->batch = (unsigned)num;
		else if (!strcmp(o, "--bytes")) c->bytes = num;
		else if (!strcmp(o, "--chunk")) c->chunk_bytes = num;
		else if (!strcmp(o, "--ring")) c->ring_bytes = num;
		else if (!strcmp(o, "--file")) c->file = a;
		else if (!strcmp(o, "--dest")) c->dest = a;
		else if (!strcmp(o, "--deadline")) c->deadline_s = (unsigned)num;
		else if (!strcmp(o, "--t0")) c->t0_ns = num;
		else usage();
	}
	if (!c->depth || !c->rounds || c->rounds > ROUNDS_MAX || !c->waves || !c->deadline_s ||
	    !c->bytes || !c->chunk_bytes || c->chunk_bytes > UINT32_MAX ||
	    c->ring_bytes < 2 * (c->chunk_bytes + PATH_BYTES_MAX) ||
	    (!strcmp(c->mode, "cp") &&
	     (!c->file || !c->dest || strlen(c->dest) >= PATH_BYTES_MAX || c->verify)))
		usage();
}

static int run_child(struct config *c, int argc, char **argv)
{
	if (argc != 12)
		usage();
	parse_shape(c, argv[2]);
	c->unix_link = atoi(argv[3]);
	c->port = (unsigned)atoi(argv[4]);
	c->token = strtoull(argv[5], NULL, 10);
	c->first_leaf = strtoull(argv[6], NULL, 10);
	c->batch = (unsigned)atoi(argv[7]);
	c->deadline_s = (unsigned)atoi(argv[8]);
	c->ring_bytes = strtoull(argv[9], NULL, 10);
	c->verify = atoi(argv[10]);
	c->fsync = atoi(argv[11]);
	alarm(c->deadline_s);
	role = c->depth ? "inner node" : "leaf";
	if (c->depth)
		run_inner(c);
	else
		run_leaf(c);
	return 0;
}

int main(int argc, char **argv)
{
	struct config c = {.fanout = {8, 8}, .depth = 2, .rounds = 1, .waves = 100000,
	                   .batch = 64, .bytes = 64 << 20, .chunk_bytes = 64 << 10,
	                   .ring_bytes = 1 << 20, .deadline_s = 60, .t0_ns = now_ns()};
	if (argc < 2)
		usage();
	c.mode = argv[1];
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(c.mode, "child"))
		return run_child(&c, argc, argv);
	parse_options(&c, argc, argv);
	/* Whatever goes wrong, this process ends, and with it every one below. */
	alarm(c.deadline_s);
	if (!strcmp(c.mode, "start"))
		return run_start(&c, argc, argv);
	if (strcmp(c.mode, "rtt") && strcmp(c.mode, "waves") && strcmp(c.mode, "bcast") &&
	    strcmp(c.mode, "cp") && strcmp(c.mode, "once"))
		usage();
	return run_root(&c);
}
