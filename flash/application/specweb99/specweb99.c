// SPDX-License-Identifier: MIT OR Apache-2.0
// The dynamic requests of SPECweb99 as an application of flash, and the standard one as a CGI
// program, too. README.md says what is as in SPECweb99 and what is not.
#define _GNU_SOURCE
#include "specweb99.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "flash_application.h"

#define TITLE "SPECweb99 Dynamic GET & POST Test"
#define TAG "<!WEB99CAD><IMG SRC=\"/file_set/dirNNNNN/classX_Y\"><!/WEB99CAD>"
// Where the tag has the directory, the class and the number of the file.
#define TAG_DIRECTORY 34
#define TAG_CLASS 45
#define TAG_FILE 47

static int root = -1;

struct page {
	char head[2048];
	size_t head_length;
	int file;
	uint64_t file_length;
};

static const char tail[] = "\n</pre>\n</body></html>\n";

static const char *value_of(const struct flash_request *request, const char *name)
{
	const char *value = request ? flash_variable(request, name) : getenv(name);

	return value ? value : "";
}

// False: there is no such file of the file set.
static bool open_page(const struct flash_request *request, const char *name, const char *query,
		      struct page *page)
{
	struct stat about;
	int length;

	while (*name == '/')
		name++;
	// Nothing outside of the file set.
	if (strncmp(name, "file_set/", 9) || strstr(name, ".."))
		return false;
	page->file = openat(root, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (page->file < 0)
		return false;
	if (fstat(page->file, &about) || !S_ISREG(about.st_mode)) {
		close(page->file);
		return false;
	}
	page->file_length = about.st_size;
	length = snprintf(
		page->head, sizeof(page->head),
		"<html>\n<head><title>" TITLE "</title></head>\n<body>\n<p>SERVER_SOFTWARE = %s\n"
		"<p>REMOTE_ADDR = %s\n<p>SCRIPT_NAME = %s\n<p>QUERY_STRING = %.1024s\n<pre>\n",
		value_of(request, "SERVER_SOFTWARE"), value_of(request, "REMOTE_ADDR"),
		value_of(request, "SCRIPT_NAME"), query);
	if (length < 0 || (size_t)length >= sizeof(page->head)) {
		close(page->file);
		return false;
	}
	page->head_length = length;
	return true;
}

static uint64_t whole(const struct page *page)
{
	return page->head_length + page->file_length + sizeof(tail) - 1;
}

static void fail(struct flash_request *request, int status)
{
	static const char text[] =
		"<html><head><title>" TITLE "</title></head><body><p>error</body></html>\n";

	flash_answer(request, status, "text/html", text, sizeof(text) - 1);
}

static void send_page(struct flash_request *request, struct page *page, const char *cookie)
{
	flash_begin(request, 200, "text/html", whole(page));
	if (cookie)
		flash_field(request, "Set-Cookie", cookie);
	if (!flash_write(request, page->head, page->head_length) &&
	    !flash_write_file(request, page->file, page->file_length))
		flash_write(request, tail, sizeof(tail) - 1);
	close(page->file);
}

// The place of each tag gets the name of the file that is the ad's picture.
static void put_ad(char *content, size_t length, int ad)
{
	char *at = content, *end = content + length;
	char directory[16];

	snprintf(directory, sizeof(directory), "%05d", ad / 36);
	while ((at = memmem(at, end - at, TAG, sizeof(TAG) - 1))) {
		memcpy(at + TAG_DIRECTORY, directory, 5);
		at[TAG_CLASS] = '0' + ad % 36 / 9;
		at[TAG_FILE] = '0' + ad % 9;
		at += sizeof(TAG) - 1;
	}
}

// Custom ad rotation: which ad fits the user that the cookie names.
static void send_with_ad(struct flash_request *request, struct page *page, const char *cookie)
{
	char text[128], *content;
	struct choice choice = choose_ad(cookie);
	ssize_t length = 0;
	const char *name = flash_variable(request, "QUERY_STRING");
	const char *kind = strstr(name, "/class");

	snprintf(text, sizeof(text), "found_cookie=Ad_id=%d&Ad_weight=%02d&Expired=%d", choice.ad,
		 choice.weight, choice.is_expired);
	// Only the files of these classes have tags.
	if (!kind || (kind[6] != '1' && kind[6] != '2') || choice.ad < 0) {
		send_page(request, page, text);
		return;
	}
	content = malloc(page->file_length + 1);
	while (content && (uint64_t)length < page->file_length) {
		ssize_t read =
			pread(page->file, content + length, page->file_length - length, length);

		if (read <= 0)
			break;
		length += read;
	}
	close(page->file);
	if (!content || (uint64_t)length < page->file_length) {
		free(content);
		fail(request, 500);
		return;
	}
	put_ad(content, length, choice.ad);
	flash_begin(request, 200, "text/html", whole(page));
	flash_field(request, "Set-Cookie", text);
	if (!flash_write(request, page->head, page->head_length) &&
	    !flash_write(request, content, length))
		flash_write(request, tail, sizeof(tail) - 1);
	free(content);
}

// A number of "a=1&b=2"; -1: it is not there.
static long number(const char *text, const char *name)
{
	size_t length = strlen(name);
	char *end;
	long found;

	for (; text; text = strchr(text, '&') ? strchr(text, '&') + 1 : NULL) {
		if (strncmp(text, name, length) || text[length] != '=')
			continue;
		errno = 0;
		found = strtol(text + length + 1, &end, 10);
		return end == text + length + 1 || errno || found < 0 ? -1 : found;
	}
	return -1;
}

// Registers a user: a record in the log, and the file as the answer.
static void post(struct flash_request *request, const char *cookie)
{
	char content[1024], urlroot[256] = "/", name[512], set[64];
	size_t length = 0;
	ssize_t read;
	long directory, class, file, client;
	long my_cookie = cookie ? strtol(cookie, NULL, 10) : 0;
	struct page page;

	while (length < sizeof(content) - 1 &&
	       (read = flash_read(request, content + length, sizeof(content) - 1 - length)) > 0)
		length += read;
	content[length] = '\0';
	sscanf(content, "urlroot=%255[^&]", urlroot);
	directory = number(content, "dir");
	class = number(content, "class");
	file = number(content, "num");
	client = number(content, "client");
	if (directory < 0 || directory > 99999 || class < 0 || class > 3 || file < 0 || file > 8 ||
	    client < 0) {
		fail(request, 400);
		return;
	}
	snprintf(name, sizeof(name), "%s%sfile_set/dir%05ld/class%ld_%ld", urlroot,
		 urlroot[strlen(urlroot) - 1] == '/' ? "" : "/", directory, class, file);
	if (!open_page(request, name, "", &page)) {
		fail(request, 404);
		return;
	}
	if (append_record(directory, class, file, client, name, my_cookie)) {
		close(page.file);
		fail(request, 500);
		return;
	}
	snprintf(set, sizeof(set), "my_cookie=%ld", my_cookie);
	send_page(request, &page, set);
}

static void answer(struct flash_request *request)
{
	const char *query = value_of(request, "QUERY_STRING");
	const char *cookies = value_of(request, "HTTP_COOKIE");
	const char *cookie = strstr(cookies, "my_cookie=");
	struct page page;

	cookie = cookie ? cookie + strlen("my_cookie=") : NULL;
	if (!strcmp(value_of(request, "REQUEST_METHOD"), "POST"))
		return post(request, cookie);
	if (!strncmp(query, "command/Reset", 13)) {
		if (reset_log())
			fail(request, 500);
		else
			flash_answer(request, 200, "text/plain", "reset\n", 6);
		return;
	}
	if (!strcmp(query, "command/Fetch")) {
		int log = open(LOG_NAME, O_RDONLY | O_CLOEXEC);
		struct stat about;

		if (log < 0 || fstat(log, &about)) {
			fail(request, 404);
		} else if (!flash_begin(request, 200, "text/plain", about.st_size)) {
			flash_write_file(request, log, about.st_size);
		}
		if (log >= 0)
			close(log);
		return;
	}
	if (!open_page(request, query, query, &page))
		fail(request, 404);
	else if (cookie)
		send_with_ad(request, &page, cookie);
	else
		send_page(request, &page, NULL);
}

// The standard request as a program that is started for it.
static int answer_as_cgi(void)
{
	const char *query = value_of(NULL, "QUERY_STRING");
	struct page page;
	char part[65536];
	ssize_t length;

	if (!open_page(NULL, query, query, &page)) {
		printf("Status: 404 Not Found\nContent-Type: text/html\n\nerror\n");
		return 0;
	}
	printf("Content-Type: text/html\nContent-Length: %llu\n\n",
	       (unsigned long long)whole(&page));
	fwrite(page.head, 1, page.head_length, stdout);
	while ((length = read(page.file, part, sizeof(part))) > 0)
		fwrite(part, 1, length, stdout);
	fwrite(tail, 1, sizeof(tail) - 1, stdout);
	return ferror(stdout) || fflush(stdout);
}

int main(int count, char **arguments)
{
	const char *place = count > 1 ? arguments[1] : getenv("SPECWEB99");
	struct flash_application *app;
	struct flash_request *request;

	if (!place || chdir(place) || (root = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)) < 0) {
		fprintf(stderr, "usage: specweb99 DIRECTORY (with file_set, User.Personality and "
				"Custom.Ads)\n");
		return 2;
	}
	if (getenv("GATEWAY_INTERFACE") && !getenv("FLASH_APPLICATION"))
		return answer_as_cgi();
	app = flash_application_open(-1);
	if (!app) {
		fprintf(stderr, "specweb99: flash starts this program\n");
		return 1;
	}
	while ((request = flash_next(app)))
		answer(request);
	return 0;
}
