// Command argocd is Argo CD's application controller and its repo server, without the rest of Argo CD, which does not compile together with
// Argo Rollouts. The name of the executable selects one of the two.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	appcontroller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/argoproj/argo-cd/v3/util/askpass"
	"github.com/spf13/cobra"
)

func main() {
	// Otherwise two clusters on one machine would take the socket from each other.
	askpass.SocketPath = filepath.Join(os.TempDir(), "ask-pass.sock")
	var command *cobra.Command
	switch name := filepath.Base(os.Args[0]); name {
	case "argocd-application-controller":
		command = appcontroller.NewCommand()
	case "argocd-repo-server":
		command = reposerver.NewCommand()
	default:
		fmt.Fprintf(os.Stderr, "started as %q, expected argocd-application-controller or argocd-repo-server\n", name)
		os.Exit(2)
	}
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
