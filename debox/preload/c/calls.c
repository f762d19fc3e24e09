/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * calls.c: the entry points of libc, each with stamps around the real one.
 *
 * libc's own functions are called, so that cancellation, errno and everything else stay libc's.
 * Calls that libc makes internally (stdio, getaddrinfo, its futexes) are not seen here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "attach.h"

/* Types only: the headers' prototypes would clash with the ones defined here. */
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

#define BEGIN(number, arg0, arg1, arg2)                                                            \
	struct debox_slot *tapped =                                                                \
		debox_tap_begin(number, (__u64)(arg0), (__u64)(arg1), (__u64)(arg2))
#define END(number, ret) debox_tap_end(tapped, number, ret)

#define TAPPED(type, name, number, arg0, arg1, arg2, ...)                                          \
	{                                                                                          \
		__typeof__(name) *real = REAL(name);                                               \
		type ret;                                                                          \
		BEGIN(number, arg0, arg1, arg2);                                                   \
		ret = real(__VA_ARGS__);                                                           \
		END(number, RESULT(ret));                                                          \
		return ret;                                                                        \
	}

/* clang-format off */
#define CALL0(type, name, number) \
	type name(void) { __typeof__(name) *real = REAL(name); type ret; BEGIN(number, 0, 0, 0); \
		ret = real(); END(number, RESULT(ret)); return ret; }
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

/*
 * Calls that the interposed syscall(2) does not simply make with stamps. Some do not return once: a
 * new process or image would return into the stamps, or never. After the others a process does not
 * find its session.
 */
static const unsigned long peculiar[7] = {
	[0] = 1UL << SYS_clone | 1UL << SYS_fork | 1UL << SYS_vfork | 1UL << SYS_execve |
	      1UL << SYS_exit | 1UL << SYS_rt_sigreturn,
	[SYS_prctl / 64] =
		1UL << SYS_prctl % 64 | 1UL << SYS_pivot_root % 64 | 1UL << SYS_chroot % 64,
	[SYS_exit_group / 64] = 1UL << SYS_exit_group % 64,
	[SYS_seccomp / 64] =
		1UL << SYS_seccomp % 64 | 1UL << SYS_unshare % 64 | 1UL << SYS_setns % 64,
	[SYS_execveat / 64] = 1UL << SYS_execveat % 64,
	[SYS_clone3 / 64] = 1UL << SYS_clone3 % 64,
};

static inline int is_peculiar(unsigned long number)
{
	return number < 448 && peculiar[number / 64] >> number % 64 & 1;
}

/* Peculiar calls that are made with stamps all the same. */
static inline int is_plain(unsigned long number)
{
	return number == SYS_prctl || number == SYS_pivot_root || number == SYS_chroot ||
	       number == SYS_unshare || number == SYS_setns;
}

/*
 * Calls by which a process restricts its system calls, or leaves the file system that it has had
 * until then.
 */
static inline int is_leaving(unsigned long number, unsigned long first)
{
	switch (number) {
	case SYS_prctl:
		return first == PR_SET_SECCOMP;
	case SYS_unshare:
		return (first & CLONE_NEWNS) != 0;
	case SYS_seccomp:
	case SYS_chroot:
	case SYS_pivot_root:
	case SYS_setns:
		return 1;
	default:
		return 0;
	}
}

/* Those below have variable arguments, return errors in their own way, or do not just return. */
#define ENTRY

#define OPEN(name, number, parameters, last, flags, arg0, arg1, arg2, ...)                         \
	int name(parameters, ...)                                                                  \
	{                                                                                          \
		int (*real)(parameters, ...) = REAL(name);                                         \
		mode_t mode = 0;                                                                   \
		int ret;                                                                           \
		if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                       \
			va_list list;                                                              \
			va_start(list, last);                                                      \
			mode = va_arg(list, mode_t);                                               \
			va_end(list);                                                              \
		}                                                                                  \
		BEGIN(number, arg0, arg1, arg2);                                                   \
		ret = real(__VA_ARGS__, mode);                                                     \
		END(number, RESULT(ret));                                                          \
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

	__attribute__((visibility("hidden"))) void debox_before_vfork(void);

