/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * calls.c: the entry points of libc, each with stamps around the real one.
 *
 * libc's own functions are called, so that cancellation, errno and everything else stays theirs.
 * What libc calls inside itself (stdio, getaddrinfo, its futexes) does not come here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "debox_tap.h"

/* Types only: the headers' own prototypes would clash with the ones made here. */
struct iovec;
struct msghdr;
struct mmsghdr;
struct pollfd;
struct epoll_event;
struct itimerspec;
struct rusage;
struct sembuf;
struct stat;
typedef unsigned long nfds_t;
typedef unsigned int socklen_t;
typedef int idtype_t;
typedef struct siginfo siginfo_t;

/* Result as the kernel gave it. */
#define RESULT(ret) ((__s64)(ret) == -1 ? -(__s64)errno : (__s64)(ret))

/* Found on first use: other libraries' constructors may make calls before ours. */
#define REAL(name)                                                                                 \
	({                                                                                         \
		static __typeof__(name) *real_;                                                    \
		if (__builtin_expect(!real_, 0))                                                   \
			real_ = (__typeof__(real_))dlsym(RTLD_NEXT, #name);                        \
		real_;                                                                             \
	})

#define TAPPED(type, name, number, arg0, arg1, arg2, ...)                                          \
	{                                                                                          \
		struct debox_tap tap;                                                              \
		type ret;                                                                          \
		__typeof__(name) *real = REAL(name);                                               \
		debox_tap_begin(&tap, number, arg0, arg1, arg2);                                   \
		ret = real(__VA_ARGS__);                                                           \
		debox_tap_end(&tap, RESULT(ret));                                                  \
		return ret;                                                                        \
	}

/* clang-format off */
#define CALL0(type, name, number) \
	type name(void) { struct debox_tap tap; type ret; __typeof__(name) *real = REAL(name); \
		debox_tap_begin(&tap, number, 0, 0, 0); ret = real(); \
		debox_tap_end(&tap, RESULT(ret)); return ret; }
#define CALL1(type, name, number, ta, a) \
	type name(ta a) TAPPED(type, name, number, a, 0, 0, a)
#define CALL2(type, name, number, ta, a, tb, b) \
	type name(ta a, tb b) TAPPED(type, name, number, a, b, 0, a, b)
#define CALL3(type, name, number, ta, a, tb, b, tc, c) \
	type name(ta a, tb b, tc c) TAPPED(type, name, number, a, b, c, a, b, c)
#define CALL4(type, name, number, ta, a, tb, b, tc, c, td, d) \
	type name(ta a, tb b, tc c, td d) TAPPED(type, name, number, a, b, c, a, b, c, d)
#define CALL5(type, name, number, ta, a, tb, b, tc, c, td, d, te, e) \
	type name(ta a, tb b, tc c, td d, te e) TAPPED(type, name, number, a, b, c, a, b, c, d, e)
#define CALL6(type, name, number, ta, a, tb, b, tc, c, td, d, te, e, tf, f) \
	type name(ta a, tb b, tc c, td d, te e, tf f) \
		TAPPED(type, name, number, a, b, c, a, b, c, d, e, f)
#define CALL7(type, name, number, ta, a, tb, b, tc, c, td, d, te, e, tf, f, tg, g) \
	type name(ta a, tb b, tc c, td d, te e, tf f, tg g) \
		TAPPED(type, name, number, a, b, c, a, b, c, d, e, f, g)
/* clang-format on */

#include "calls.def"

/* Those below have variable arguments, return errors in their own way, or do not just return. */
#define ENTRY

#define OPEN(name, number, parameters, last, flags, arg0, arg1, arg2, ...)                         \
	int name(parameters, ...)                                                                  \
	{                                                                                          \
		struct debox_tap tap;                                                              \
		int (*real)(parameters, ...) = REAL(name);                                         \
		mode_t mode = 0;                                                                   \
		int ret;                                                                           \
		if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                       \
			va_list list;                                                              \
			va_start(list, last);                                                      \
			mode = va_arg(list, mode_t);                                               \
			va_end(list);                                                              \
		}                                                                                  \
		debox_tap_begin(&tap, number, arg0, arg1, arg2);                                   \
		ret = real(__VA_ARGS__, mode);                                                     \
		debox_tap_end(&tap, RESULT(ret));                                                  \
		return ret;                                                                        \
	}
#define PAIR(first, second) first, second
#define TRIPLE(first, second, third) first, second, third
#undef open
#undef open64
#undef openat
#undef openat64
ENTRY OPEN(open, SYS_openat, PAIR(const char *path, int flags), flags, flags, AT_FDCWD, path, flags,
	   path, flags)
ENTRY OPEN(open64, SYS_openat, PAIR(const char *path, int flags), flags, flags, AT_FDCWD, path,
	   flags, path, flags)
ENTRY OPEN(openat, SYS_openat, TRIPLE(int at, const char *path, int flags), flags, flags, at, path,
	   flags, at, path, flags)
ENTRY OPEN(openat64, SYS_openat, TRIPLE(int at, const char *path, int flags), flags, flags, at,
	   path, flags, at, path, flags)

