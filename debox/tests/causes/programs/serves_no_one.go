// SPDX-License-Identifier: MIT OR Apache-2.0

// A server that no client asks for anything.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

func main() {
	seconds, _ := strconv.ParseFloat(os.Args[1], 64)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	go http.Serve(listener, nil)
	fmt.Println("ready")
	time.Sleep(time.Duration(seconds * float64(time.Second)))
}
