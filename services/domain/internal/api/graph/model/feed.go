package model

import (
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/lockstep-cd/lockstep/services/domain/internal/core/feed"
)

// Feed is the domain's.
type Feed struct {
	Name       string
	Kind       feed.Kind
	Author     string
	CreatedAt  time.Time
	LastReadAt *time.Time
}

// WrapFeed makes one of the domain's.
func WrapFeed(f feed.Feed) Feed {
	return Feed{Name: f.Name, Kind: f.Kind, Author: f.Author.Name, CreatedAt: f.CreatedAt, LastReadAt: f.LastReadAt}
}

// Badges are the domain's, with the address of the pictures.
type Badges struct {
	Application string
	Enabled     bool
	URL, Author string
	ChangedAt   time.Time
}

// MarshalFeedKind writes a kind.
func MarshalFeedKind(k feed.Kind) graphql.Marshaler { return word(string(k)) }

// UnmarshalFeedKind reads a kind.
func UnmarshalFeedKind(v any) (feed.Kind, error) { return enum(v, feed.AllKinds()...) }
