package query

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// tokenVersion is the version of page and watch tokens. Tokens of other versions are refused.
const tokenVersion = 1

// maxToken is the maximum length of a token.
const maxToken = 4 << 10

// TokenError reports a token that cannot be used.
type TokenError struct{ message string }

func (e *TokenError) Error() string { return e.message }

type pageToken struct {
	Version   int    `json:"v"`
	Kind      string `json:"k"`
	Query     string `json:"q"` // hash
	Text      string `json:"t,omitempty"`
	At        int64  `json:"a,omitempty"`
	Namespace string `json:"ns"`
	Name      string `json:"n"`
}

type watchToken struct {
	Version  int    `json:"v"`
	Kind     string `json:"k"`
	Instance string `json:"i"`
	Sequence uint64 `json:"s"`
}

func encodeToken(token any) string {
	b, _ := json.Marshal(token) // cannot fail: strings and numbers
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeToken decodes a token of a kind. It checks the version before all else.
func decodeToken(token, kind string, into any) error {
	b, err := base64.RawURLEncoding.DecodeString(token)
	var header struct {
		Version int    `json:"v"`
		Kind    string `json:"k"`
	}
	if len(token) > maxToken || err != nil || json.Unmarshal(b, &header) != nil {
		return &TokenError{fmt.Sprintf("this is not a %s token", kind)}
	}
	if header.Version != tokenVersion {
		return &TokenError{fmt.Sprintf("the %s token has version %d, this principal uses version %d: start again with a new search", kind, header.Version, tokenVersion)}
	}
	if header.Kind != kind || json.Unmarshal(b, into) != nil {
		return &TokenError{fmt.Sprintf("this is not a %s token", kind)}
	}
	return nil
}

func decodePageToken(token, hash string) (*position, error) {
	var t pageToken
	if err := decodeToken(token, "page", &t); err != nil {
		return nil, err
	}
	if t.Query != hash {
		return nil, errOtherQuery
	}
	return &position{text: t.Text, at: t.At, key: Key{t.Namespace, t.Name}}, nil
}
