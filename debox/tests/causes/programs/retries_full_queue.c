// SPDX-License-Identifier: MIT OR Apache-2.0
// Tries again and again to put a message into a full queue that it does not want to wait for.
#include "planted.h"

#include <errno.h>
#include <sys/ipc.h>
#include <sys/msg.h>

int main(int argc, char **argv)
{
	struct {
		long type;
		char text[1000];
	} message = {1, ""};
	int queue = msgget(IPC_PRIVATE, 0600);

	(void)argc;
	must(queue >= 0, "msgget");
	ready(argv);
	while (goes_on())
		if (msgsnd(queue, &message, sizeof(message.text), IPC_NOWAIT) != 0)
			usleep(5000);
	msgctl(queue, IPC_RMID, NULL);
	return 0;
}
