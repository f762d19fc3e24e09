// SPDX-License-Identifier: MIT OR Apache-2.0
#include "channel.h"

#include <string.h>

bool read_order(const char *message, size_t length, struct order *order)
{
	struct head *head = &order->head;

	if (length < sizeof(*head))
		return false;
	memcpy(head, message, sizeof(*head));
	if (head->version != VERSION || head->kind != REQUEST)
		return false;
	length -= sizeof(*head);
	if (head->variables > length || head->fields > length - head->variables)
		return false;
	order->variables = message + sizeof(*head);
	order->fields = order->variables + head->variables;
	order->content = order->fields + head->fields;
	order->content_length = length - head->variables - head->fields;
	if (order->content_length > head->length)
		return false;
	// Each is a string.
	return head->variables == 0 || order->variables[head->variables - 1] == '\0';
}
