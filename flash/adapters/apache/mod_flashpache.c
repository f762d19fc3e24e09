/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Before Apache looks for the file of a request, this module asks flash's path server to bring
 * name, inode and first bytes into memory, unless the kernel has the name already. Apache then does
 * all that it does without the module, and so answers the same. What the path server has opened
 * stays open until the request ends, so that the kernel keeps it in memory for Apache's own calls.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "httpd.h"
#include "http_config.h"
#include "http_core.h"
#include "http_main.h"
#include "http_request.h"

#include "../client/flash_paths.h"

/* Nothing else of the library is visible. */
extern module AP_MODULE_DECLARE_DATA flashpache_module __attribute__((visibility("default")));

enum { DEADLINE_MS = 1000, DEADLINE_MS_MAX = 60000 };

struct settings {
	const char *socket;
	int deadline_ms;
	/* In each process; NULL without a socket. */
	struct flash_paths *server;
};

static void *create_settings(apr_pool_t *pool, server_rec *server)
{
	struct settings *settings = apr_pcalloc(pool, sizeof *settings);
	(void)server;
	settings->deadline_ms = DEADLINE_MS;
	return settings;
}

static struct settings *settings_of(server_rec *server)
{
	return ap_get_module_config(server->module_config, &flashpache_module);
}

static const char *set_socket(cmd_parms *command, void *unused, const char *text)
{
	const char *wrong = ap_check_cmd_context(command, GLOBAL_ONLY);
	struct settings *settings = settings_of(command->server);
	(void)unused;
	if (wrong)
		return wrong;
	settings->socket = text;
	settings->server = apr_palloc(command->pool, sizeof *settings->server);
	if (flash_paths_init(settings->server, text, settings->deadline_ms) != 0)
		return "FlashPathServer needs the absolute path of a socket, with at most 107 "
		       "bytes";
	return NULL;
}

static const char *set_deadline(cmd_parms *command, void *unused, const char *text)
{
	const char *wrong = ap_check_cmd_context(command, GLOBAL_ONLY);
	struct settings *settings = settings_of(command->server);
	char *end;
	long value = strtol(text, &end, 10);
	(void)unused;
	if (wrong)
		return wrong;
	if (*text == '\0' || *end != '\0' || value < 1 || value > DEADLINE_MS_MAX)
		return "FlashPathDeadline needs a number of milliseconds from 1 to 60000";
	settings->deadline_ms = (int)value;
	if (settings->server)
		settings->server->deadline_ns = (int64_t)value * 1000000;
	return NULL;
}

static apr_status_t close_descriptor(void *descriptor)
{
	close((int)(intptr_t)descriptor);
	return APR_SUCCESS;
}

/* Apache looks for the file next. */
static int bring(request_rec *r)
{
	/* The server of the request may be a virtual host; the settings are global. */
	struct settings *settings = settings_of(ap_server_conf);
	int descriptor;
	if (!settings->server || !r->filename || r->filename[0] != '/')
		return DECLINED;
	if (flash_paths_is_warm(r->filename))
		return DECLINED;
	descriptor = flash_paths_ask(settings->server, FLASH_PATHS_OPEN, r->filename,
				     O_RDONLY | O_CLOEXEC);
	if (descriptor >= 0)
		apr_pool_cleanup_register(r->pool, (void *)(intptr_t)descriptor, close_descriptor,
					  close_descriptor);
	return DECLINED;
}

static const command_rec commands[] = {
	AP_INIT_TAKE1("FlashPathServer", set_socket, NULL, RSRC_CONF,
		      "socket of flash's path server"),
	AP_INIT_TAKE1("FlashPathDeadline", set_deadline, NULL, RSRC_CONF,
		      "milliseconds after which Apache does without an answer"),
	{NULL},
};

static void register_hooks(apr_pool_t *pool)
{
	(void)pool;
	ap_hook_map_to_storage(bring, NULL, NULL, APR_HOOK_FIRST);
}

AP_DECLARE_MODULE(flashpache) = {
	STANDARD20_MODULE_STUFF, NULL, NULL, create_settings, NULL, commands, register_hooks, 0,
};
