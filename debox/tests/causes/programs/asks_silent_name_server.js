// SPDX-License-Identifier: MIT OR Apache-2.0
// Looks up a name, of a name server that does not answer; its pool does the waiting.
const dns = require('dns');

console.log('ready');
const end = Date.now() + Number(process.argv[2]) * 1000;
const ask = () => dns.lookup('www.example.org', () => Date.now() < end && ask());
ask();
