package credential

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstep-cd/lockstep/pkg/fault"
	"github.com/lockstep-cd/lockstep/tools/lockstep/client"
)

// sshKey are the flags of a private key of SSH.
type sshKey struct{ file, knownHosts string }

func (k *sshKey) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&k.file, "ssh-key", "", "of git: the `file` that has a private key of SSH, which is the value; - for standard input")
	cmd.Flags().StringVar(&k.knownHosts, "known-hosts", "", "with --ssh-key: a `file` with the servers that are trusted, in lines of known_hosts or by fingerprints (SHA256:…)")
}

// read is that the value is a key; nil for another value. A reference to a key has --known-hosts without --ssh-key.
func (k *sshKey) read(cmd *cobra.Command, v *value) (*client.CredentialSSHKey, error) {
	given := cmd.Flags().Changed("ssh-key")
	if !given && !cmd.Flags().Changed("known-hosts") {
		if v.passphrase != "" {
			return nil, fault.New(fault.Invalid, "found --passphrase-file without --ssh-key; expected both, or neither")
		}
		return nil, nil //nolint:nilnil // none is no error
	}
	if given && (v.reference != "" || cmd.Flags().Changed("value-file")) {
		return nil, fault.New(fault.Invalid, "found --ssh-key with --value-file or --reference; expected one of them")
	}
	if given {
		v.file = strings.TrimPrefix(k.file, "@")
	}
	if k.knownHosts == "" {
		return nil, fault.New(fault.Invalid, "found no --known-hosts; expected a file with the keys of the servers: no server is trusted because it answers first")
	}
	known, err := textOf("known-hosts", strings.TrimPrefix(k.knownHosts, "@"), "lines of known_hosts, or fingerprints (SHA256:…)")
	if err != nil {
		return nil, err
	}
	return &client.CredentialSSHKey{KnownHosts: known}, nil
}
