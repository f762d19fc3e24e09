// SPDX-License-Identifier: MIT OR Apache-2.0
// A greeting, an answer in parts, one that takes long, and what the client has sent. flash.toml:
//
//     [[server.location]]
//     path = "/app"
//     application = { command = ["./hello"] }
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "flash_application.h"

static void answer(struct flash_request *request)
{
	const char *path = flash_variable(request, "PATH_INFO");
	char text[4096];

	if (!strcmp(path, "/stream")) {
		flash_begin(request, 200, "text/plain", FLASH_UNKNOWN);
		for (int number = 0; number < 5; number++) {
			int length = snprintf(text, sizeof(text), "part %d\n", number);

			if (flash_write(request, text, length))
				return;
			usleep(100000);
		}
	} else if (!strcmp(path, "/slow")) {
		for (int tenths = 0; tenths < 50; tenths++) {
			// Otherwise the server would take this process for one that hangs.
			flash_progress(request);
			usleep(100000);
		}
		flash_answer(request, 200, "text/plain", "done\n", 5);
	} else if (!strcmp(path, "/echo")) {
		ssize_t length;

		flash_begin(request, 200, "text/plain", flash_content_length(request));
		while ((length = flash_read(request, text, sizeof(text))) > 0)
			if (flash_write(request, text, length))
				return;
	} else {
		flash_answer(request, 200, "text/plain", "hello\n", 6);
	}
}

int main(void)
{
	struct flash_application *app = flash_application_open(-1);
	struct flash_request *request;

	if (!app) {
		fprintf(stderr, "flash starts this program (`application` in its configuration)\n");
		return 1;
	}
	while ((request = flash_next(app)))
		answer(request);
	flash_application_close(app);
	return 0;
}
