// SPDX-License-Identifier: MIT OR Apache-2.0

// Asks a server that takes its time, one request after another.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	fmt.Println("ready")
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for time.Now().Before(end) {
		answer, err := http.Get("http://127.0.0.1:" + os.Args[3] + "/")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}
