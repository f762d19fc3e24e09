/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* plain.c: a session of one call. */
#include "checks.h"

int main(void)
{
	const struct debox_record *record;

	enable();
	syscall(SYS_getppid);
	record = debox_last();
	CHECK(record && record->call == SYS_getppid, "no record");
	CHECK(debox_disable() == 0, "%s", debox_last_error_text());
	return 0;
}
