package search

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/argocd-agent/argocd-agent/internal/fleet"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/query"
	"github.com/argocd-agent/argocd-agent/internal/util/backoff"
)

// caller is an authenticated client.
type caller struct {
	user kube.User
	// only is the Application for which argocd-server sent the request. If nil, the caller is a user of the API server.
	only    *query.Key
	project string // of only
}

// id identifies a caller for limits and remembered answers.
func (c caller) id() string {
	b, _ := json.Marshal([]any{c.user, c.only != nil}) // cannot fail: strings
	return string(b)
}

// httpError is a response without a result.
type httpError struct {
	code    int
	message string
}

func (e *httpError) Error() string { return e.message }

// reviewer is the API server as access needs it.
type reviewer interface {
	ReviewToken(ctx context.Context, token string) (kube.User, bool, error)
	ReviewAccess(ctx context.Context, user kube.User, access kube.Access) (bool, error)
	Get(ctx context.Context, ref kind.Ref) (*kind.Object, error)
}

// access authenticates callers and decides what they may see.
type access struct {
	api       reviewer
	namespace string
	extension *Extension
	tokens    *cache[kube.User] // without a name if the token is invalid
	rights    *cache[bool]
	reviews   chan struct{} // limits concurrent reviews of tokens

	mu  sync.Mutex
	cas *x509.CertPool // of client certificates; nil if they are not known
}

const (
	reviewTTL          = 10 * time.Second
	maxTokens          = 4096
	maxRights          = 1 << 16
	maxReviews         = 8
	maxToken           = 16 << 10
	reviewTimeout      = 10 * time.Second
	clientCAInterval   = time.Minute
	maxReviewedNames   = 256 // namespaces or agents, for a caller without a right to all of them
	authenticatedGroup = "system:authenticated"
)

func newAccess(cfg Config) *access {
	return &access{api: cfg.Client, namespace: cfg.Namespace, extension: cfg.Extension, tokens: newCache[kube.User](maxTokens, reviewTTL), rights: newCache[bool](maxRights, reviewTTL),
		reviews: make(chan struct{}, maxReviews)}
}

var errNoCredentials = &httpError{http.StatusUnauthorized, "no valid credentials: send a token of the hub's API server as Authorization: Bearer, or a client certificate that the API server accepts"}

