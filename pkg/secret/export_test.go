package secret

import "log/slog"

// InCluster returns a reader in a pod whose account's files are in dir.
func InCluster(host, port, dir string) (*Reader, error) {
	c, err := newCluster(host, port, dir, slog.New(slog.DiscardHandler))
	return &Reader{cluster: c}, err
}