#define CONTROL(name, number, request_type)                                                        \
	int name(int fd, request_type request, ...)                                                \
	{                                                                                          \
		int (*real)(int, request_type, ...) = REAL(name);                                  \
		va_list list;                                                                      \
		void *argument;                                                                    \
		int ret;                                                                           \
		va_start(list, request);                                                           \
		argument = va_arg(list, void *);                                                   \
		va_end(list);                                                                      \
		BEGIN(number, fd, request, argument);                                              \
		ret = real(fd, request, argument);                                                 \
		END(number, RESULT(ret));                                                          \
		return ret;                                                                        \
	}
#undef fcntl
#undef fcntl64
ENTRY CONTROL(fcntl, SYS_fcntl, int) ENTRY
	CONTROL(fcntl64, SYS_fcntl, int) int ioctl(int fd, unsigned long request, ...);
ENTRY CONTROL(ioctl, SYS_ioctl, unsigned long)

	/*
	 * syscall(2) itself: not a cancellation point, so that the instruction can stand here,
	 * which saves a call. Its variable arguments are where those of any function are.
	 */
	ENTRY long interposed_syscall(long number, long a, long b, long c, long d, long e,
				      long f) __asm__("syscall");
long interposed_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	struct debox_slot *tapped;
	long ret;

	if (DEBOX_UNLIKELY(is_peculiar(number))) {
		if (is_leaving(number, a)) {
			debox_tap_before_leaving();
		} else if (!is_plain(number)) {
			debox_before_vfork();
			return REAL(syscall)(number, a, b, c, d, e, f);
		}
	}
	tapped = debox_tap_begin((__u32)number, a, b, c);
	ret = debox_raw(number, a, b, c, d, e, f);
	debox_tap_end(tapped, (__u32)number, ret);
	if (DEBOX_UNLIKELY((unsigned long)ret >= (unsigned long)-4095)) {
		errno = -ret;
		return -1;
	}
	return ret;
}

int prctl(int operation, ...);
ENTRY int prctl(int operation, ...)
{
	int (*real)(int, ...) = REAL(prctl);
	unsigned long a, b, c, d;
	va_list list;
	int ret;

	va_start(list, operation);
	a = va_arg(list, unsigned long);
	b = va_arg(list, unsigned long);
	c = va_arg(list, unsigned long);
	d = va_arg(list, unsigned long);
	va_end(list);
	if (is_leaving(SYS_prctl, operation))
		debox_tap_before_leaving();
	BEGIN(SYS_prctl, operation, a, b);
	ret = real(operation, a, b, c, d);
	END(SYS_prctl, RESULT(ret));
	return ret;
}

#define LEAVES(name, number, parameters, arg0, arg1, ...)                                          \
	int name(parameters)                                                                       \
	{                                                                                          \
		int (*real)(parameters) = REAL(name);                                              \
		int ret;                                                                           \
		if (is_leaving(number, (unsigned long)arg0))                                       \
			debox_tap_before_leaving();                                                \
		BEGIN(number, arg0, arg1, 0);                                                      \
		ret = real(__VA_ARGS__);                                                           \
		END(number, RESULT(ret));                                                          \
		return ret;                                                                        \
	}
ENTRY LEAVES(chroot, SYS_chroot, const char *path, path, 0, path)
ENTRY LEAVES(unshare, SYS_unshare, int flags, flags, 0, flags)
ENTRY LEAVES(setns, SYS_setns, PAIR(int fd, int kind), fd, kind, fd, kind)

	void *mmap(void *, size_t, int, int, int, off_t);
void *mmap64(void *, size_t, int, int, int, off_t);
#define MMAP(name)                                                                                 \
	void *name(void *address, size_t length, int protection, int flags, int fd, off_t offset)  \
	{                                                                                          \
		__typeof__(name) *real = REAL(name);                                               \
		void *ret;                                                                         \
		BEGIN(SYS_mmap, address, length, protection);                                      \
		ret = real(address, length, protection, flags, fd, offset);                        \
		END(SYS_mmap, RESULT((__s64)ret));                                                 \
		return ret;                                                                        \
	}
