package resource

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/internal/trace"
)

// AgentConfig is what an Agent needs. Zero durations mean the default.
type AgentConfig struct {
	Name string // of the agent, for messages

	Server APIServer
	Policy Policy
	Apps   Applications

	// ArgoCD is the namespace of Argo CD here. Who creates something there has the rights of its application controller, so
	// that an Application has objects there, such as other Applications, opens it to no creation.
	ArgoCD string

	// Autonomous says that this cluster decides itself what it deploys. The agent may write Applications, because it has to
	// start a sync; the hub may not, unless the policy opens all, or their namespace.
	Autonomous bool

	// Local maps the name that the hub has for an object to the one that it has here. Nil: they are the same.
	Local func(group, resource, namespace, name string) (localNamespace, localName string)

	// MaskKey makes masks of equal values of Secrets equal across restarts. Empty: a new one with each Agent.
	MaskKey []byte

	// Observe is told of every request when it has ended. It must not wait.
	Observe func(RequestResult)
	Log     *slog.Logger  // nil: silent
	Trace   *trace.Tracer // nil: nothing is traced

	Idle  time.Duration // 2 min: how long a tunnel is kept that the hub does not use; the hub closes its own earlier
	Fresh time.Duration // 10 s: how long the body of a write may be on its way; see fresh
}

func (c *AgentConfig) setDefaults() error {
	if err := c.Policy.Check(); err != nil {
		return err
	}
	if c.Server.URL == nil || c.Server.Common == nil || c.Server.Upgrades == nil {
		return fmt.Errorf("the resource proxy needs an API server")
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
			return fmt.Errorf("make a key for masks: %w", err)
		}
	}
	orDefault(&c.Idle, 2*time.Minute)
	orDefault(&c.Fresh, 10*time.Second)
	return nil
}

// APIServer is an API server, and how it is reached with the agent's credentials.
type APIServer struct {
	URL      *url.URL
	Common   http.RoundTripper
	Upgrades http.RoundTripper // speaks HTTP/1.1 only: HTTP/2 has no upgrades; see chooser
}

// APIServerFor reads it out of a client configuration.
func APIServerFor(config *rest.Config) (APIServer, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0               // would end streams
	config.DisableCompression = true // bodies pass as they are
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return APIServer{}, fmt.Errorf("read the address of the API server: %w", err)
	}
	common, err := rest.TransportFor(config)
	if err != nil {
		return APIServer{}, fmt.Errorf("prepare connections to the API server: %w", err)
	}
	config = rest.CopyConfig(config)
	config.NextProtos = []string{"http/1.1"}
	upgrades, err := rest.TransportFor(config)
	if err != nil {
		return APIServer{}, fmt.Errorf("prepare upgraded connections to the API server: %w", err)
	}
	return APIServer{URL: address, Common: common, Upgrades: upgrades}, nil
}