// authenticate returns the caller of a request.
func (a *access) authenticate(ctx context.Context, r *http.Request) (caller, error) {
	if secret := r.Header.Get(extensionHeader); secret != "" {
		return a.extension.authenticate(r, secret)
	}
	for header := range r.Header {
		if strings.HasPrefix(header, "Impersonate-") { // the caller would see more than the user that it names
			return caller{}, &httpError{http.StatusBadRequest, "impersonation is not supported: use the credentials of that user"}
		}
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok && token != "" {
		if len(token) > maxToken {
			return caller{}, errNoCredentials
		}
		user, err := a.tokens.get(sha256.Sum256([]byte(token)), time.Now(), func() (kube.User, error) { return a.reviewToken(ctx, token) })
		if err != nil {
			return caller{}, err
		}
		if user.Name == "" {
			return caller{}, errNoCredentials
		}
		return caller{user: user}, nil
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return a.authenticateCertificate(r.TLS.PeerCertificates)
	}
	return caller{}, errNoCredentials
}

// authenticateAgain returns a function that authenticates the caller of a long request again after reviewTTL.
func (a *access) authenticateAgain(r *http.Request, c caller) func(context.Context) error {
	at := time.Now()
	return func(ctx context.Context) error {
		if time.Since(at) < reviewTTL {
			return nil
		}
		at = time.Now()
		if again, err := a.authenticate(ctx, r); err != nil || again.id() != c.id() {
			return errNoCredentials
		}
		return nil
	}
}

func (a *access) reviewToken(ctx context.Context, token string) (kube.User, error) {
	select {
	case a.reviews <- struct{}{}:
		defer func() { <-a.reviews }()
	case <-ctx.Done():
		return kube.User{}, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	user, ok, err := a.api.ReviewToken(ctx, token)
	if !ok {
		user = kube.User{}
	}
	return user, err
}

// authenticateCertificate accepts a certificate of the CA with which the API server verifies its clients.
func (a *access) authenticateCertificate(chain []*x509.Certificate) (caller, error) {
	a.mu.Lock()
	cas := a.cas
	a.mu.Unlock()
	if cas == nil {
		return caller{}, &httpError{http.StatusUnauthorized, "the principal cannot verify client certificates: send a token, or allow the principal to read ConfigMap extension-apiserver-authentication in namespace kube-system"}
	}
	options := x509.VerifyOptions{Roots: cas, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(options); err != nil || chain[0].Subject.CommonName == "" {
		return caller{}, errNoCredentials
	}
	groups := append(slices.Clone(chain[0].Subject.Organization), authenticatedGroup)
	return caller{user: kube.User{Name: chain[0].Subject.CommonName, Groups: groups}}, nil
}

// clientCARef is where the API server publishes the CA of its clients.
var clientCARef = kind.Ref{Resource: kind.ConfigMaps, Namespace: "kube-system", Name: "extension-apiserver-authentication"}

// refreshClientCA reads the CA of client certificates until ctx ends. Without permission, callers need tokens.
func (a *access) refreshClientCA(ctx context.Context) {
	for {
		if o, err := a.api.Get(ctx, clientCARef); err == nil && o != nil {
			a.setClientCA(o)
		}
		if !backoff.Sleep(ctx, clientCAInterval) {
			return
		}
	}
}

func (a *access) setClientCA(o *kind.Object) {
	var data map[string]string
	var pool *x509.CertPool
	if json.Unmarshal(o.Get("data"), &data) == nil {
		if p := x509.NewCertPool(); p.AppendCertsFromPEM([]byte(data["client-ca-file"])) {
			pool = p
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cas = pool
}

// scope returns what a caller may see of a snapshot. The query can restrict which names must be reviewed.
func (a *access) scope(ctx context.Context, c caller, s query.Snapshot, q query.Query) (query.Scope, error) {
	if c.only != nil {
		project := func(p string) bool { return p == c.project }
		return query.Scope{Namespace: query.Any, Project: project, Agent: query.Any, Only: c.only}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	applications := kube.Access{Verb: "list", Group: kind.Applications.Group, Resource: kind.Applications.Plural}
	inNamespace := func(name string) kube.Access {
		one := applications
		one.Namespace = name
		return one
	}
	namespaces, err := a.allowed(ctx, c, applications, inNamespace, restrict(s.Namespaces(), q, "namespace"), "namespace")
	if err != nil {
		return query.Scope{}, err
	}
	if namespaces.none() {
		return query.Scope{}, &httpError{http.StatusForbidden, fmt.Sprintf("user %q cannot list Applications in any of these namespaces", c.user.Name)}
	}
	agents, err := a.agents(ctx, c, restrict(s.AgentsIn(namespaces.has), q, "agent")) // Applications without an agent remain
	if err != nil {
		return query.Scope{}, err
	}
	return query.Scope{Namespace: namespaces.has, Project: query.Any, Agent: agents.has}, nil
}

// agents returns which of these agents a caller may see.
func (a *access) agents(ctx context.Context, c caller, names []string) (visible, error) {
	agents := kube.Access{Verb: "list", Group: fleet.AgentResource.Group, Resource: fleet.AgentResource.Plural, Namespace: a.namespace}
	byName := func(name string) kube.Access {
		one := agents
		one.Verb, one.Name = "get", name
		return one
	}
	return a.allowed(ctx, c, agents, byName, names, "agent")
}

// visible are the names that a caller may see.
type visible struct {
	all   bool
	names map[string]bool // if not all
}

func (v visible) has(name string) bool { return v.all || v.names[name] }
func (v visible) none() bool           { return !v.all && len(v.names) == 0 }

// restrict returns the names to which a query restricts a field.
func restrict(names []string, q query.Query, field string) []string {
	exact, ok := q.Exact(field)
	if !ok {
		return names
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !slices.ContainsFunc(exact, func(want string) bool { return strings.EqualFold(want, name) })
	})
}

// allowed returns for which names a caller has a right.
func (a *access) allowed(ctx context.Context, c caller, all kube.Access, one func(string) kube.Access, names []string, what string) (visible, error) {
	if ok, err := a.reviewAccess(ctx, c, all); err != nil || ok {
		return visible{all: ok}, err
	}
	if len(names) > maxReviewedNames {
		return visible{}, &httpError{http.StatusForbidden, fmt.Sprintf("user %q has no right to all of them, and there are too many names to check one by one: add %s=NAME to the query", c.user.Name, what)}
	}
	results := make([]bool, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReviews)
	for i, name := range names {
		group.Go(func() (err error) {
			results[i], err = a.reviewAccess(ctx, c, one(name))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return visible{}, err
	}
	seen := map[string]bool{}
	for i, name := range names {
		if results[i] {
			seen[name] = true
		}
	}
	return visible{names: seen}, nil
}

func (a *access) reviewAccess(ctx context.Context, c caller, access kube.Access) (bool, error) {
	key, err := json.Marshal([]any{c.user, access})
	if err != nil {
		return false, err
	}
	return a.rights.get(sha256.Sum256(key), time.Now(), func() (bool, error) { return a.api.ReviewAccess(ctx, c.user, access) })
}

// Headers of argocd-server's extension proxy. It sets all but the first itself, so that a browser cannot choose them.
const (
	extensionHeader   = "Argocd-Agent-Extension" // the shared secret
	applicationHeader = "Argocd-Application-Name"
	projectHeader     = "Argocd-Project-Name"
	usernameHeader    = "Argocd-Username"
)

// minSecret is the minimum length of the shared secret.
const minSecret = 32

// Extension authenticates argocd-server with a secret that only it and the principal know. argocd-server adds the secret
// to the requests of its extension proxy, after it has checked that the user may get the Application.
type Extension struct {
	mu     sync.Mutex
	secret []byte
}

// Load reads the secret from the data of a Secret.
func (e *Extension) Load(data map[string][]byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.secret = nil
	if data == nil {
		return errors.New("Secret not found")
	}
	secret := bytes.TrimSpace(data["token"]) // as argocd-server reads it
	if len(secret) < minSecret {
		return fmt.Errorf("token has fewer than %d bytes", minSecret)
	}
	e.secret = secret
	return nil
}

// authenticate returns argocd-server as a caller that may see the Application of its request.
func (e *Extension) authenticate(r *http.Request, secret string) (caller, error) {
	if !e.is(secret) {
		return caller{}, errNoCredentials
	}
	namespace, name, ok := strings.Cut(r.Header.Get(applicationHeader), ":")
	if project := r.Header.Get(projectHeader); ok && namespace != "" && name != "" && project != "" {
		user := kube.User{Name: r.Header.Get(usernameHeader)}
		return caller{user: user, only: &query.Key{Namespace: namespace, Name: name}, project: project}, nil
	}
	return caller{}, &httpError{http.StatusBadRequest, "the request of argocd-server has no Application and project"}
}

func (e *Extension) is(secret string) bool {
	if e == nil {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.secret) > 0 && subtle.ConstantTimeCompare(e.secret, []byte(secret)) == 1
}
