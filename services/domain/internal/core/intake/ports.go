package intake

import (
	"encoding/json"
)

// Matcher finds the sources that an artifact belongs to.
type Matcher interface {
	// KeyOf is the key of all sources that point at an artifact.
	KeyOf(image string) (string, error)
	// Placement is what a source makes of an artifact of its key, going by the tag. Configurations have passed Key.
	Placement(ref string, config json.RawMessage, tag string) Placement
}

// Placement is what a source makes of artifacts under a tag.
type Placement struct {
	// Taken reports whether they belong to the source.
	Taken bool
	// Rank is how high they are in the order of the selection: a text whose bytes compare as it orders. Of equal rank, the one
	// that was published last is the newest.
	Rank string
	// Earliest reports whether of several publications of one artifact the earliest counts; otherwise the last does.
	Earliest bool
}
