// SPDX-License-Identifier: MIT OR Apache-2.0
// The files of the dynamic requests: users, ads and the log of registrations.
#define _GNU_SOURCE
#include "specweb99.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ADS 360
#define FIRST_USER 10000
// The digits of the number of records, with the end of their line.
#define COUNT_LENGTH 11

struct ad {
	unsigned demographics;
	// Of gender, age, region and two interests.
	int weights[5];
	int minimum;
	long expires;
};

static const unsigned masks[5] = {0x30000000, 0x0f000000, 0x00f00000, 0x000ffc00, 0x000003ff};

static unsigned *users;
static size_t user_count;
static struct ad ads[ADS];
static size_t ad_count;

// The file if it is another one than before.
static FILE *open_changed(const char *name, struct timespec *before)
{
	struct stat about;

	if (stat(name, &about) || !memcmp(&about.st_mtim, before, sizeof(*before)))
		return NULL;
	*before = about.st_mtim;
	return fopen(name, "re");
}

static void load(void)
{
	static struct timespec of_users, of_ads;
	FILE *file = open_changed("User.Personality", &of_users);
	unsigned number, demographics, weights;

	if (file) {
		user_count = 0;
		while (fscanf(file, "%u %x", &number, &demographics) == 2) {
			unsigned *more = realloc(users, (user_count + 1) * sizeof(*users));

			if (!more)
				break;
			users = more;
			users[user_count++] = demographics;
		}
		fclose(file);
	}
	file = open_changed("Custom.Ads", &of_ads);
	if (file) {
		struct ad *ad = ads;

		for (ad_count = 0; ad_count < ADS; ad_count++, ad++) {
			if (fscanf(file, "%u %x %x %d %ld", &number, &ad->demographics, &weights,
				   &ad->minimum, &ad->expires) != 5)
				break;
			for (int at = 0; at < 5; at++)
				ad->weights[at] = weights >> (16 - 4 * at) & 0xf;
		}
		fclose(file);
	}
}

struct choice choose_ad(const char *cookie)
{
	struct choice choice = {.ad = -1, .is_expired = 1};
	long user = -1, last = -1;
	long ad;

	load();
	if (sscanf(cookie, "user_id=%ld&last_ad=%ld", &user, &last) != 2)
		return choice;
	user -= FIRST_USER;
	if (user < 0 || (size_t)user >= user_count || last < -1 || last >= (long)ad_count)
		return choice;
	ad = last;
	for (size_t seen = 0; seen < ad_count; seen++) {
		unsigned both;
		int weight = 0;

		ad = (ad + 1) % ad_count;
		both = ads[ad].demographics & users[user];
		for (int at = 0; at < 5; at++)
			weight += both & masks[at] ? ads[ad].weights[at] : 0;
		if (weight >= ads[ad].minimum) {
			choice.ad = ad;
			choice.weight = weight;
			choice.is_expired = time(NULL) >= ads[ad].expires;
			return choice;
		}
	}
	return choice;
}

int append_record(long directory, long class, long file, long client, const char *name, long cookie)
{
	char count[32] = "", record[256];
	int log = open(LOG_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	int length, failed = -1;
	long records;
	off_t end;

	if (log < 0)
		return -1;
	// Other processes have the same log. The lock ends with the descriptor.
	if (!flock(log, LOCK_EX) && (end = lseek(log, 0, SEEK_END)) >= 0) {
		records = pread(log, count, COUNT_LENGTH, 0) > 0 ? strtol(count, NULL, 10) + 1 : 1;
		if (end < COUNT_LENGTH)
			end = COUNT_LENGTH;
		length = snprintf(record, sizeof(record),
				  "%10ld %10ld %10d %5ld %2ld %2ld %10ld %-60.60s %10d %10ld\n",
				  records, (long)time(NULL), getpid(), directory, class, file,
				  client, name, getpid(), cookie);
		snprintf(count, sizeof(count), "%10ld\n", records);
		if (pwrite(log, record, length, end) == length &&
		    pwrite(log, count, COUNT_LENGTH, 0) == COUNT_LENGTH)
			failed = 0;
	}
	close(log);
	return failed;
}

int reset_log(void)
{
	int log = open(LOG_NAME, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	int failed = -1;

	if (log < 0)
		return -1;
	if (!flock(log, LOCK_EX) && !ftruncate(log, 0) &&
	    pwrite(log, "         0\n", COUNT_LENGTH, 0) == COUNT_LENGTH)
		failed = 0;
	close(log);
	return failed;
}
