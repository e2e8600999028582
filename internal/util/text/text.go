// Package text shortens and compares text from untrusted or talkative sources.
package text

import "strings"

const ellipsis = "..."

// Truncate returns valid UTF-8 of at most limit bytes. If it removes something at the end, it adds "...".
func Truncate(s string, limit int) string {
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit-len(ellipsis)], "") + ellipsis
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// WithoutDigits removes digits, so that messages that differ only in a port or a time compare equal.
func WithoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}
