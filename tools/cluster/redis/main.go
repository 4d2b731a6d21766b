// Command redis is a Redis in memory for Argo CD, which caches in it: redis HOST:PORT.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: redis HOST:PORT")
		os.Exit(2)
	}
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "listen on %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	server.Close()
}
