/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * LD_PRELOAD=libflash_paths.so: what a server opens for reading below FLASH_PATHS_ROOTS is answered
 * from the kernel's caches, or by flash's path server, so that the disk is the path server's.
 * Whatever neither of them answers, errors among it, is left to the ordinary call.
 *
 * The state is made before main() and hardly changes: these functions may be called in signal
 * handlers, after fork and in several threads. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../client/flash_paths.h"

#define EXPORT __attribute__((visibility("default")))

enum { ROOTS_MAX = 16, DEADLINE_MS = 1000, DEADLINE_MS_MAX = 60000 };

/* What the kernel calls O_LARGEFILE; libc's name for it is 0 where all files may be large. */
enum { LARGEFILE = 0100000 };

/* With other flags, as those for writing, the ordinary call is made. */
enum {
	FLAGS = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_DIRECTORY | O_NOATIME | LARGEFILE
};

static struct flash_paths server;
static char roots[FLASH_PATHS_PATH_MAX + 1];
static struct {
	const char *path;
	size_t length;
} root[ROOTS_MAX];
/* 0 until everything else is there. */
static int root_count;

/* The next definitions of what is defined here. */
static int (*next_open)(const char *, int, ...);
static int (*next_open64)(const char *, int, ...);
static int (*next_openat)(int, const char *, int, ...);
static int (*next_openat64)(int, const char *, int, ...);
static int (*next_stat)(const char *, struct stat *);
static int (*next_stat64)(const char *, struct stat64 *);
static int (*next_lstat)(const char *, struct stat *);
static int (*next_lstat64)(const char *, struct stat64 *);
static int (*next_fstatat)(int, const char *, struct stat *, int);
static int (*next_fstatat64)(int, const char *, struct stat64 *, int);
static int (*next_statx)(int, const char *, int, unsigned, struct statx *);
static int (*next_xstat)(int, const char *, struct stat *);
static int (*next_lxstat)(int, const char *, struct stat *);
static int (*next_fxstatat)(int, int, const char *, struct stat *, int);

static void find_next(void)
{
	struct {
		const char *name;
		void *function;
	} wanted[] = {
		{"open", &next_open},	    {"open64", &next_open64},
		{"openat", &next_openat},   {"openat64", &next_openat64},
		{"stat", &next_stat},	    {"stat64", &next_stat64},
		{"lstat", &next_lstat},	    {"lstat64", &next_lstat64},
		{"fstatat", &next_fstatat}, {"fstatat64", &next_fstatat64},
		{"statx", &next_statx},	    {"__xstat", &next_xstat},
		{"__lxstat", &next_lxstat}, {"__fxstatat", &next_fxstatat},
	};
	for (size_t n = 0; n < sizeof wanted / sizeof *wanted; n++) {
		void *found = dlsym(RTLD_NEXT, wanted[n].name);
		memcpy(wanted[n].function, &found, sizeof found);
	}
}

__attribute__((constructor)) static void begin(void)
{
	const char *socket = getenv("FLASH_PATHS_SOCKET");
	const char *list = getenv("FLASH_PATHS_ROOTS");
	const char *deadline = getenv("FLASH_PATHS_DEADLINE_MS");
	long deadline_ms = deadline ? strtol(deadline, NULL, 10) : DEADLINE_MS;
	int count = 0;

	find_next();
	if (!socket || !list || strlen(list) >= sizeof roots || deadline_ms < 1 ||
	    deadline_ms > DEADLINE_MS_MAX || flash_paths_init(&server, socket, deadline_ms) != 0)
		return;
	strcpy(roots, list);
	for (char *at = strtok(roots, ":"); at && count < ROOTS_MAX; at = strtok(NULL, ":")) {
		size_t length = strlen(at);
		while (length > 1 && at[length - 1] == '/')
			length--;
		if (at[0] != '/' || length == 1)
			continue;
		root[count].path = at;
		root[count].length = length;
		count++;
	}
	__atomic_store_n(&root_count, count, __ATOMIC_RELEASE);
}

static int is_served(const char *path)
{
	int count = __atomic_load_n(&root_count, __ATOMIC_ACQUIRE);
	if (!path || path[0] != '/')
		return 0;
	for (int n = 0; n < count; n++) {
		size_t length = root[n].length;
		if (strncmp(path, root[n].path, length) == 0 &&
		    (path[length] == '/' || path[length] == '\0'))
			return 1;
	}
	return 0;
}

/* Neither the kernel's caches nor the path server know: make the ordinary call. */
enum { ORDINARY = -2 };

