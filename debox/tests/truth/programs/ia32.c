/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * ia32: 400 calls by `int $0x80`, whose table of numbers is another one: 20 is getpid there and
 * writev in the 64-bit table. Says in `supported` whether this kernel takes such calls.
 */
#include <setjmp.h>
#include "known.h"

#define IA32_GETPID 20

static sigjmp_buf refused;

static void on_fault(int number)
{
	siglongjmp(refused, number);
}

static long ia32_call(long number)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "0"(number)
			 : "r8", "r9", "r10", "r11", "memory");
	return (int)result;
}

int main(void)
{
	struct sigaction action = {.sa_handler = on_fault};
	volatile uint64_t supported = 0;

	facts_start();
	MUST(sigaction(SIGSEGV, &action, NULL) == 0);
	if (sigsetjmp(refused, 1) == 0) {
		long pid = (long)syscall(SYS_getpid);

		supported = ia32_call(IA32_GETPID) == pid;
		for (int i = 1; supported && i < 400; i++)
			MUST(ia32_call(IA32_GETPID) == pid);
	}
	fact("supported", supported);
	facts_end();
	return 0;
}
