package journal

import (
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/pkg/proof"
	"github.com/lockstep-cd/lockstep/pkg/text"
	"github.com/lockstep-cd/lockstep/tools/lockstep/cli/command"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// export writes the sealed journals to a file.
func (c commands) export() *cobra.Command {
	var since, until string
	cmd := c.Asking("export FILE", "Write the sealed journals to a signed file of JSON lines, and verify it; for owners",
		"  lockstep journal export november.jsonl --since 2026-11-01 --until 2026-12-01", command.Exactly(1),
		func(cmd *cobra.Command, api *client.Client, args []string) error {
			now := c.Clock.Now()
			from, err := instant("--since", since, now)
			if err != nil {
				return err
			}
			to, err := instant("--until", until, now)
			if err != nil {
				return err
			}
			file, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
			if err != nil {
				return fault.New(fault.Invalid, "file: %w", err)
			}
			defer func() { _ = file.Close() }()
			if err := api.ExportJournal(cmd.Context(), from, to, file); err != nil {
				return err
			}
			if _, err := file.Seek(0, 0); err != nil {
				return fmt.Errorf("file: %w", err)
			}
			report, err := proof.Verify(file, nil)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprintln(c.Out, text.Lines(report.String()))
			return err
		})
	cmd.Flags().StringVar(&since, "since", "", "only from this `time` on: 2026-11-23, 2026-11-23T10:00:00Z, or how long ago, such as 7d")
	cmd.Flags().StringVar(&until, "until", "", "only before this `time`")
	return cmd
}

// verify verifies such a file, without a server.
func (c commands) verify() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Verify an export of the journals without a server", Args: command.Exactly(1),
		Example: "  lockstep journal verify november.jsonl --key journal.pub.pem",
		RunE: func(_ *cobra.Command, args []string) error {
			var key ed25519.PublicKey
			if keyFile != "" {
				public, err := os.ReadFile(keyFile)
				if err != nil {
					return fault.New(fault.Invalid, "--key: %w", err)
				}
				if key, err = proof.ReadKey(public); err != nil {
					return fault.New(fault.Invalid, "--key: %w", err)
				}
			}
			file, err := os.Open(args[0])
			if err != nil {
				return fault.New(fault.Invalid, "file: %w", err)
			}
			defer func() { _ = file.Close() }()
			report, err := proof.Verify(file, key)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, err = fmt.Fprintln(c.Out, text.Lines(report.String()))
			return err
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "the `file` with the public key, as PEM or base64; without it the file's own key is used")
	return cmd
}
