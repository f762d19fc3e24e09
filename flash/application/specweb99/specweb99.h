/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef SPECWEB99_H
#define SPECWEB99_H

#include <stdbool.h>

#define LOG_NAME "post.log"

/* An ad for a user. */
struct choice {
	int ad;
	int weight;
	int is_expired;
};

/* `cookie`: "user_id=N&last_ad=N". The ad -1: there is no such user, or no ad for him. */
struct choice choose_ad(const char *cookie);

/* In the log of all processes. They return -1 if it cannot be written. */
int append_record(long directory, long class, long file, long client, const char *name,
		  long cookie);
int reset_log(void);

#endif
