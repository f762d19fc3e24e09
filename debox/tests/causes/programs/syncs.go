// SPDX-License-Identifier: MIT OR Apache-2.0

// Keeps a journal: each entry is on the disk before the next.
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
	file, err := os.Create(filepath.Join(os.Args[2], "journal"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for i := 0; time.Now().Before(end); i++ {
		fmt.Fprintln(file, "something", i)
		file.Sync()
	}
}
