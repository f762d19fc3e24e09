/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Applications of the web server flash: processes that answer requests by writing to the client's
 * socket themselves.
 *
 *     int main(void)
 *     {
 *         struct flash_application *app = flash_application_open(-1);
 *         struct flash_request *request;
 *         while (app && (request = flash_next(app)))
 *             flash_answer(request, 200, "text/plain", "hello\n", 6);
 *         return 0;
 *     }
 *
 * flash/docs/applications.md describes the protocol. No function is for several threads at once.
 */
#ifndef FLASH_APPLICATION_H
#define FLASH_APPLICATION_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct flash_application;
struct flash_request;

/* The channel to the server: a descriptor, or -1 for the one that flash passes to a process that it
 * starts. A descriptor that listens (of an application that flash does not start) is accepted from,
 * one connection at a time. NULL: there is none; errno says why. */
struct flash_application *flash_application_open(int descriptor);
/* A descriptor that listens at a path, with the mode 660, for flash_application_open. -1: errno
 * says why. */
int flash_application_listen(const char *path);
void flash_application_close(struct flash_application *app);

/* Waits for the next request. It ends the one before, if flash_end has not. NULL: the process is to
 * end, as the server or a SIGTERM that came before this call wants it. */
struct flash_request *flash_next(struct flash_application *app);

/* A variable of CGI (RFC 3875), as "REQUEST_METHOD", "PATH_INFO", "QUERY_STRING" or "HTTP_COOKIE".
 * NULL: it is not set. */
const char *flash_variable(const struct flash_request *request, const char *name);
/* The number of all variables, and each as "NAME=value". */
size_t flash_variables(const struct flash_request *request);
const char *flash_variable_at(const struct flash_request *request, size_t number);

/* Bytes of the request's content, and a part of it: at most `room` bytes, 0 at its end, -1 if the
 * client has gone. */
uint64_t flash_content_length(const struct flash_request *request);
ssize_t flash_read(struct flash_request *request, void *into, size_t room);

/* Length of an answer that is not known before its end. */
#define FLASH_UNKNOWN UINT64_MAX

/* An answer begins with its status and the type of its content; then come further fields, if any,
 * then its content. They return -1 if the client has gone or the call is wrong (errno EINVAL);
 * flash_end then ends the connection. */
int flash_begin(struct flash_request *request, int status, const char *type, uint64_t length);
int flash_field(struct flash_request *request, const char *name, const char *value);
int flash_write(struct flash_request *request, const void *content, size_t length);
/* The next `length` bytes of a file, from the kernel's memory of it (sendfile). */
int flash_write_file(struct flash_request *request, int file, uint64_t length);
/* The answer is whole, and the server gets the connection back. */
void flash_end(struct flash_request *request);
/* The answer cannot be finished: the server resets the connection. */
void flash_cut(struct flash_request *request);

/* All of it in one call. */
int flash_answer(struct flash_request *request, int status, const char *type, const void *content,
		 size_t length);

/* The answer takes long. Without a word or a byte for `silence` (60 s), the server kills the
 * process. */
void flash_progress(struct flash_request *request);

#ifdef __cplusplus
}
#endif

#endif
