/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A libevent loop that answers its own requests, and does one more thing: libevent_loop WHAT
 * SECONDS DIRECTORY. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/thread.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD_US 4000

static struct event_base *base;
static char directory[256];

static void must(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static int file_named(const char *name)
{
	char path[300];
	int file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(file >= 0, path);
	return file;
}

/* What is in the loop from the start: one end asks, the other answers. */
static void answers(struct bufferevent *end, void *unused)
{
	(void)unused;
	bufferevent_write_buffer(end, bufferevent_get_input(end));
}

static void asks(evutil_socket_t unused, short what, void *end)
{
	(void)unused;
	(void)what;
	bufferevent_write(end, "what", 4);
}

static void ignores(struct bufferevent *end, void *unused)
{
	struct evbuffer *input = bufferevent_get_input(end);

	(void)unused;
	evbuffer_drain(input, evbuffer_get_length(input));
}

static void repeat(event_callback_fn does, void *with, long us)
{
	struct timeval every = {us / 1000000, us % 1000000};

	event_add(event_new(base, -1, EV_PERSIST, does, with), &every);
}

/* What must not block, and does not. */
static void nothing(evutil_socket_t unused, short what, void *with)
{
	(void)unused;
	(void)what;
	(void)with;
}

static void *activates(void *event)
{
	for (;;) {
		usleep(HELD_US);
		event_active(event, EV_READ, 1);
	}
	return 0;
}

static void wakes_from_a_thread(void)
{
	pthread_t thread;
	struct event *event = event_new(base, -1, EV_PERSIST, nothing, 0);

	must(!pthread_create(&thread, 0, activates, event), "a thread");
}

static void takes_signals_now(evutil_socket_t unused, short what, void *with)
{
	(void)unused;
	(void)what;
	(void)with;
	raise(SIGUSR1);
}

static void takes_signals(void)
{
	event_add(evsignal_new(base, SIGUSR1, nothing, 0), 0);
	repeat(takes_signals_now, 0, 10000);
}

static void appends_now(evutil_socket_t unused, short what, void *with)
{
	static char page[4096];

	(void)unused;
	(void)what;
	must(write(*(int *)with, page, sizeof(page)) == sizeof(page), "write");
}

static void appends(void)
{
	static int file;

	file = file_named("log");
	repeat(appends_now, &file, 10000);
}

static void sends_now(evutil_socket_t unused, short what, void *end)
{
	int file = file_named("sent");

	(void)unused;
	(void)what;
	evbuffer_add_file(bufferevent_get_output(end), file, 0, 4096);
}

/* A file that is in memory, over a socket. */
static void sends_a_file(void)
{
	static char page[4096];
	struct bufferevent *ends[2];
	int sockets[2], file = file_named("sent");

	must(write(file, page, sizeof(page)) == sizeof(page) && !close(file), "write");
	must(!evutil_socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
	for (int end = 0; end < 2; end++) {
		evutil_make_socket_nonblocking(sockets[end]);
		ends[end] = bufferevent_socket_new(base, sockets[end], 0);
		bufferevent_setcb(ends[end], ignores, 0, 0, 0);
		bufferevent_enable(ends[end], EV_READ | EV_WRITE);
	}
	repeat(sends_now, ends[0], 10000);
}

/* What blocks. */
static void sleeps_now(evutil_socket_t unused, short what, void *with)
{
	(void)unused;
	(void)what;
	(void)with;
	usleep(HELD_US);
}

static void saves_now(evutil_socket_t unused, short what, void *with)
{
	int file = *(int *)with;

	(void)unused;
	(void)what;
	must(pwrite(file, "x", 1, 0) == 1, "pwrite");
	must(!fsync(file), "fsync");
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *holds(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&lock);
		usleep(HELD_US);
		pthread_mutex_unlock(&lock);
		usleep(HELD_US / 4);
	}
	return 0;
}

static void locks_now(evutil_socket_t unused, short what, void *with)
{
	(void)unused;
	(void)what;
	(void)with;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

static int pipe_ends[2];

static void *writes_late(void *unused)
{
	(void)unused;
	for (;;) {
		usleep(HELD_US);
		must(write(pipe_ends[1], "line", 4) == 4, "write");
	}
	return 0;
}

static void reads_now(evutil_socket_t unused, short what, void *with)
{
	char lines[4096];

	(void)unused;
	(void)what;
	(void)with;
	/* The first takes all that is there. */
	for (int reads = 0; reads < 2; reads++)
		must(read(pipe_ends[0], lines, sizeof(lines)) > 0, "read");
}

static void waits_now(evutil_socket_t unused, short what, void *with)
{
	pid_t child = fork();

	(void)unused;
	(void)what;
	(void)with;
	if (!child) {
		usleep(HELD_US);
		_exit(0);
	}
	waitpid(child, 0, 0);
}

static void does(const char *what)
{
	static int file;
	pthread_t thread;

	if (!strcmp(what, "talks")) {
		return;
	} else if (!strcmp(what, "wakes-from-a-thread")) {
		wakes_from_a_thread();
	} else if (!strcmp(what, "takes-signals")) {
		takes_signals();
	} else if (!strcmp(what, "appends")) {
		appends();
	} else if (!strcmp(what, "sends-a-file")) {
		sends_a_file();
	} else if (!strcmp(what, "sleeps")) {
		repeat(sleeps_now, 0, 20000);
	} else if (!strcmp(what, "saves")) {
		file = file_named("saved");
		repeat(saves_now, &file, 20000);
	} else if (!strcmp(what, "takes-a-lock")) {
		must(!pthread_create(&thread, 0, holds, 0), "a thread");
		repeat(locks_now, 0, 20000);
	} else if (!strcmp(what, "reads-a-slow-pipe")) {
		must(!pipe2(pipe_ends, O_CLOEXEC), "pipe");
		must(!pthread_create(&thread, 0, writes_late, 0), "a thread");
		repeat(reads_now, 0, 20000);
	} else if (!strcmp(what, "waits-for-processes")) {
		repeat(waits_now, 0, 20000);
	} else {
		fprintf(stderr, "%s?\n", what);
		exit(1);
	}
}

int main(int count, char **words)
{
	struct timeval end = {0, 0};
	struct bufferevent *pair[2];

	must(count == 4, "three words");
	end.tv_sec = atof(words[2]);
	end.tv_usec = (atof(words[2]) - end.tv_sec) * 1e6;
	snprintf(directory, sizeof(directory), "%s", words[3]);
	evthread_use_pthreads();
	base = event_base_new();
	must(base && !bufferevent_pair_new(base, BEV_OPT_THREADSAFE, pair), "a loop");
	bufferevent_setcb(pair[0], ignores, 0, 0, 0);
	bufferevent_setcb(pair[1], answers, 0, 0, 0);
	bufferevent_enable(pair[0], EV_READ | EV_WRITE);
	bufferevent_enable(pair[1], EV_READ | EV_WRITE);
	repeat(asks, pair[0], 10000);
	does(words[1]);
	event_base_loopexit(base, &end);
	event_base_dispatch(base);
	return 0;
}
