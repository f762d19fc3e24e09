// SPDX-License-Identifier: MIT OR Apache-2.0
// A server that no client asks for anything.
const server = require('http').createServer((request, answer) => answer.end());

server.listen(0, '127.0.0.1', () => {
	console.log('ready');
	setTimeout(() => server.close(), Number(process.argv[2]) * 1000);
});
