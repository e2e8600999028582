package resource

import (
	"container/list"
	"crypto/sha256"
	"net/http"
	"sync"
)

// discoveryCache are the last known discovery documents of all agents. A fleet has few releases of Kubernetes, so the same
// documents come back from many agents: a body is kept once, however many have it.
//
// Each agent has a bound, by the size of what it sent, so that none can crowd out others with documents of its own
// making; all together have one, by what is really kept. What was not used for longest goes first.
type discoveryCache struct {
	perAgent, total int

	mu     sync.Mutex
	byKey  map[copyKey]*list.Element // of *document
	byPath map[pathKey][]*cachedDocument
	agents map[string]int // bytes of each
	order  *list.List     // of *document, least recently used first
	bodies map[[sha256.Size]byte]*body
	size   int // bytes of bodies
}

type pathKey struct{ agent, uri string }

type copyKey struct {
	pathKey
	accept string
	gzip   bool
}

// cachedDocument is an answer of an agent.
type cachedDocument struct {
	copyKey
	header http.Header // only what describes the body
	body   *body
}

// body is what one or more documents hold.
type body struct {
	sum   [sha256.Size]byte
	bytes []byte
	users int
}

// overhead is what an entry takes beside its body, roughly.
const overhead = 1 << 10

func newCopies(perAgent, total int) *discoveryCache {
	return &discoveryCache{
		perAgent: perAgent, total: total,
		byKey: map[copyKey]*list.Element{}, byPath: map[pathKey][]*cachedDocument{}, agents: map[string]int{},
		order: list.New(), bodies: map[[sha256.Size]byte]*body{},
	}
}

// put remembers a document in the place of an older one.
func (c *discoveryCache) put(key copyKey, header http.Header, content []byte) {
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
	d := &cachedDocument{copyKey: key, header: header, body: b}
	c.byKey[key] = c.order.PushBack(d)
	c.byPath[key.pathKey] = append(c.byPath[key.pathKey], d)
	c.agents[key.agent] += cost
	c.size += overhead
	for c.agents[key.agent] > c.perAgent { // first, so that only what is left counts against others
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
	delete(c.byKey, d.copyKey)
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

// find returns the document that answers a request best: the answer to the same request; else one whose type the caller
// accepts, in the caller's order.
func (c *discoveryCache) find(key copyKey) *cachedDocument {
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
				c.order.MoveToBack(c.byKey[d.copyKey])
				return d
			}
		}
	}
	return nil
}
