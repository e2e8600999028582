package resource

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// keptHeaders describe a document. Others describe the answer in which it came.
var keptHeaders = []string{"Content-Type", "Content-Encoding", "Etag", "Last-Modified", "Vary", "Cache-Control"}

func keyOf(agent string, r *http.Request) copyKey {
	uri := strings.TrimSuffix(r.URL.Path, "/")
	if query := r.URL.Query(); len(query) > 0 {
		query.Del("timeout") // client-go says how long it waits; the answer is the same
		uri += "?" + query.Encode()
	}
	uri = strings.TrimSuffix(uri, "?")
	return copyKey{
		pathKey: pathKey{agent: agent, uri: uri},
		accept:  strings.Join(r.Header.Values("Accept"), ","),
		gzip:    acceptsGzip(r.Header),
	}
}

func acceptsGzip(header http.Header) bool {
	for _, value := range header.Values("Accept-Encoding") {
		for coding := range strings.SplitSeq(value, ",") {
			name, parameters, _ := strings.Cut(coding, ";")
			if strings.EqualFold(strings.TrimSpace(name), "gzip") && strings.ReplaceAll(parameters, " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}

// mediaTypes splits an Accept header, and brings each type into the form of mediaType.
func mediaTypes(accept string) []string {
	var types []string
	for one := range strings.SplitSeq(accept, ",") {
		if one = mediaType(one); one != "" {
			types = append(types, one)
		}
	}
	if len(types) == 0 {
		types = []string{"*/*"}
	}
	return types
}

// mediaType is a type with the parameters that make it another type of document, in order: discovery comes in several
// that are all called application/json.
func mediaType(value string) string {
	parts := strings.Split(strings.ToLower(value), ";")
	var parameters []string
	for _, p := range parts[1:] {
		p = strings.TrimSpace(p)
		if name, _, _ := strings.Cut(p, "="); name == "g" || name == "v" || name == "as" {
			parameters = append(parameters, p)
		}
	}
	slices.Sort(parameters)
	return strings.Join(append([]string{strings.TrimSpace(parts[0])}, parameters...), ";")
}

// has tells that there is a document with which a request could be answered.
func (c *discoveryCache) has(agent string, r *http.Request) bool {
	return c.find(keyOf(agent, r)) != nil
}

// capture remembers an answer once it has passed as a whole.
func (c *discoveryCache) capture(agent string, res *http.Response) {
	encoding := res.Header.Get("Content-Encoding")
	if res.StatusCode != http.StatusOK || res.Request.Method != http.MethodGet || encoding != "" && encoding != "gzip" ||
		res.ContentLength > int64(c.perAgent) {
		return
	}
	header := http.Header{}
	for _, name := range keptHeaders {
		if values := res.Header.Values(name); len(values) > 0 {
			header[name] = slices.Clone(values)
		}
	}
	res.Body = &capturedBody{
		ReadCloser: res.Body, length: res.ContentLength, limit: c.perAgent,
		done: func(content []byte) { c.put(keyOf(agent, res.Request), header, content) },
	}
}

// capturedBody keeps what is read of a body, as long as that is not too much, and hands it over at the end.
type capturedBody struct {
	io.ReadCloser
	length int64
	limit  int
	buffer []byte
	done   func([]byte)
}

func (b *capturedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.done == nil {
		return n, err
	}
	if len(b.buffer)+n > b.limit {
		b.buffer, b.done = nil, nil
		return n, err
	}
	b.buffer = append(b.buffer, p[:n]...)
	if err == io.EOF || b.length >= 0 && int64(len(b.buffer)) == b.length {
		b.done(slices.Clip(b.buffer))
		b.buffer, b.done = nil, nil
	}
	return n, err
}

// serve answers with the last known copy, if there is one, and says why.
func (c *discoveryCache) serve(w http.ResponseWriter, r *http.Request, agent, why string) bool {
	d := c.find(keyOf(agent, r))
	if d == nil {
		return false
	}
	content := d.body.bytes
	plain := d.header.Get("Content-Encoding") == "gzip" && !acceptsGzip(r.Header)
	if plain {
		var err error
		if content, err = gunzip(content, 8*c.perAgent); err != nil {
			return false
		}
	}
	header := w.Header()
	for name, values := range d.header {
		header[name] = slices.Clone(values)
	}
	if plain {
		header.Del("Content-Encoding")
	}
	header.Set("Warning", fmt.Sprintf(`299 argocd-agent %s`, strconv.QuoteToASCII(why+"; this is the last known copy")))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return true
}

func gunzip(content []byte, limit int) ([]byte, error) {
	reader, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(reader, int64(limit)+1))
	if err == nil && len(plain) > limit {
		err = fmt.Errorf("a document is larger than %d bytes", limit)
	}
	return plain, err
}
