package main

import (
	"context"

	"github.com/argocd-agent/argocd-agent/internal/forward"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/live"
	"github.com/argocd-agent/argocd-agent/internal/principal"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

// principalLive configures the live access of Argo CD and kubectl to workload clusters.
type principalLive struct {
	resources    bool
	resourcePort int
	address      string // of the resource proxy, for Argo CD
	certs        certificateSettings
	selfRegister bool
	clientSecret string

	redis       redisSettings
	redisPort   int
	noRedis     bool                // the same as port 0
	redisCerts  certificateSettings // of the Redis proxy; without CA certificates
	compression string
}

var redisProxyFlags = []string{"redis-proxy-server-tls-secret-name", "redis-proxy-server-tls-cert", "redis-proxy-server-tls-key"}

const (
	gzipped      = "gzip"
	uncompressed = "none"
)

func (s *principalLive) declare(f *flags) {
	f.heading("Live access")
	f.add("enable-resource-proxy", boolean(&s.resources, true),
		"Serve objects, logs and exec sessions of workload clusters to Argo CD and kubectl. Argo CD finds the address in its cluster Secrets.")
	f.add("resource-proxy-port", port(&s.resourcePort, 9090), "Port of the resource proxy.")
	f.add("resource-proxy-address", text(&s.address, "HOST:PORT", "argocd-agent-resource-proxy:9090"),
		"Address of the resource proxy for Argo CD. It is the server in the cluster Secrets.")
	s.certs.declare(f, proxyCertificates)
	f.add("enable-self-cluster-registration", boolean(&s.selfRegister, false),
		"Create an Agent when an agent without one connects for the first time. The same as --require-registration=false.")
	f.add("self-registration-client-cert-secret", text(&s.clientSecret, "SECRET", ""),
		"Secret with a client certificate (tls.crt, tls.key) for the resource proxy and its CA (ca.crt). The principal writes it to "+
			"the cluster Secrets that it creates, with a token that names the agent.").
		defaultText("credentials are not written to cluster Secrets")

	f.add("redis-proxy-port", optionalPort(&s.redisPort, 6379),
		"Port of the Redis proxy for argocd-server (--redis). It serves the hub's Redis, with the resource trees of agents' "+
			"Applications. 0 turns it off.")
	f.addHidden("disable-redis-proxy", boolean(&s.noRedis, false))
	s.redis.declare(f, "redis-server-address", "the hub's Argo CD")
	f.add("redis-proxy-server-tls-secret-name", text(&s.redisCerts.secret, "SECRET", ""),
		"Secret in Argo CD's namespace with a certificate (tls.crt) and key (tls.key) for the Redis proxy. With it, argocd-server must "+
			"connect with TLS (--redis-use-tls). Only with --redis-tls-enabled. Read again when it changes.").
		defaultText("argocd-server connects without TLS")
	f.add("redis-proxy-server-tls-cert", text(&s.redisCerts.cert, "FILE", ""),
		"PEM file with the certificate of the Redis proxy. Overrides the Secret.")
	f.add("redis-proxy-server-tls-key", text(&s.redisCerts.key, "FILE", ""), "PEM file with the key of that certificate.")
	f.add("redis-compression-type", cmdline.Choice(&s.compression, gzipped, gzipped, uncompressed),
		"Compression that the hub's Argo CD uses in Redis.")
}

func (s *principalLive) check(f *flags) {
	f.failIf("resource-proxy-address", checkAddress(s.address))
	s.certs.check(f, proxyCertificates, true)
	if s.clientSecret != "" {
		checkSecret(f, "self-registration-client-cert-secret", s.clientSecret)
	}
	s.redis.check(f, "redis-server-address")
	s.redis.warnUnused(f, redisProxyFlags...)
	if s.noRedis {
		s.redisPort = 0
	}
	if s.redisCerts.secret != "" {
		checkSecret(f, "redis-proxy-server-tls-secret-name", s.redisCerts.secret)
	}
	if s.redis.tls && (s.redisCerts.cert == "") != (s.redisCerts.key == "") {
		f.fail("--redis-proxy-server-tls-cert and --redis-proxy-server-tls-key belong together: set both or neither")
	}
}

// config opens the listeners and completes cfg.
func (s *principalLive) config(ctx context.Context, host string, open *listeners, hubRedis redis.Endpoint, cfg *principal.Config) (err error) {
	if s.resources {
		source, secrets, err := s.certs.source(cfg.PKINamespace, true, cfg.Log)
		if err != nil {
			return err
		}
		if s.clientSecret != "" {
			cfg.Live.Access = new(live.Access)
			secrets = mergeHandlers(secrets, secretHandlers{s.clientSecret: cfg.Live.Access.Load})
		}
		cfg.Secrets = mergeHandlers(cfg.Secrets, secrets)
		cfg.Live.ResourceTLS = identity.ServerTLS(source, cfg.Revocations)
		cfg.Live.ResourceTLS.NextProtos = []string{"h2", "http/1.1"} // exec sessions need HTTP/1.1
		cfg.Live.ReplicaAuth = &identity.ReplicaAuth{Source: source, Protocol: forward.Protocol}
		cfg.Live.ReplicaAuth.Accept(cfg.Live.ResourceTLS)
		if cfg.Live.Resource, err = open.open(ctx, "clients of the resource proxy", hostPort(host, s.resourcePort)); err != nil {
			return err
		}
	}
	if s.redisPort == 0 {
		return nil
	}
	cfg.Live.HubRedis = hubRedis
	if s.redis.tls && (s.redisCerts.secret != "" || s.redisCerts.cert != "") {
		source, secrets, err := s.redisCerts.source(cfg.Namespace, false, cfg.Log)
		if err != nil {
			return err
		}
		cfg.ArgoSecrets = mergeHandlers(cfg.ArgoSecrets, secrets)
		cfg.Live.RedisTLS = identity.AnonymousServerTLS(source)
	}
	cfg.Live.RedisCompressed = s.compression == gzipped
	cfg.Live.Redis, err = open.open(ctx, "clients of Redis", hostPort(host, s.redisPort))
	return err
}