/* A descriptor from the kernel's caches or the path server, ORDINARY, or -1 with errno if there is
 * no such file. */
static int find(enum flash_paths_kind kind, const char *path, int flags)
{
	int before = errno;
	int descriptor =
		flash_paths_open_cached(path, kind == FLASH_PATHS_STAT ? flags | O_PATH : flags);
	int is_absent = descriptor < 0 && errno == EAGAIN;
	if (descriptor < 0 && (errno == ENOENT || errno == ENOTDIR))
		return -1;
	if (kind == FLASH_PATHS_OPEN && descriptor >= 0 && !flash_paths_is_ready(descriptor)) {
		syscall(SYS_close, descriptor);
		is_absent = 1;
	}
	errno = before;
	if (is_absent)
		descriptor = flash_paths_ask(&server, kind, path, flags);
	return descriptor < 0 ? ORDINARY : descriptor;
}

static int find_open(const char *path, int flags)
{
	if ((flags & ~FLAGS) != O_RDONLY || !is_served(path))
		return ORDINARY;
	return find(FLASH_PATHS_OPEN, path, flags);
}

static int find_stat(const char *path, int at_flags)
{
	int nofollow = at_flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0;
	if (!is_served(path))
		return ORDINARY;
	return find(FLASH_PATHS_STAT, path, O_CLOEXEC | nofollow);
}

static void close_found(int descriptor)
{
	int before = errno;
	syscall(SYS_close, descriptor);
	errno = before;
}

static int has_mode(int flags)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

#define MODE_OF(flags, mode)                                                                       \
	do {                                                                                       \
		if (has_mode(flags)) {                                                             \
			va_list rest;                                                              \
			va_start(rest, flags);                                                     \
			mode = va_arg(rest, mode_t);                                               \
			va_end(rest);                                                              \
		}                                                                                  \
	} while (0)