ENTRY MMAP(mmap)
ENTRY MMAP(mmap64)

/* These return the error number itself. */
int clock_nanosleep(clockid_t, int, const struct timespec *, struct timespec *);
ENTRY int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request,
			  struct timespec *remain)
{
	__typeof__(clock_nanosleep) *real = REAL(clock_nanosleep);
	int ret;

	BEGIN(SYS_clock_nanosleep, clock, flags, request);
	ret = real(clock, flags, request, remain);
	END(SYS_clock_nanosleep, -(__s64)ret);
	return ret;
}

int posix_fadvise(int, off_t, off_t, int);
ENTRY int posix_fadvise(int fd, off_t offset, off_t length, int advice)
{
	__typeof__(posix_fadvise) *real = REAL(posix_fadvise);
	int ret;

	BEGIN(SYS_fadvise64, fd, offset, length);
	ret = real(fd, offset, length, advice);
	END(SYS_fadvise64, -(__s64)ret);
	return ret;
}

/* Returns the seconds left, and sleeps by another call. */
ENTRY unsigned int sleep(unsigned int seconds)
{
	__typeof__(sleep) *real = REAL(sleep);
	unsigned int ret;

	BEGIN(SYS_clock_nanosleep, 0, 0, seconds);
	ret = real(seconds);
	END(SYS_clock_nanosleep, ret ? -(__s64)EINTR : 0);
	return ret;
}

/*
 * A jump out of a signal handler leaves the call that it interrupted. The buffer begins with eight
 * words of registers; the seventh is the stack pointer, which glibc mangles with a secret of the
 * thread.
 */
static __u64 jump_target(const unsigned long *environment)
{
	__u64 to = environment[6];

#ifdef __GLIBC__
	__asm__("rorq $17, %0\n\txorq %%fs:0x30, %0" : "+r"(to));
#endif
	return to;
}

typedef void jump(void *environment, int value);
#define JUMP(name)                                                                                 \
	jump interposed_##name __asm__(#name);                                                     \
	void interposed_##name(void *environment, int value)                                       \
	{                                                                                          \
		static jump *real;                                                                 \
		if (!real)                                                                         \
			real = (jump *)dlsym(RTLD_NEXT, #name);                                    \
		debox_tap_leave(jump_target(environment));                                         \
		real(environment, value);                                                          \
	}
JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
JUMP(__longjmp_chk)

/*
 * A vfork child runs in this memory and with this thread's data. The kernel marks the slot so that
 * the child leaves no stamps, but the slot must be known before the child could take it for its
 * own. vfork returns twice, so nothing may be left on the stack: look up, then jump.
 */
__attribute__((visibility("hidden"))) void *debox_real_vfork;
__attribute__((visibility("hidden"))) void *debox_real_clone;

void debox_before_vfork(void)
{
	if (!debox_real_vfork)
		debox_real_vfork = dlsym(RTLD_NEXT, "vfork");
	if (!debox_real_clone)
		debox_real_clone = dlsym(RTLD_NEXT, "clone");
	if (!debox_tap_is_attached())
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

/* clone(2) may do the same; its arguments are preserved. */
__asm__(".globl clone\n"
	".type clone, @function\n"
	"clone:\n"
	"	pushq %rdi\n"
	"	pushq %rsi\n"
	"	pushq %rdx\n"
	"	pushq %rcx\n"
	"	pushq %r8\n"
	"	pushq %r9\n"
	"	subq $8, %rsp\n"
	"	call debox_before_vfork\n"
	"	addq $8, %rsp\n"
	"	popq %r9\n"
	"	popq %r8\n"
	"	popq %rcx\n"
	"	popq %rdx\n"
	"	popq %rsi\n"
	"	popq %rdi\n"
	"	xorl %eax, %eax\n"
	"	jmp *debox_real_clone(%rip)\n"
	".size clone, .-clone\n");