#define CONTROL(name, number, request_type)                                                        \
	int name(int fd, request_type request, ...)                                                \
	{                                                                                          \
		struct debox_tap tap;                                                              \
		int (*real)(int, request_type, ...) = REAL(name);                                  \
		va_list list;                                                                      \
		void *argument;                                                                    \
		int ret;                                                                           \
		va_start(list, request);                                                           \
		argument = va_arg(list, void *);                                                   \
		va_end(list);                                                                      \
		debox_tap_begin(&tap, number, fd, request, argument);                              \
		ret = real(fd, request, argument);                                                 \
		debox_tap_end(&tap, RESULT(ret));                                                  \
		return ret;                                                                        \
	}
#undef fcntl
#undef fcntl64
ENTRY CONTROL(fcntl, SYS_fcntl, int)
ENTRY CONTROL(fcntl64, SYS_fcntl, int)
int ioctl(int fd, unsigned long request, ...);
ENTRY CONTROL(ioctl, SYS_ioctl, unsigned long)

ENTRY long syscall(long number, ...)
{
	struct debox_tap tap;
	__typeof__(syscall) *real = REAL(syscall);
	long a, b, c, d, e, f, ret;
	va_list list;

	va_start(list, number);
	a = va_arg(list, long);
	b = va_arg(list, long);
	c = va_arg(list, long);
	d = va_arg(list, long);
	e = va_arg(list, long);
	f = va_arg(list, long);
	va_end(list);
	/* A new process or image would return into these stamps, or never. */
	if (number == SYS_clone || number == SYS_fork || number == SYS_vfork || number == SYS_clone3 ||
	    number == SYS_exit || number == SYS_exit_group || number == SYS_execve ||
	    number == SYS_execveat || number == SYS_rt_sigreturn)
		return real(number, a, b, c, d, e, f);
	debox_tap_begin(&tap, (__u32)number, a, b, c);
	ret = real(number, a, b, c, d, e, f);
	debox_tap_end(&tap, RESULT(ret));
	return ret;
}

void *mmap(void *, size_t, int, int, int, off_t);
void *mmap64(void *, size_t, int, int, int, off_t);
#define MMAP(name)                                                                                 \
	void *name(void *address, size_t length, int protection, int flags, int fd, off_t offset)  \
	{                                                                                          \
		struct debox_tap tap;                                                              \
		__typeof__(name) *real = REAL(name);                                               \
		void *ret;                                                                         \
		debox_tap_begin(&tap, SYS_mmap, address, length, protection);                      \
		ret = real(address, length, protection, flags, fd, offset);                        \
		debox_tap_end(&tap, RESULT((__s64)ret));                                           \
		return ret;                                                                        \
	}
ENTRY MMAP(mmap)
ENTRY MMAP(mmap64)

/* These return the error itself. */
int clock_nanosleep(clockid_t, int, const struct timespec *, struct timespec *);
ENTRY int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request,
			  struct timespec *remain)
{
	struct debox_tap tap;
	__typeof__(clock_nanosleep) *real = REAL(clock_nanosleep);
	int ret;

	debox_tap_begin(&tap, SYS_clock_nanosleep, clock, flags, request);
	ret = real(clock, flags, request, remain);
	debox_tap_end(&tap, -(__s64)ret);
	return ret;
}

int posix_fadvise(int, off_t, off_t, int);
ENTRY int posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
	struct debox_tap tap;
	__typeof__(posix_fadvise) *real = REAL(posix_fadvise);
	int ret;

	debox_tap_begin(&tap, SYS_fadvise64, fd, offset, length);
	ret = real(fd, offset, length, advice);
	debox_tap_end(&tap, -(__s64)ret);
	return ret;
}

/* Returns the seconds left, and sleeps by another call. */
ENTRY unsigned int sleep(unsigned int seconds)
{
	struct debox_tap tap;
	__typeof__(sleep) *real = REAL(sleep);
	unsigned int ret;

	debox_tap_begin(&tap, SYS_clock_nanosleep, 0, 0, seconds);
	ret = real(seconds);
	debox_tap_end(&tap, ret ? -(__s64)EINTR : 0);
	return ret;
}

/*
 * A vfork child runs in this memory and on this thread's slot: the kernel marks the slot so that it
 * leaves no stamps, but the slot must be known before the child could take its own for it. vfork
 * returns twice, so nothing may be left on the stack: look up, then jump.
 */
__attribute__((visibility("hidden"))) void *debox_real_vfork;

__attribute__((visibility("hidden"))) void debox_before_vfork(void)
{
	if (!debox_real_vfork)
		debox_real_vfork = dlsym(RTLD_NEXT, "vfork");
	if (!debox_tap_slot)
		debox_tap_attach();
}

__asm__(".globl vfork\n"
	".type vfork, @function\n"
	"vfork:\n"
	"	subq $8, %rsp\n"
	"	call debox_before_vfork\n"
	"	addq $8, %rsp\n"
	"	jmp *debox_real_vfork(%rip)\n"
	".size vfork, .-vfork\n");
