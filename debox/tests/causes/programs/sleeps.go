// SPDX-License-Identifier: MIT OR Apache-2.0

// Waits a little longer after each failure.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	fmt.Println("ready")
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	pause := 10 * time.Millisecond
	for time.Now().Before(end) {
		if _, err := os.Stat(filepath.Join(os.Args[2], "not-there")); err == nil {
			return
		}
		time.Sleep(pause)
		if pause < 160*time.Millisecond {
			pause *= 2
		}
	}
}
