// SPDX-License-Identifier: MIT OR Apache-2.0
// The program of applications.py: answers with as many bytes as the query says, by flash's
// interface or by FastCGI (-DFCGI, with libfcgi).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char content[4 << 20];

static size_t size_of(const char *query)
{
	size_t size = query ? strtoul(query, NULL, 10) : 0;

	return size < sizeof(content) ? size : sizeof(content);
}

#ifdef FCGI
#include <fcgiapp.h>

int main(void)
{
	FCGX_Request request;

	memset(content, 'x', sizeof(content));
	if (FCGX_Init() || FCGX_InitRequest(&request, 0, 0))
		return 1;
	while (FCGX_Accept_r(&request) >= 0) {
		size_t size = size_of(FCGX_GetParam("QUERY_STRING", request.envp));

		FCGX_FPrintF(request.out, "Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n",
			     (int)size);
		FCGX_PutStr(content, (int)size, request.out);
		FCGX_Finish_r(&request);
	}
	return 0;
}
#else
#include "flash_application.h"

int main(void)
{
	struct flash_application *app = flash_application_open(-1);
	struct flash_request *request;

	memset(content, 'x', sizeof(content));
	while (app && (request = flash_next(app))) {
		size_t size = size_of(flash_variable(request, "QUERY_STRING"));

		flash_answer(request, 200, "text/plain", content, size);
	}
	return 0;
}
#endif
