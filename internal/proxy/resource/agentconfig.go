package resource

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/audit"
	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// AgentConfig configures an Agent. Zero durations mean the default.
type AgentConfig struct {
	Name string // of the agent, for messages

	Server APIServer
	Policy Policy
	Apps   Applications

	// ArgoCD is the namespace of Argo CD on this cluster. A user that creates objects there gets the permissions of the
	// application controller. So objects of an Application in this namespace do not permit creation there.
	ArgoCD string

	// Autonomous means that this cluster owns its Applications. The agent can write them, because it starts syncs. The hub
	// cannot, unless the policy opens everything or their namespace.
	Autonomous bool

	// LocalName maps the hub's name of an object to its name on this cluster. If nil, names are equal.
	LocalName func(group, resource, namespace, name string) (localNamespace, localName string)

	// MayImpersonate reports whether requests for objects of an Application may impersonate a ServiceAccount, by user name.
	// If app is empty, any Application counts. If nil, no ServiceAccount can be impersonated.
	MayImpersonate func(ctx context.Context, app, user string) bool

	// Callers is what is done with callers. If empty, CallersIgnored.
	Callers Callers
	// User returns the user name of the agent on this cluster. It is required unless callers are ignored.
	User func(context.Context) (string, error)

	// MaskKey makes masks of equal Secret values equal across restarts. If empty, each Agent generates one.
	MaskKey []byte

	// Observe is called after each request. It must not block.
	Observe func(RequestResult)
	Log     *slog.Logger  // may be nil
	Trace   *trace.Tracer // may be nil
	Audit   *audit.Log    // may be nil

	MaxWriteAge time.Duration // 10 s: how long the body of a write may be delayed; see rejectStaleWrite
}

func (c *AgentConfig) setDefaults() error {
	if err := c.Policy.Check(); err != nil {
		return err
	}
	if c.Server.URL == nil || c.Server.Common == nil || c.Server.Upgrades == nil {
		return errors.New("resource proxy needs an API server")
	}
	if c.User == nil && c.Callers != "" && c.Callers != CallersIgnored {
		return errors.New("resource proxy needs the agent's user name to record callers")
	}
	if c.Apps == nil {
		c.Apps = &Index{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(RequestResult) {}
	}
	if len(c.MaskKey) == 0 {
		c.MaskKey = make([]byte, 32)
		if _, err := rand.Read(c.MaskKey); err != nil {
			return fmt.Errorf("generate mask key: %w", err)
		}
	}
	orDefault(&c.MaxWriteAge, 10*time.Second)
	return nil
}

// APIServer is an API server with transports that have the agent's credentials.
type APIServer struct {
	URL      *url.URL
	Common   http.RoundTripper
	Upgrades http.RoundTripper // HTTP/1.1 only: HTTP/2 has no upgrades; see transportSelector
}

// APIServerFor returns the API server of a client configuration.
func APIServerFor(config *rest.Config) (APIServer, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0               // would end streams
	config.DisableCompression = true // bodies pass as they are
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return APIServer{}, fmt.Errorf("parse address of the API server: %w", err)
	}
	common, err := rest.TransportFor(config)
	if err != nil {
		return APIServer{}, fmt.Errorf("configure connections to the API server: %w", err)
	}
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	upgrades, err := rest.TransportFor(config)
	if err != nil {
		return APIServer{}, fmt.Errorf("configure upgraded connections to the API server: %w", err)
	}
	return APIServer{URL: address, Common: common, Upgrades: upgrades}, nil
}
