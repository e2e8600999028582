package resource

import (
	"container/list"
	"crypto/sha256"
	"net/http"
	"sync"
)

// discoveryCache has the last discovery documents of all agents. Many agents have equal documents, so each body is stored
// once.
//
// Each agent has a size limit for what it sent, so that none can evict the documents of others. All together have a limit
// for what is stored. The least recently used document is evicted first.
type discoveryCache struct {
	perAgent, total int

	mu     sync.Mutex
	byKey  map[documentKey]*list.Element // of *document
	byPath map[pathKey][]*cachedDocument
	agents map[string]int // bytes of each
	order  *list.List     // of *document, least recently used first
	bodies map[[sha256.Size]byte]*body
	size   int // bytes of bodies
}

type pathKey struct{ agent, uri string }

type documentKey struct {
	pathKey
	accept string
	gzip   bool
}

// cachedDocument is a response of an agent.
type cachedDocument struct {
	documentKey
	header http.Header // only what describes the body
	body   *body
}

// body is the content of one or more documents.
type body struct {
	sum   [sha256.Size]byte
	bytes []byte
	users int
}

// overhead is the approximate size of an entry without its body.
const overhead = 1 << 10

func newDiscoveryCache(perAgent, total int) *discoveryCache {
	return &discoveryCache{
		perAgent: perAgent, total: total,
		byKey: map[documentKey]*list.Element{}, byPath: map[pathKey][]*cachedDocument{}, agents: map[string]int{},
		order: list.New(), bodies: map[[sha256.Size]byte]*body{},
	}
}

// put stores a document.
func (c *discoveryCache) put(key documentKey, header http.Header, content []byte) {
	cost := len(content) + overhead
	if cost > c.perAgent || cost > c.total || len(key.accept) > overhead || len(key.uri) > overhead {
		return
	}
	sum := sha256.Sum256(content)
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, known := c.byKey[key]; known {
		c.drop(element)
	}
	b := c.bodies[sum]
	if b == nil {
		b = &body{sum: sum, bytes: content}
		c.bodies[sum] = b
		c.size += len(content)
	}
	b.users++
	d := &cachedDocument{documentKey: key, header: header, body: b}
	c.byKey[key] = c.order.PushBack(d)
	c.byPath[key.pathKey] = append(c.byPath[key.pathKey], d)
	c.agents[key.agent] += cost
	c.size += overhead
	for c.agents[key.agent] > c.perAgent { // before the total, so that other agents lose less
		c.dropOldestOf(key.agent)
	}
	for c.size > c.total {
		c.drop(c.order.Front())
	}
}

func (c *discoveryCache) dropOldestOf(agent string) {
	for e := c.order.Front(); e != nil; e = e.Next() {
		if documentIn(e).agent == agent {
			c.drop(e)
			return
		}
	}
}

func documentIn(e *list.Element) *cachedDocument {
	d, _ := e.Value.(*cachedDocument)
	return d
}

func (c *discoveryCache) drop(element *list.Element) {
	d := documentIn(element)
	c.order.Remove(element)
	delete(c.byKey, d.documentKey)
	others := c.byPath[d.pathKey]
	for i := range others {
		if others[i] == d {
			others = append(others[:i:i], others[i+1:]...)
			break
		}
	}
	if len(others) == 0 {
		delete(c.byPath, d.pathKey)
	} else {
		c.byPath[d.pathKey] = others
	}
	if c.agents[d.agent] -= len(d.body.bytes) + overhead; c.agents[d.agent] == 0 {
		delete(c.agents, d.agent)
	}
	c.size -= overhead
	if d.body.users--; d.body.users == 0 {
		delete(c.bodies, d.body.sum)
		c.size -= len(d.body.bytes)
	}
}

// forget drops all documents of an agent.
func (c *discoveryCache) forget(agent string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.order.Front(); e != nil; {
		next := e.Next()
		if documentIn(e).agent == agent {
			c.drop(e)
		}
		e = next
	}
}

// find returns the response to the same request or, if there is none, a document whose type the caller accepts, in the
// caller's order.
func (c *discoveryCache) find(key documentKey) *cachedDocument {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, gzip := range []bool{key.gzip, !key.gzip} {
		exact := key
		exact.gzip = gzip
		if element, known := c.byKey[exact]; known {
			c.order.MoveToBack(element)
			return documentIn(element)
		}
	}
	candidates := c.byPath[key.pathKey]
	for _, accepted := range mediaTypes(key.accept) {
		for _, d := range candidates {
			if accepted == "*/*" || accepted == mediaType(d.header.Get("Content-Type")) {
				c.order.MoveToBack(c.byKey[d.documentKey])
				return d
			}
		}
	}
	return nil
}
