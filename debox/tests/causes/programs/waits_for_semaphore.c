// SPDX-License-Identifier: MIT OR Apache-2.0
// Three processes want a System V semaphore, which a fourth has most of the time.
#include "planted.h"

#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>

static int set;

static void change(short by)
{
	struct sembuf change = {.sem_op = by, .sem_flg = SEM_UNDO};

	semop(set, &change, 1);
}

static void repeat(long has_ms)
{
	while (goes_on()) {
		change(-1);
		if (has_ms)
			sleep_ms(has_ms);
		change(1);
		sleep_ms(1);
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	set = semget(IPC_PRIVATE, 1, 0600);
	must(set >= 0, "semget");
	change(1);
	ready(argv);
	for (int i = 0; i < 4; i++)
		if (fork() == 0) {
			name_thread(i ? "wants" : "has-it");
			repeat(i ? 0 : 40);
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
	semctl(set, 0, IPC_RMID);
	return 0;
}
