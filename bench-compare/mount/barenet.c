/* A bare TCP connection: what the link by itself takes.
 *
 *   barenet serve ADDRESS PORT
 *   barenet ask ADDRESS PORT BYTES ROUNDS
 *
 * A question has 64 bytes and says how many the answer has. Prints the median of a round and the rate of all as a line of JSON.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { QUESTION_BYTES = 64, PIECE_BYTES = 256 << 10 };

static char piece[PIECE_BYTES];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int take(int fd, char *to, size_t bytes, int keep)
{
	while (bytes) {
		ssize_t got = read(fd, to, bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
		if (got <= 0)
			return 0;
		to += keep ? got : 0;
		bytes -= got;
	}
	return 1;
}

static void give(int fd, size_t bytes)
{
	while (bytes) {
		ssize_t put = write(fd, piece, bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
		if (put <= 0)
			fail("barenet: write");
		bytes -= put;
	}
}

static void answer(int fd)
{
	char question[QUESTION_BYTES];
	uint64_t bytes;
	while (take(fd, question, sizeof question, 1)) {
		memcpy(&bytes, question, sizeof bytes);
		give(fd, bytes);
	}
	exit(0);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static int ask(int fd, uint64_t bytes, int rounds)
{
	double *took = calloc(rounds, sizeof *took), begun = now_us();
	char question[QUESTION_BYTES] = {0};
	memcpy(question, &bytes, sizeof bytes);
	for (int round = 0; round < rounds; round++) {
		double from = now_us();
		if (write(fd, question, sizeof question) != sizeof question || !take(fd, piece, bytes, 0))
			fail("barenet: ask");
		took[round] = now_us() - from;
	}
	double all = now_us() - begun;
	qsort(took, rounds, sizeof *took, by_value);
	printf("{\"median_us\": %.3f, \"p10_us\": %.3f, \"p90_us\": %.3f, \"mb_per_s\": %.4f}\n", took[rounds / 2],
	       took[rounds / 10], took[rounds * 9 / 10], bytes * (double)rounds / all);
	return 0;
}

int main(int count, char **words)
{
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0), serves = count == 4 && !strcmp(words[1], "serve");
	if (!serves && (count != 6 || strcmp(words[1], "ask") || atoi(words[5]) < 1)) {
		fprintf(stderr, "barenet: see the head of its source\n");
		return 2;
	}
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(words[3]))};
	inet_pton(AF_INET, words[2], &at.sin_addr);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (!serves) {
		if (connect(fd, (struct sockaddr *)&at, sizeof at))
			fail("barenet: connect");
		return ask(fd, atoll(words[4]), atoi(words[5]));
	}
	signal(SIGCHLD, SIG_IGN);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 8))
		fail("barenet: listen");
	for (;;) {
		int one = accept(fd, NULL, NULL);
		if (one >= 0 && fork() == 0)
			answer(one);
		close(one);
	}
}
