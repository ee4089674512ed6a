/* Works on files and says how fast that was: the load of the contests of mounted files.
 *
 *   mountload fill FILE BYTES                        a file that says in each block where it stands
 *   mountload io PATTERN FILE BLOCK BYTES SECONDS    seq-, stride- or random-, and read or write
 *   mountload meta NEW OLD COUNT SECONDS             makes and removes files in NEW, asks for those of OLD
 *   mountload pair A B ROUNDS                        the same by turns in two directories: B's time / A's
 *
 * Prints one line of JSON. What is read is looked at, and a wrong block is an error. A stride skips a block
 * after each. Reading begins without what the kernel keeps of the file here; writing ends with close. Of OLD
 * each name is asked for once.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CALLS_MAX = 1 << 22, BLOCK_MAX = 1 << 20, NAME_MAX_BYTES = 4096 };
enum { PAIR_CALLS = 64, PAIR_FILES = 100, PAIR_FILE_BYTES = 4 << 20 };

static uint32_t took_ns[CALLS_MAX];
static char block[BLOCK_MAX] __attribute__((aligned(4096)));

static void fail(const char *what, const char *name)
{
	fprintf(stderr, "mountload: %s %s: %s\n", what, name, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static double at_percent(long count, int percent)
{
	return count ? took_ns[(count - 1) * percent / 100] / 1e3 : 0;
}

static void note(long number, uint64_t ns)
{
	took_ns[number] = ns > UINT32_MAX ? UINT32_MAX : ns;
}

static int opened(const char *name, int flags)
{
	int fd = open(name, flags, 0644);
	if (fd < 0)
		fail("open", name);
	return fd;
}

static void read_at(int fd, size_t bytes, off_t at, const char *name)
{
	ssize_t got = pread(fd, block, bytes, at);
	if (got != (ssize_t)bytes)
		fail(got < 0 ? "read" : "short read of", name);
	if (*(uint64_t *)block != (uint64_t)at) {
		errno = EIO;
		fail("wrong content in", name);
	}
}

static void write_at(int fd, size_t bytes, off_t at, const char *name)
{
	*(uint64_t *)block = at;
	ssize_t put = pwrite(fd, block, bytes, at);
	if (put != (ssize_t)bytes)
		fail(put < 0 ? "write" : "short write to", name);
}

static int fill(const char *name, long bytes)
{
	int fd = opened(name, O_WRONLY | O_CREAT | O_TRUNC);
	/* The smallest block that is read. */
	for (long at = 0; at < bytes; at += BLOCK_MAX) {
		for (long in = 0; in < BLOCK_MAX; in += 512)
			*(uint64_t *)(block + in) = at + in;
		if (pwrite(fd, block, BLOCK_MAX, at) != BLOCK_MAX)
			fail("write", name);
	}
	return close(fd);
}

static int io(const char *pattern, const char *name, size_t bytes, long all, double seconds)
{
	int writes = strstr(pattern, "-write") != NULL, is_random = !strncmp(pattern, "random", 6);
	size_t step = strncmp(pattern, "stride", 6) ? bytes : 2 * bytes;
	int anew = writes && !strncmp(pattern, "seq", 3);
	if (bytes < 8 || bytes > BLOCK_MAX || all < (long)bytes) {
		errno = EINVAL;
		fail("block", name);
	}
	int fd = opened(name, writes ? O_WRONLY | O_CREAT | (anew ? O_TRUNC : 0) : O_RDONLY);
	if (!writes)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	uint64_t begun = now_ns(), last = begun, end = begun + seconds * 1e9, dice = 88172645463325252ull;
	long calls = 0;
	for (off_t next = 0; calls < CALLS_MAX && last < end; next += step) {
		off_t at = next;
		if (is_random) {
			dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
			at = dice % (all / bytes) * bytes;
		} else if (at + (off_t)bytes > all) {
			break;
		}
		if (writes)
			write_at(fd, bytes, at, name);
		else
			read_at(fd, bytes, at, name);
		uint64_t now = now_ns();
		note(calls++, now - last);
		last = now;
	}
	if (close(fd))
		fail("close", name);
	double took = (now_ns() - begun) / 1e9;
	qsort(took_ns, calls, sizeof *took_ns, by_size);
	printf("{\"mb_per_s\": %.4f, \"calls_per_s\": %.2f, \"median_us\": %.3f, \"p10_us\": %.3f, \"p90_us\": %.3f, "
	       "\"calls\": %ld}\n", calls * bytes / took / 1e6, calls / took, at_percent(calls, 50),
	       at_percent(calls, 10), at_percent(calls, 90), calls);
	return 0;
}

static const char *named(const char *directory, const char *kind, long number)
{
	static char name[NAME_MAX_BYTES];
	snprintf(name, sizeof name, "%s/%s%ld", directory, kind, number);
	return name;
}

