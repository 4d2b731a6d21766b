package credential

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// D56: what the flags of a key of SSH make of files: the value is the key behind its passphrase, and servers have to be known.
func TestTheFlagsOfAKeyOfSSH(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"key": "KEY\n", "known": "SHA256:x\n", "passphrase": "correct horse\r\n", "two": "a\nb\n", "empty": "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"--ssh-key @key --known-hosts @known":                            "KEY",
		"--ssh-key key --known-hosts known --passphrase-file passphrase": "passphrase: correct horse\nKEY",
		"--value-file key --known-hosts known":                           "KEY",
		"--reference vault:a#b --known-hosts known":                      "vault:a#b",
		"--ssh-key key":                                                   "found no --known-hosts",
		"--ssh-key key --known-hosts empty":                               "found nothing in",
		"--ssh-key key --known-hosts gone":                                "--known-hosts: ",
		"--ssh-key key --known-hosts known --passphrase-file two":         "found several lines",
		"--ssh-key key --known-hosts known --value-file key":              "expected one of them",
		"--ssh-key key --known-hosts known --reference vault:a#b":         "expected one of them",
		"--known-hosts known --reference vault:a#b --passphrase-file two": "expected the passphrase in what it refers to",
		"--value-file key --passphrase-file passphrase":                   "found --passphrase-file without --ssh-key",
	} {
		var k sshKey
		var v value
		cmd := &cobra.Command{}
		k.flags(cmd)
		v.flags(cmd)
		words := strings.Fields(args)
		for i, word := range words {
			if i > 0 && words[i-1] != "--reference" && !strings.HasPrefix(word, "--") {
				at, file := "", word
				if strings.HasPrefix(word, "@") {
					at, file = "@", word[1:]
				}
				words[i] = at + filepath.Join(dir, file)
			}
		}
		if err := cmd.ParseFlags(words); err != nil {
			t.Fatal(err)
		}
		key, err := k.read(cmd, &v)
		got := ""
		if err == nil {
			given, failed := v.read(cmd, time.Unix(0, 0))
			got, err = given.Value+given.Reference, failed
		}
		if err != nil {
			got = err.Error()
		}
		if err == nil && (got != want || key == nil || key.KnownHosts != "SHA256:x\n") || err != nil && !strings.Contains(got, want) {
			t.Errorf("%s: found %q, %+v; want %q", args, got, key, want)
		}
	}
}
