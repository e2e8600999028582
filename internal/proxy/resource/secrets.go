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

// masks replaces the values of Secrets in responses by keyed hashes. Equal values have equal masks, so that comparisons
// work. Without the key, a value cannot be found by trying.
type masks struct{ key []byte }

// prepare makes sure that the response can be parsed, and rejects requests that would write a mask as a value.
func (m *masks) prepare(r *http.Request) *Status {
	r.Header.Set("Accept", acceptJSON(r.Header.Values("Accept")))
	r.Header.Del("Accept-Encoding")
	if hasNoBody(r) || r.Method == http.MethodDelete {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxSecretBody+1))
	switch {
	case err != nil:
		return badRequest("read request body: " + err.Error())
	case len(body) > maxSecretBody:
		return newStatus(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", fmt.Sprintf("a Secret is larger than %d bytes", maxSecretBody))
	case bytes.Contains(body, []byte(encodedMaskPrefix)), bytes.Contains(body, []byte(maskPrefix)):
		s := newStatus(http.StatusUnprocessableEntity, "Invalid",
			"the Secret has a mask instead of a value: values are masked by the agent's setting "+SettingSecrets+" and cannot be written back")
		s.setting = SettingSecrets
		return s
	case r.Method == http.MethodPatch && movesValues(r.Header.Get("Content-Type"), body):
		s := newStatus(http.StatusForbidden, "Forbidden",
			"a patch of a Secret must not copy or move values: they are masked by the agent's setting "+SettingSecrets)
		s.setting = SettingSecrets
		return s
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// movesValues reports whether a patch could copy a value to where it is not masked, such as an annotation. Only JSON
// patches can.
func movesValues(contentType string, body []byte) bool {
	if kind, _, err := mime.ParseMediaType(contentType); err == nil && kind != "application/json-patch+json" {
		return false
	}
	var steps []map[string]json.RawMessage // as API servers parse it: case-sensitive, the last duplicate counts
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

// acceptJSON keeps only JSON types of an Accept header.
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

// maskResponse masks the values in a response.
func (m *masks) maskResponse(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		_ = res.Body.Close()
		return errors.New("API server offers Secrets on an upgraded connection, where they cannot be masked")
	}
	kind, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || res.Header.Get("Content-Encoding") != "" {
		if res.ContentLength == 0 || res.StatusCode == http.StatusNotModified || kind == "text/plain" && res.StatusCode >= 400 {
			return nil
		}
		return fmt.Errorf("API server sent Secrets as %q, which cannot be masked", res.Header.Get("Content-Type"))
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

// maskedBody masks a stream of JSON documents.
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

// frameReader bounds the size of one document.
type frameReader struct {
	io.Reader
	size int
}

func (r *frameReader) Read(p []byte) (int, error) {
	if r.size > maxSecretFrame {
		return 0, fmt.Errorf("a list of Secrets is larger than %d bytes: use pages", maxSecretFrame)
	}
	n, err := r.Reader.Read(p)
	r.size += n
	return n, err
}

func (m *masks) mask(value string) string {
	hash := hmac.New(sha256.New, m.key)
	hash.Write([]byte(value))
	return maskPrefix + hex.EncodeToString(hash.Sum(nil)[:8])
}

// document masks the values in a Secret, a list, a table or a watch event.
func (m *masks) document(b []byte) ([]byte, error) {
	o, err := rawjson.Split(b)
	if err != nil {
		return nil, fmt.Errorf("parse Secret: %w", err)
	}
	if rawjson.Text(b, "kind") == "Status" && repeatsObject(b) {
		return json.Marshal(newStatus(http.StatusUnprocessableEntity, "Invalid", "the patch does not fit the Secret; the API server's message "+
			"is hidden by the agent's setting "+SettingSecrets+", because it repeats all values"))
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

// repeatsObject reports whether an error of the API server quotes the whole patched object.
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
		return nil, fmt.Errorf("parse list of Secrets: %w", err)
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
		return nil, fmt.Errorf("parse values of a Secret: %w", err)
	}
	for i := range o {
		value, isText := rawjson.String(o[i].Value)
		if isText && strings.Trim(value, "+") == "" {
			continue // empty, or masked by Argo CD for a server-side diff
		}
		if encoded { // so that equal values in data and stringData have equal masks
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

// metadata masks the values in kubectl's annotation.
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
