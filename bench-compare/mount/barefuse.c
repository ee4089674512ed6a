/* A file system of one file, whose bytes lie in memory: what FUSE itself takes for a call.
 *
 *   barefuse POINT
 *
 * One thread reads a request from the device and writes its answer, and does nothing else; no library is between.
 * POINT/data has 64 MiB, which are not cached. It ends, and is not mounted any more, when it is asked to end or POINT is
 * unmounted. Mounting needs root.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILE_BYTES = 64 << 20, TRANSFER_BYTES = 1 << 20, ROOM_BYTES = TRANSFER_BYTES + 4096, FILE_NODE = 2 };

static const char *point;
static char room[ROOM_BYTES] __attribute__((aligned(4096)));
static char bytes[TRANSFER_BYTES] __attribute__((aligned(4096)));
static int device;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void take_away(int number)
{
	(void)number;
	umount2(point, MNT_DETACH);
}

static void answer(uint64_t unique, int error, const void *data, size_t count)
{
	struct fuse_out_header head = {.len = sizeof head + count, .error = -error, .unique = unique};
	struct iovec parts[] = {{&head, sizeof head}, {(void *)data, count}};
	if (writev(device, parts, count ? 2 : 1) < 0 && errno != ENOENT)
		fail("barefuse: answer");
}

static struct fuse_attr attributes(uint64_t node)
{
	struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
	found.mode = node == FILE_NODE ? S_IFREG | 0644 : S_IFDIR | 0755;
	found.size = node == FILE_NODE ? FILE_BYTES : 0;
	return found;
}

static void begin(uint64_t unique, const struct fuse_init_in *said)
{
	struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION};
	if (said->minor < out.minor)
		out.minor = said->minor;
	out.flags = said->flags & (FUSE_MAX_PAGES | FUSE_BIG_WRITES | FUSE_ASYNC_READ);
	out.max_readahead = said->max_readahead;
	out.max_background = 64;
	out.congestion_threshold = 48;
	out.max_write = TRANSFER_BYTES;
	out.max_pages = TRANSFER_BYTES / 4096;
	out.time_gran = 1;
	answer(unique, 0, &out, sizeof out);
}

static void serve(const struct fuse_in_header *head, const char *body)
{
	switch (head->opcode) {
	case FUSE_INIT:
		return begin(head->unique, (const void *)body);
	case FUSE_LOOKUP: {
		struct fuse_entry_out out = {.nodeid = FILE_NODE, .attr = attributes(FILE_NODE)};
		int there = head->nodeid == FUSE_ROOT_ID && !strcmp(body, "data");
		return answer(head->unique, there ? 0 : ENOENT, &out, there ? sizeof out : 0);
	}
	case FUSE_GETATTR: {
		struct fuse_attr_out out = {.attr = attributes(head->nodeid)};
		return answer(head->unique, 0, &out, sizeof out);
	}
	case FUSE_OPEN: {
		struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO};
		return answer(head->unique, 0, &out, sizeof out);
	}
	case FUSE_READ: {
		const struct fuse_read_in *in = (const void *)body;
		/* What the load expects to find there. */
		memcpy(bytes, &in->offset, sizeof in->offset);
		return answer(head->unique, 0, bytes, in->size);
	}
	case FUSE_RELEASE:
	case FUSE_FLUSH:
		return answer(head->unique, 0, NULL, 0);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	default:
		return answer(head->unique, ENOSYS, NULL, 0);
	}
}

int main(int count, char **words)
{
	char options[128];
	if (count != 2) {
		fprintf(stderr, "barefuse: POINT\n");
		return 2;
	}
	point = words[1];
	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0)
		fail("barefuse: /dev/fuse");
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
	if (mount("barefuse", point, "fuse.barefuse", MS_NOSUID | MS_NODEV, options))
		fail("barefuse: mount");
	signal(SIGTERM, take_away);
	signal(SIGINT, take_away);
	for (;;) {
		ssize_t got = read(device, room, sizeof room);
		if (got < 0 && errno == ENODEV)
			return 0;
		if (got < 0 && errno != EINTR && errno != ENOENT && errno != EAGAIN)
			fail("barefuse: device");
		if (got >= (ssize_t)sizeof(struct fuse_in_header))
			serve((void *)room, room + sizeof(struct fuse_in_header));
	}
}
