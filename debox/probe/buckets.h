/* SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0 */
/*
 * buckets.h: the histogram of calls' wall times, which both the probes and the preload shim fill.
 *
 * debox/engine/src/tables.rs has the inverse, from a bucket to its upper edge.
 */
#ifndef PROBE_BUCKETS_H
#define PROBE_BUCKETS_H

#include <linux/types.h>

#define SUB_BUCKET_BITS 3 /* 8 buckets an octave: a bucket's upper edge is at most 12.5 % high */
#define BUCKET_LOW_BITS 5 /* all below 32 ns is one bucket */
#define BUCKETS 296	  /* up to 2^41 ns, 36 minutes; longer calls go to the last one */

#define EIGHTH(at, width, bucket) [(at)...(at) + (width) - 1] = (bucket)
#define OCTAVE(at, width, bucket)                                                                  \
	EIGHTH(at, width, bucket), EIGHTH((at) + (width), width, (bucket) + 1),                    \
		EIGHTH((at) + 2 * (width), width, (bucket) + 2),                                   \
		EIGHTH((at) + 3 * (width), width, (bucket) + 3),                                   \
		EIGHTH((at) + 4 * (width), width, (bucket) + 4),                                   \
		EIGHTH((at) + 5 * (width), width, (bucket) + 5),                                   \
		EIGHTH((at) + 6 * (width), width, (bucket) + 6),                                   \
		EIGHTH((at) + 7 * (width), width, (bucket) + 7)

static const __u8 short_buckets[256] = {
	OCTAVE(8, 1, 1),   OCTAVE(16, 2, 9),	OCTAVE(32, 4, 17),
	OCTAVE(64, 8, 25), OCTAVE(128, 16, 33),
};

/* Without branches: the verifier would follow each of them, for each path that leads here. */
static inline __attribute__((always_inline)) int floor_log2(__u64 value)
{
	int bits = 0;

	for (int step = 32; step; step /= 2) {
		__u64 below = -(value >> step); /* its top bit: whether value >> step is not 0 */
		int shift;

		asm("" : "+r"(below)); /* else the compiler makes it a branch */
		shift = (below >> 63) * step;
		value >>= shift;
		bits += shift;
	}
	return bits;
}

/* Log-linear, as in HdrHistogram: SUB_BUCKET_BITS below the leading bit. */
static __attribute__((noinline)) __u32 long_bucket(__u64 ns)
{
	int log = floor_log2(ns);
	__u32 bucket;

	if (log < BUCKET_LOW_BITS)
		return 0;
	bucket = ((log - BUCKET_LOW_BITS) << SUB_BUCKET_BITS) +
		 ((ns >> (log - SUB_BUCKET_BITS)) & ((1 << SUB_BUCKET_BITS) - 1)) + 1;
	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/* Most calls are short, and their buckets are looked up by wall time / 4. */
static inline __attribute__((always_inline)) __u32 bucket_of(__u64 ns)
{
	__u64 place = ns / 4;

	if (__builtin_expect(ns >= 1024, 0))
		return long_bucket(ns);
	/*
	 * Keeps the mask: the verifier of 6.1 loses the bound of a value that went through memory.
	 */
	asm("" : "+r"(place));
	return short_buckets[place & 255];
}

#endif
