// Command version prints what it was made from.
package main

import (
	"fmt"

	"github.com/lockstep-cd/lockstep/pkg/build"
)

func main() { fmt.Println(build.Read()) }
