// SPDX-License-Identifier: MIT OR Apache-2.0

// Sorts what it has shuffled.
package main

import (
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"time"
)

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	fmt.Println("ready")
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	numbers := rand.Perm(50000)
	for time.Now().Before(end) {
		rand.Shuffle(len(numbers), func(a, b int) { numbers[a], numbers[b] = numbers[b], numbers[a] })
		sort.Ints(numbers)
	}
}
