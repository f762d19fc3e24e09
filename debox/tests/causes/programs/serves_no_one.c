// SPDX-License-Identifier: MIT OR Apache-2.0
// A server that no client asks for anything.
#include "planted.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	struct pollfd ear = {.fd = fd, .events = POLLIN};

	(void)argc;
	must(bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0, "bind");
	must(listen(fd, 5) == 0, "listen");
	ready(argv);
	ends_by_itself(argv);
	while (poll(&ear, 1, -1) > 0)
		close(accept(fd, NULL, NULL));
	return 0;
}
