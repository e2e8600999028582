package resource

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// maskPrefix begins every mask. Its length makes its encoding a prefix too.
const maskPrefix = "hidden by argocd-agent: "

var encodedMaskPrefix = base64.StdEncoding.EncodeToString([]byte(maskPrefix))

const (
	maxSecretBody  = 4 << 20  // API servers take 3 MiB
	maxSecretFrame = 64 << 20 // one object, one event of a watch, one list
)

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// masks hides the values of Secrets in answers. A mask is a keyed hash of the value: equal values have equal masks, so
// that comparisons still work, and nobody can find a value by trying.
type masks struct{ key []byte }

// prepare makes sure that the answer to a request for Secrets is one that can be read, and that no mask is ever written
// in the place of the value which it hides.
func (m *masks) prepare(r *http.Request) *Status {
	r.Header.Set("Accept", acceptJSON(r.Header.Values("Accept")))
	r.Header.Del("Accept-Encoding")
	if hasNoBody(r) || r.Method == http.MethodDelete {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSecretBody+1))
	switch {
	case err != nil:
		return badRequest("the body of the request broke off: " + err.Error())
	case len(body) > maxSecretBody:
		return refusal(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", fmt.Sprintf("a Secret is larger than %d bytes", maxSecretBody))
	case bytes.Contains(body, []byte(encodedMaskPrefix)), bytes.Contains(body, []byte(maskPrefix)):
		s := refusal(http.StatusUnprocessableEntity, "Invalid",
			"the Secret holds a mask in the place of a value: values are hidden by the agent's setting "+SettingSecrets+", and cannot be written back")
		s.setting = SettingSecrets
		return s
	case r.Method == http.MethodPatch && movesValues(r.Header.Get("Content-Type"), body):
		s := refusal(http.StatusForbidden, "Forbidden",
			"a patch of a Secret may add, remove, replace and test, but not copy or move: values are hidden by the agent's setting "+SettingSecrets+", and shall not be led to where they are not")
		s.setting = SettingSecrets
		return s
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// movesValues tells that a patch could bring a value to where it is not hidden, such as an annotation. Only JSON patches
// can: the others set what they contain.
func movesValues(contentType string, body []byte) bool {
	if kind, _, err := mime.ParseMediaType(contentType); err == nil && kind != "application/json-patch+json" {
		return false
	}
	var steps []map[string]json.RawMessage // as API servers read it: names of fields have one spelling, the last one counts
	if json.Unmarshal(body, &steps) != nil {
		return true
	}
	for _, step := range steps {
		var operation string
		if json.Unmarshal(step["op"], &operation) != nil {
			return true
		}
		switch operation {
		case "add", "remove", "replace", "test":
		default:
			return true
		}
	}
	return false
}

// acceptJSON leaves of what a caller accepts only what we can read.
func acceptJSON(values []string) string {
	var kept []string
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if one = strings.TrimSpace(one); strings.HasPrefix(strings.ToLower(one), "application/json") {
			kept = append(kept, one)
		}
	}
	if len(kept) == 0 {
		return "application/json"
	}
	return strings.Join(kept, ",")
}

// maskResponse hides the values in an answer.
func (m *masks) maskResponse(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		_ = res.Body.Close()
		return errors.New("the API server offers Secrets on an upgraded connection, where they cannot be hidden")
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || res.Header.Get("Content-Encoding") != "" {
		if res.ContentLength == 0 || res.StatusCode == http.StatusNotModified || kind == "text/plain" && res.StatusCode >= 400 {
			return nil
		}
		return fmt.Errorf("the API server sent Secrets as %q, in which they cannot be hidden", res.Header.Get("Content-Type"))
	}
	if res.Request.Method == http.MethodHead {
		return nil
	}
	frame := &frameReader{Reader: res.Body}
	res.Body = &maskedBody{Closer: res.Body, masks: m, frame: frame, decoder: json.NewDecoder(frame)}
	res.ContentLength = -1
	res.Header.Del("Content-Length")
	return nil
}

// maskedBody reads one JSON document after another and passes them on without the values.
type maskedBody struct {
	io.Closer
	masks   *masks
	frame   *frameReader
	decoder *json.Decoder
	ready   []byte
}

var newline = []byte{'\n'} // as the API server ends its documents

func (b *maskedBody) Read(p []byte) (int, error) {
	if len(b.ready) == 0 {
		var document json.RawMessage
		b.frame.size = 0
		if err := b.decoder.Decode(&document); err != nil {
			return 0, err
		}
		covered, err := b.masks.document(document)
		if err != nil {
			return 0, err
		}
		b.ready = slices.Concat(covered, newline)
	}
	n := copy(p, b.ready)
	b.ready = b.ready[n:]
	return n, nil
}

// frameReader bounds what one document takes.
type frameReader struct {
	io.Reader
	size int
}

func (r *frameReader) Read(p []byte) (int, error) {
	if r.size > maxSecretFrame {
		return 0, fmt.Errorf("a list of Secrets is larger than %d bytes: ask for it in parts", maxSecretFrame)
	}
	n, err := r.Reader.Read(p)
	r.size += n
	return n, err
}

// mask is what stands for a value.
func (m *masks) mask(value string) string {
	hash := hmac.New(sha256.New, m.key)
	hash.Write([]byte(value))
	return maskPrefix + hex.EncodeToString(hash.Sum(nil)[:8])
}

// document hides the values in a Secret, a list of them, a table of them, or an event of a watch.
func (m *masks) document(b []byte) ([]byte, error) {
	o, err := rawjson.Split(b)
	if err != nil {
		return nil, fmt.Errorf("read a Secret: %w", err)
	}
	if rawjson.Text(b, "kind") == "Status" && repeatsObject(b) {
		return json.Marshal(refusal(http.StatusUnprocessableEntity, "Invalid", "the patch does not fit the Secret; what the API server "+
			"says about it is hidden by the agent's setting "+SettingSecrets+", because it repeats all values"))
	}
	for i := range o {
		switch o[i].Key {
		case "items", "rows":
			o[i].Value, err = m.each(o[i].Value)
		case "object":
			if !rawjson.IsNull(o[i].Value) {
				o[i].Value, err = m.document(o[i].Value)
			}
		case "data":
			o[i].Value, err = m.values(o[i].Value, true)
		case "stringData":
			o[i].Value, err = m.values(o[i].Value, false)
		case "metadata":
			o[i].Value, err = m.metadata(o[i].Value)
		}
		if err != nil {
			return nil, err
		}
	}
	return o.Bytes(), nil
}

// repeatsObject tells the refusal in which an API server shows the whole object as it would be after a patch.
func repeatsObject(status []byte) bool {
	if strings.Contains(rawjson.Text(status, "message"), "patch: Invalid value") {
		return true
	}
	causes, err := rawjson.Elements(rawjson.Get(status, "details", "causes"))
	return err == nil && slices.ContainsFunc(causes, func(cause []byte) bool { return rawjson.Text(cause, "field") == "patch" })
}

func (m *masks) each(list []byte) ([]byte, error) {
	if rawjson.IsNull(list) {
		return list, nil
	}
	elements, err := rawjson.Elements(list)
	if err != nil {
		return nil, fmt.Errorf("read a list of Secrets: %w", err)
	}
	for i := range elements {
		if elements[i], err = m.document(elements[i]); err != nil {
			return nil, err
		}
	}
	return rawjson.Join(elements), nil
}

func (m *masks) values(b []byte, encoded bool) ([]byte, error) {
	if rawjson.IsNull(b) {
		return b, nil
	}
	o, err := rawjson.Split(b)
	if err != nil {
		return nil, fmt.Errorf("read the values of a Secret: %w", err)
	}
	for i := range o {
		value, isText := rawjson.String(o[i].Value)
		if isText && strings.Trim(value, "+") == "" {
			continue // nothing to hide: empty, or what Argo CD has hidden, of which a server-side diff is made
		}
		if encoded { // so that data and stringData of equal content look alike
			if plain, err := base64.StdEncoding.DecodeString(value); err == nil {
				value = string(plain)
			}
			o[i].Value = rawjson.Quote(base64.StdEncoding.EncodeToString([]byte(m.mask(value))))
			continue
		}
		o[i].Value = rawjson.Quote(m.mask(value))
	}
	return o.Bytes(), nil
}

// metadata hides the copy of the values that kubectl keeps in an annotation.
func (m *masks) metadata(b []byte) ([]byte, error) {
	applied := rawjson.Text(b, "annotations", lastApplied)
	if applied == "" {
		return b, nil
	}
	covered, err := m.document([]byte(applied))
	if err != nil { // not kubectl's
		covered = []byte(m.mask(applied))
	}
	return rawjson.Set(b, rawjson.Quote(string(covered)), "annotations", lastApplied)
}
