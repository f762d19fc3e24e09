// SPDX-License-Identifier: MIT OR Apache-2.0
// Asks a server that takes its time, on one connection after another.
#include "planted.h"

#include <arpa/inet.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	static const char request[] = "GET / HTTP/1.0\r\n\r\n";
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char answer[4096];

	must(argc > 3, "PLACE");
	to.sin_port = htons(atoi(argv[3]));
	ready(argv);
	while (goes_on()) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);

		must(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0, "connect");
		must(send(fd, request, sizeof(request) - 1, 0) > 0, "send");
		while (recv(fd, answer, sizeof(answer), 0) > 0)
			;
		close(fd);
	}
	return 0;
}
