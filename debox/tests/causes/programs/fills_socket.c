// SPDX-License-Identifier: MIT OR Apache-2.0
// Sends to a peer that reads slowly: the connection's buffers are full.
#include "planted.h"

#include <arpa/inet.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	static char bytes[65536];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int size = 32768;

	must(argc > 3, "PLACE");
	to.sin_port = htons(atoi(argv[3]));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	must(connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0, "connect");
	ready(argv);
	while (goes_on())
		must(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) > 0, "send");
	return 0;
}
