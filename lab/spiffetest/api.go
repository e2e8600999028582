// Package spiffetest serves a SPIFFE Workload API for tests, as a SPIRE agent does.
package spiffetest

import (
	"crypto"
	"crypto/x509"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// API is a Workload API without an identity until one is registered.
type API struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	Socket string // its address

	mu      sync.Mutex
	answer  *workload.X509SVIDResponse
	changed chan struct{}
}

// New serves an API until the test ends.
func New(t testing.TB) *API {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	a := &API{Socket: "unix://" + path, changed: make(chan struct{})}
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, a)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return a
}

// Register sets the identity. Federated are the CAs of other trusted trust domains.
func (a *API) Register(t testing.TB, id string, cert *x509.Certificate, key crypto.Signer, ca *x509.Certificate, federated map[string]*x509.Certificate) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	answer := &workload.X509SVIDResponse{
		Svids:            []*workload.X509SVID{{SpiffeId: id, X509Svid: cert.Raw, X509SvidKey: der, Bundle: ca.Raw}},
		FederatedBundles: map[string][]byte{},
	}
	for domain, other := range federated {
		answer.FederatedBundles[domain] = other.Raw
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
	close(a.changed)
	a.changed = make(chan struct{})
}

// FetchX509SVID implements the Workload API.
func (a *API) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	if md, _ := metadata.FromIncomingContext(stream.Context()); len(md.Get("workload.spiffe.io")) == 0 {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	for {
		a.mu.Lock()
		answer, changed := a.answer, a.changed
		a.mu.Unlock()
		if answer == nil {
			return status.Error(codes.PermissionDenied, "no identity issued")
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}
