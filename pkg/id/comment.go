package id

import "fmt"

// What forges count apart from comments: the numbers of comments in reviews, and of reviews, in events about them begin here.
const (
	ReviewComments int64 = 1 << 60
	Reviews        int64 = 1 << 61
)

// OfComment is what people call a comment or a review by its number in events: "review 12".
func OfComment(n int64) string {
	switch {
	case n >= Reviews:
		return fmt.Sprintf("review %d", n-Reviews)
	case n >= ReviewComments:
		return fmt.Sprintf("review comment %d", n-ReviewComments)
	default:
		return fmt.Sprintf("comment %d", n)
	}
}
