// Command image builds the container images of Lockstep without a container engine: it compiles, assembles the layers and writes an OCI
// layout for each, which any tool can push. The same sources give the same digest.
//
//	image -version v1.2.3 -out DIR registry domain workflow relay lockstep
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/lockstep-cd/lockstep/tools/image/assemble"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run() error {
	var r assemble.Recipe
	out := flag.String("out", "", "folder of the OCI layouts, one for each image")
	flag.StringVar(&r.Root, "root", ".", "root of the checkout")
	flag.StringVar(&r.Version, "version", "dev", "what the binaries say that they are")
	flag.StringVar(&r.Commit, "commit", "", "the commit that they are made from")
	flag.StringVar(&r.Architecture, "arch", "amd64", "GOARCH of the binaries")
	flag.Parse()
	if *out == "" || flag.NArg() == 0 {
		return fmt.Errorf("expected -out DIR and the names of images, of %q", assemble.Names())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, name := range flag.Args() {
		image, err := assemble.Image(ctx, r, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		digest, err := assemble.Write(filepath.Join(*out, name), image)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Println(name, digest)
	}
	return nil
}