static void create(const char *name, size_t bytes)
{
	int fd = opened(name, O_WRONLY | O_CREAT | O_EXCL);
	if (bytes)
		write_at(fd, bytes, 0, name);
	if (close(fd))
		fail("close", name);
}

static void ask(const char *name)
{
	struct stat found;
	if (stat(name, &found))
		fail("stat", name);
}

static void discard(const char *name)
{
	if (unlink(name))
		fail("unlink", name);
}

enum step { CREATE, SMALL, STAT, UNLINK };

/* One kind of call on many names; how many it was done on. */
static long each(enum step step, const char *directory, const char *kind, long count, double seconds, const char *label)
{
	uint64_t begun = now_ns(), last = begun, end = begun + seconds * 1e9;
	long done = 0;
	while (done < count && last < end) {
		const char *name = named(directory, kind, done);
		switch (step) {
		case CREATE: create(name, 0); break;
		case SMALL: create(name, 1000); break;
		case STAT: ask(name); break;
		case UNLINK: discard(name); break;
		}
		uint64_t now = now_ns();
		note(done++, now - last);
		last = now;
	}
	qsort(took_ns, done, sizeof *took_ns, by_size);
	printf("%s\"%s_per_s\": %.2f, \"%s_us\": %.3f", step == CREATE ? "{" : ", ", label,
	       done / ((last - begun) / 1e9), label, at_percent(done, 50));
	return done;
}

static int meta(const char *new, const char *old, long count, double seconds)
{
	if (count > CALLS_MAX)
		count = CALLS_MAX;
	long made = each(CREATE, new, "e", count, seconds, "create");
	long small = each(SMALL, new, "s", count, seconds, "small");
	each(STAT, old, "f", count, seconds, "stat");
	each(UNLINK, new, "e", made, 1e6, "unlink");
	for (long i = 0; i < small; i++)
		discard(named(new, "s", i));
	printf("}\n");
	return 0;
}

static const char *const pair_names[] = {"read_64k", "write_64k", "read_4k", "write_4k", "create", "stat", "unlink"};
enum { PAIR_STEPS = sizeof pair_names / sizeof *pair_names };

/* A batch of one step in one of the directories: how long it took, in ns. */
static double batch(int step, const char *directory, int fd)
{
	size_t bytes = step < 2 ? 65536 : 4096;
	uint64_t begun = now_ns();
	for (int i = 0; i < PAIR_CALLS && step < 4; i++) {
		off_t at = (off_t)i * bytes % PAIR_FILE_BYTES;
		/* What is written lies behind what is read and looked at. */
		if (step % 2)
			write_at(fd, bytes, PAIR_FILE_BYTES + at, directory);
		else
			read_at(fd, bytes, at, directory);
	}
	for (int i = 0; i < PAIR_FILES && step >= 4; i++) {
		const char *name = named(directory, "p", i);
		if (step == 4)
			create(name, 0);
		else if (step == 5)
			ask(name);
		else
			discard(name);
	}
	return now_ns() - begun;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static int pair(const char *a, const char *b, int rounds)
{
	const char *at[] = {a, b};
	int fd[2];
	double *ratios = calloc(rounds * PAIR_STEPS, sizeof *ratios), *plain = calloc(rounds * PAIR_STEPS, sizeof *plain);
	for (int side = 0; side < 2; side++) {
		const char *name = named(at[side], "pair", side);
		fill(name, PAIR_FILE_BYTES);
		fd[side] = opened(name, O_RDWR);
		discard(name);
	}
	for (int round = 0; round < rounds; round++)
		for (int step = 0; step < PAIR_STEPS; step++) {
			double took[2];
			for (int turn = 0; turn < 2; turn++) {
				int side = (round + turn) % 2;
				took[side] = batch(step, at[side], fd[side]);
			}
			ratios[step * rounds + round] = took[1] / took[0];
			plain[step * rounds + round] = took[0];
		}
	for (int step = 0; step < PAIR_STEPS; step++) {
		qsort(ratios + step * rounds, rounds, sizeof *ratios, by_value);
		qsort(plain + step * rounds, rounds, sizeof *plain, by_value);
		printf("%s\"%s_x\": %.4f, \"%s_ns\": %.0f", step ? ", " : "{", pair_names[step],
		       ratios[step * rounds + rounds / 2], pair_names[step],
		       plain[step * rounds + rounds / 2] / (step < 4 ? PAIR_CALLS : PAIR_FILES));
	}
	printf("}\n");
	return 0;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	if (!strcmp(what, "fill") && count == 4)
		return fill(words[2], atol(words[3]));
	if (!strcmp(what, "io") && count == 7)
		return io(words[2], words[3], atol(words[4]), atol(words[5]), atof(words[6]));
	if (!strcmp(what, "meta") && count == 6)
		return meta(words[2], words[3], atol(words[4]), atof(words[5]));
	if (!strcmp(what, "pair") && count == 5)
		return pair(words[2], words[3], atoi(words[4]));
	fprintf(stderr, "mountload: see the head of its source\n");
	return 2;
}
