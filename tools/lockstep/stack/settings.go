package stack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockstep-cd/lockstep/pkg/bus"
	"github.com/lockstep-cd/lockstep/pkg/bus/authority"
	"github.com/lockstep-cd/lockstep/pkg/clock"
	"github.com/lockstep-cd/lockstep/pkg/testkit/port"
)

// settings are what a data folder keeps from run to run: where its processes listen, and the passwords among them.
type settings struct {
	// ID distinguishes this stack's schemas from those of others on a PostgreSQL server that they share.
	ID string `json:"id"`
	// Token opens every door that a user of the stack knocks at: GraphQL, the registry's HTTP, gRPC, Git.
	Token string `json:"token"`
	// Passwords of NATS users, by user.
	Passwords map[string]string `json:"passwords"`
	// Authority is the seed of who says which agents may connect to NATS. RelayPublic and RelaySeed are the relay's key.
	Authority   string `json:"authority"`
	RelayPublic string `json:"relay_public"`
	RelaySeed   string `json:"relay_seed"`
	// Ports by what listens there.
	Ports map[string]int `json:"ports"`
}

// natsUsers are the accounts that the services sign in with.
func natsUsers() []string {
	return []string{bus.UserRegistry, bus.UserDomain, bus.UserWorkflow}
}

// openSettings reads the settings of a data folder, or makes them. The ports are reserved for as long as the reservation
// lasts: another stack on this machine does not take them while one of our processes is being started again.
func openSettings(ctx context.Context, c clock.Clock, dir string) (settings, *port.Reservation, error) {
	path := filepath.Join(dir, "settings.json")
	text, err := os.ReadFile(path)
	if err == nil {
		var s settings
		if err := json.Unmarshal(text, &s); err != nil {
			return settings{}, nil, fmt.Errorf("read %s: %w", path, err)
		}
		if s.Authority == "" { // a folder of a time when the relay had a password
			if err := errors.Join(s.makeKeys(), writeJSON(path, s)); err != nil {
				return settings{}, nil, err
			}
		}
		r, err := reserve(ctx, c, s.Ports)
		if err != nil {
			return settings{}, nil, fmt.Errorf("%w; stop what uses it, or remove %s to have new ones chosen", err, path)
		}
		return s, r, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return settings{}, nil, fmt.Errorf("read settings: %w", err)
	}
	ports, r, err := port.ChooseFor(portNames()...)
	if err != nil {
		return settings{}, nil, err
	}
	s := settings{ID: strings.ToLower(rand.Text()[:8]), Token: rand.Text() + rand.Text(), Passwords: map[string]string{}, Ports: ports}
	for _, user := range natsUsers() {
		s.Passwords[user] = rand.Text()
	}
	if err := errors.Join(s.makeKeys(), writeJSON(path, s)); err != nil {
		r.Release()
		return settings{}, nil, err
	}
	return s, r, nil
}

// makeKeys makes what agents are known by.
func (s *settings) makeKeys() (err error) {
	if s.Authority, err = authority.NewSeed(); err != nil {
		return fmt.Errorf("make settings: %w", err)
	}
	if s.RelayPublic, s.RelaySeed, err = bus.NewKey(); err != nil {
		return fmt.Errorf("make settings: %w", err)
	}
	return nil
}

// writeJSON replaces a file at once, for the eyes of this account only: it has passwords in it.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", filepath.Base(path), err)
	}
	return writeFile(path, append(text, '\n'))
}

func writeFile(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".writing-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), errors.Join(err, os.Remove(f.Name())))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
