// SPDX-License-Identifier: MIT OR Apache-2.0
// Looks for prime numbers.
function primes(below) {
	let found = 0;
	for (let n = 2; n < below; n++) {
		let divisor = 2;
		while (divisor * divisor <= n && n % divisor) divisor++;
		found += divisor * divisor > n;
	}
	return found;
}

console.log('ready');
const end = Date.now() + Number(process.argv[2]) * 1000;
while (Date.now() < end) primes(20000);
