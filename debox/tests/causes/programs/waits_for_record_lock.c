// SPDX-License-Identifier: MIT OR Apache-2.0
// Wants a record of a file, which another process has most of the time.
#include "planted.h"

#include <fcntl.h>

int main(int argc, char **argv)
{
	struct flock record = {.l_type = F_WRLCK, .l_len = 10};
	int fd;

	must(argc > 3, "PLACE");
	fd = open(argv[3], O_RDWR);
	must(fd >= 0, argv[3]);
	ready(argv);
	while (goes_on()) {
		record.l_type = F_WRLCK;
		must(fcntl(fd, F_SETLKW, &record) == 0, "F_SETLKW");
		record.l_type = F_UNLCK;
		fcntl(fd, F_SETLK, &record);
		sleep_ms(2);
	}
	return 0;
}