/* Before the constructor has run, another library's constructor may open files. */
static int open_ordinary(int (*next)(const char *, int, ...), const char *path, int flags,
			 mode_t mode)
{
	if (next)
		return next(path, flags, mode);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static int openat_ordinary(int (*next)(int, const char *, int, ...), int directory,
			   const char *path, int flags, mode_t mode)
{
	if (next)
		return next(directory, path, flags, mode);
	return (int)syscall(SYS_openat, directory, path, flags, mode);
}

EXPORT int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	int found = find_open(path, flags);
	MODE_OF(flags, mode);
	return found != ORDINARY ? found : open_ordinary(next_open, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	mode_t mode = 0;
	int found = find_open(path, flags);
	MODE_OF(flags, mode);
	return found != ORDINARY ? found
				 : open_ordinary(next_open64, path, flags | LARGEFILE, mode);
}

EXPORT int openat(int directory, const char *path, int flags, ...)
{
	mode_t mode = 0;
	int found = find_open(path, flags);
	MODE_OF(flags, mode);
	return found != ORDINARY ? found
				 : openat_ordinary(next_openat, directory, path, flags, mode);
}

EXPORT int openat64(int directory, const char *path, int flags, ...)
{
	mode_t mode = 0;
	int found = find_open(path, flags);
	MODE_OF(flags, mode);
	return found != ORDINARY
		       ? found
		       : openat_ordinary(next_openat64, directory, path, flags | LARGEFILE, mode);
}

/* What programs call that were compiled with _FORTIFY_SOURCE and give no mode. */
EXPORT int __open_2(const char *path, int flags)
{
	return open(path, flags);
}

EXPORT int __open64_2(const char *path, int flags)
{
	return open64(path, flags);
}

EXPORT int __openat_2(int directory, const char *path, int flags)
{
	return openat(directory, path, flags);
}

EXPORT int __openat64_2(int directory, const char *path, int flags)
{
	return openat64(directory, path, flags);
}

static int stat_found(int descriptor, struct stat *status)
{
	int done;
	if (descriptor < 0)
		return -1;
	done = fstat(descriptor, status);
	close_found(descriptor);
	return done;
}

static int stat64_found(int descriptor, struct stat64 *status)
{
	int done;
	if (descriptor < 0)
		return -1;
	done = fstat64(descriptor, status);
	close_found(descriptor);
	return done;
}

/* libc's, if this library's constructor has not run yet. */
static int fstatat_ordinary(int directory, const char *path, struct stat *status, int flags)
{
	return (int)syscall(SYS_newfstatat, directory, path, status, flags);
}

EXPORT int stat(const char *restrict path, struct stat *restrict status)
{
	int found = find_stat(path, 0);
	if (found != ORDINARY)
		return stat_found(found, status);
	return next_stat ? next_stat(path, status) : fstatat_ordinary(AT_FDCWD, path, status, 0);
}

EXPORT int stat64(const char *restrict path, struct stat64 *restrict status)
{
	int found = find_stat(path, 0);
	if (found != ORDINARY)
		return stat64_found(found, status);
	return next_stat64 ? next_stat64(path, status)
			   : fstatat_ordinary(AT_FDCWD, path, (struct stat *)status, 0);
}

EXPORT int lstat(const char *restrict path, struct stat *restrict status)
{
	int found = find_stat(path, AT_SYMLINK_NOFOLLOW);
	if (found != ORDINARY)
		return stat_found(found, status);
	return next_lstat ? next_lstat(path, status)
			  : fstatat_ordinary(AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

EXPORT int lstat64(const char *restrict path, struct stat64 *restrict status)
{
	int found = find_stat(path, AT_SYMLINK_NOFOLLOW);
	if (found != ORDINARY)
		return stat64_found(found, status);
	return next_lstat64 ? next_lstat64(path, status)
			    : fstatat_ordinary(AT_FDCWD, path, (struct stat *)status,
					       AT_SYMLINK_NOFOLLOW);
}

/* Flags that do not change what is found. */
static int is_plain(int flags)
{
	return (flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH)) == 0;
}

EXPORT int fstatat(int directory, const char *restrict path, struct stat *restrict status,
		   int flags)
{
	int found = is_plain(flags) ? find_stat(path, flags) : ORDINARY;
	if (found != ORDINARY)
		return stat_found(found, status);
	return next_fstatat ? next_fstatat(directory, path, status, flags)
			    : fstatat_ordinary(directory, path, status, flags);
}

EXPORT int fstatat64(int directory, const char *restrict path, struct stat64 *restrict status,
		     int flags)
{
	int found = is_plain(flags) ? find_stat(path, flags) : ORDINARY;
	if (found != ORDINARY)
		return stat64_found(found, status);
	return next_fstatat64 ? next_fstatat64(directory, path, status, flags)
			      : fstatat_ordinary(directory, path, (struct stat *)status, flags);
}

EXPORT int statx(int directory, const char *restrict path, int flags, unsigned mask,
		 struct statx *restrict status)
{
	/* AT_STATX_*: whether a network file system asks its server. */
	int found = is_plain(flags & ~AT_STATX_SYNC_TYPE) ? find_stat(path, flags) : ORDINARY;
	long done;
	if (found == ORDINARY && next_statx)
		return next_statx(directory, path, flags, mask, status);
	if (found == ORDINARY)
		return (int)syscall(SYS_statx, directory, path, flags, mask, status);
	if (found < 0)
		return -1;
	flags = (flags & AT_STATX_SYNC_TYPE) | AT_EMPTY_PATH;
	done = syscall(SYS_statx, found, "", flags, mask, status);
	close_found(found);
	return (int)done;
}

/* What programs call that were linked with a glibc before 2.33. Its structures are those of today,
 * so `version` needs no look. */
EXPORT int __xstat(int version, const char *path, struct stat *status)
{
	int found = find_stat(path, 0);
	if (found != ORDINARY)
		return stat_found(found, status);
	return next_xstat ? next_xstat(version, path, status) : stat(path, status);
}

EXPORT int __xstat64(int version, const char *path, struct stat64 *status)
{
	return __xstat(version, path, (struct stat *)status);
}

EXPORT int __lxstat(int version, const char *path, struct stat *status)
{
	int found = find_stat(path, AT_SYMLINK_NOFOLLOW);
	if (found != ORDINARY)
		return stat_found(found, status);
	return next_lxstat ? next_lxstat(version, path, status) : lstat(path, status);
}

EXPORT int __lxstat64(int version, const char *path, struct stat64 *status)
{
	return __lxstat(version, path, (struct stat *)status);
}

EXPORT int __fxstatat(int version, int directory, const char *path, struct stat *status, int flags)
{
	int found = is_plain(flags) ? find_stat(path, flags) : ORDINARY;
	if (found != ORDINARY)
		return stat_found(found, status);
	return next_fxstatat ? next_fxstatat(version, directory, path, status, flags)
			     : fstatat(directory, path, status, flags);
}

EXPORT int __fxstatat64(int version, int directory, const char *path, struct stat64 *status,
			int flags)
{
	return __fxstatat(version, directory, path, (struct stat *)status, flags);
}
