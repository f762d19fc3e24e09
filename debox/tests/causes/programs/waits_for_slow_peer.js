// SPDX-License-Identifier: MIT OR Apache-2.0
// Asks a server that takes its time, one request after another.
const http = require('http');

console.log('ready');
const end = Date.now() + Number(process.argv[2]) * 1000;
const ask = () =>
	http.get({ host: '127.0.0.1', port: process.argv[4], path: '/' }, (answer) => {
		answer.resume();
		answer.on('end', () => Date.now() < end && ask());
	});
ask();
