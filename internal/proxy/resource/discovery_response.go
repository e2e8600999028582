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

// cachedHeaders describe a document. Other headers describe the response.
var cachedHeaders = []string{"Content-Type", "Content-Encoding", "Etag", "Last-Modified", "Vary", "Cache-Control"}

func keyOf(agent string, r *http.Request) documentKey {
	uri := strings.TrimSuffix(r.URL.Path, "/")
	if query := r.URL.Query(); len(query) > 0 {
		query.Del("timeout") // does not change the response
		uri += "?" + query.Encode()
	}
	uri = strings.TrimSuffix(uri, "?")
	return documentKey{
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

// mediaTypes splits an Accept header into normalized types.
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

// mediaType normalizes a type. It keeps the parameters that distinguish discovery documents, which are all
// application/json.
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

// has reports whether there is a document for a request.
func (c *discoveryCache) has(agent string, r *http.Request) bool {
	return c.find(keyOf(agent, r)) != nil
}

// capture stores a response when its body was read to the end.
func (c *discoveryCache) capture(agent string, res *http.Response) {
	encoding := res.Header.Get("Content-Encoding")
	if res.StatusCode != http.StatusOK || res.Request.Method != http.MethodGet || encoding != "" && encoding != "gzip" ||
		res.ContentLength > int64(c.perAgent) {
		return
	}
	header := http.Header{}
	for _, name := range cachedHeaders {
		if values := res.Header.Values(name); len(values) > 0 {
			header[name] = slices.Clone(values)
		}
	}
	res.Body = &capturedBody{
		ReadCloser: res.Body, length: res.ContentLength, limit: c.perAgent,
		done: func(content []byte) { c.put(keyOf(agent, res.Request), header, content) },
	}
}

// capturedBody copies a body up to a limit and passes it to done at the end.
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

// serve responds with a cached document and a warning. It returns false if there is none.
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
	header.Set("Warning", fmt.Sprintf(`299 argocd-agent %s`, strconv.QuoteToASCII(why+"; this is a cached response")))
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
