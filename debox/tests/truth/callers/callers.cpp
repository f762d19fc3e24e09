// SPDX-License-Identifier: MIT OR Apache-2.0
// What callers.c does, in C++: a template in a namespace, a stream of the standard library.
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <thread>
#include <unistd.h>

static volatile long sum;

namespace callers
{

template <int SIZE> static inline __attribute__((always_inline)) void inlined_helper(int zeros)
{
	char bytes[SIZE];

	sum += read(zeros, bytes, SIZE); // inlined read
}

static inline __attribute__((always_inline)) void inlined_sleep()
{
	timespec pause = {0, 8000000};

	sum += nanosleep(&pause, nullptr); // inlined sleep
}

__attribute__((noinline)) void call_directly(int zeros)
{
	char bytes[16];

	sum += read(zeros, bytes, sizeof(bytes)); // direct read
}

__attribute__((noinline)) void call_inlined(int zeros)
{
	inlined_helper<24>(zeros); // caller of inlined
	sum++;
}

__attribute__((noinline)) void call_library(std::ifstream &zeros)
{
	sum += zeros.get(); // library read
}

__attribute__((noinline)) void sleep_directly()
{
	timespec pause = {0, 8000000};

	sum += nanosleep(&pause, nullptr); // direct sleep
}

__attribute__((noinline)) void sleep_inlined()
{
	inlined_sleep(); // sleeper of inlined
	sum++;
}

__attribute__((noinline)) void sleep_library()
{
	std::this_thread::sleep_for(std::chrono::milliseconds(8)); // library sleep
	sum++;
}

} // namespace callers

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1, zeros = open("/dev/zero", O_RDONLY);
	std::ifstream stream;

	stream.rdbuf()->pubsetbuf(nullptr, 0);
	stream.open("/dev/zero");
	for (int i = 0; i < rounds; i++) {
		for (int j = 0; j < 3; j++)
			callers::call_directly(zeros);
		for (int j = 0; j < 2; j++)
			callers::call_inlined(zeros);
		callers::call_library(stream);
		callers::sleep_directly();
		callers::sleep_inlined();
		callers::sleep_library();
	}
	return 0;
}
