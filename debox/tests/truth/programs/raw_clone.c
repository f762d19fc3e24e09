/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * raw_clone: no C library at all. A thread made by the bare clone call makes 500 getuid calls and a
 * sleep of 50 ms; the main thread makes 1000 getppid calls and waits for it on the futex word that
 * the kernel clears when the thread ends. Prints nothing; its numbers are the ones given here.
 */
#include <linux/futex.h>
#include <linux/sched.h>
#include <sys/syscall.h>
#include <time.h>

static long call6(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static int alive = 1;
static char stack[65536] __attribute__((aligned(16)));

static void __attribute__((noreturn, used)) thread_body(void)
{
	struct timespec time = {0, 50000000};

	for (int i = 0; i < 500; i++)
		call6(SYS_getuid, 0, 0, 0, 0, 0, 0);
	call6(SYS_nanosleep, (long)&time, 0, 0, 0, 0, 0);
	call6(SYS_exit, 0, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}

/* The child comes back from clone on an empty stack: it must not return, so this is assembly. */
static long clone_thread(void)
{
	register long r10 __asm__("r10") = (long)&alive;
	register long r8 __asm__("r8") = 0;
	long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
		     CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
	long result;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call thread_body\n\t"
			 "1:"
			 : "=a"(result)
			 : "0"((long)SYS_clone), "D"(flags), "S"(stack + sizeof(stack)), "d"(0L),
			   "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

void __attribute__((noreturn, used, force_align_arg_pointer)) _start(void)
{
	long status = clone_thread() < 0;

	for (int i = 0; i < 1000; i++)
		call6(SYS_getppid, 0, 0, 0, 0, 0, 0);
	while (__atomic_load_n(&alive, __ATOMIC_SEQ_CST))
		call6(SYS_futex, (long)&alive, FUTEX_WAIT, 1, 0, 0, 0);
	call6(SYS_exit_group, status, 0, 0, 0, 0, 0);
	__builtin_unreachable();
}
