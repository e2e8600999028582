package main

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/live"
	"github.com/argocd-agent/argocd-agent/internal/principal"
)

// principalLive are what a user can say about live access on the hub: how Argo
// CD, and people with kubectl, reach what runs behind agents.
type principalLive struct {
	resources    bool
	resourcePort int
	address      string // of the resource proxy, as Argo CD reaches it
	certs        certificateSettings
	selfRegister bool
	clientSecret string

	redis       redisSettings
	redisPort   int
	compression compression
}

type compression string

const (
	gzipped      compression = "gzip"
	uncompressed compression = "none"
)

var proxyCertificates = certificateFlags{"resource-proxy-secret-name", "resource-proxy-cert-path", "resource-proxy-key-path",
	"resource-proxy-ca-secret-name", "resource-proxy-ca-path", "argocd-agent-resource-proxy-tls", "callers of the resource proxy"}

var hubRedis = redisFlags{address: "redis-server-address"}

func (s *principalLive) declare(f *flags) {
	f.heading("Live access")
	f.add("enable-resource-proxy", onOff(&s.resources, true),
		"Objects, logs and terminals of agents' clusters can be reached through the principal: by Argo CD, whose cluster Secrets name its address, and with kubectl.")
	f.add("resource-proxy-port", port(&s.resourcePort, 9090), "Port to listen on for them.")
	f.add("resource-proxy-address", text(&s.address, "HOST:PORT", "argocd-agent-resource-proxy:9090"),
		"Where Argo CD reaches agents' clusters through the principal; it becomes the server in their cluster Secrets.")
	f.add(proxyCertificates.secret, text(&s.certs.secret, "SECRET", proxyCertificates.usualSecret),
		"Secret with the certificate (tls.crt) and key (tls.key) of the resource proxy.")
	f.add(proxyCertificates.cert, text(&s.certs.cert, "FILE", ""), "That certificate as a PEM file, instead of the Secret.")
	f.add(proxyCertificates.key, text(&s.certs.key, "FILE", ""), "Key of that certificate as a PEM file.")
	f.add(proxyCertificates.caSecret, text(&s.certs.caSecret, "SECRET", usualCASecret),
		"Secret with the certificates (ca.crt or tls.crt) of the authorities that vouch for "+proxyCertificates.peer+". Their common name is the agent whose cluster they reach.")
	f.add(proxyCertificates.ca, text(&s.certs.ca, "FILE", ""), "Certificates of those authorities as a PEM file, instead of the Secret.")
	f.add("enable-self-cluster-registration", onOff(&s.selfRegister, true),
		"An agent that has no Agent object gets one with its first connection; the opposite of --require-registration.")
	f.add("self-registration-client-cert-secret", text(&s.clientSecret, "SECRET", ""),
		"Secret with a client certificate (tls.crt, tls.key) for the resource proxy, and its authority (ca.crt). Cluster Secrets made by the principal get it, and a token that names the agent.")
	f.defaultText("self-registration-client-cert-secret", "somebody else fills in how Argo CD authenticates")

	f.add("redis-proxy-port", optionalPort(&s.redisPort, 6379),
		"Port of the Redis that argocd-server is to use (--redis): the hub's own, with the resource trees of agents' Applications in it; 0 turns it off.")
	s.redis.declare(f, hubRedis, "the hub's Argo CD")
	f.add("redis-compression-type", choice(&s.compression, gzipped, gzipped, uncompressed),
		"How the hub's Argo CD compresses what it keeps in Redis.")
}

func (s *principalLive) check(f *flags, bad *validationErrors) {
	checkAddress(f, bad, "resource-proxy-address", s.address)
	s.certs.check(f, bad, proxyCertificates, true)
	if s.clientSecret != "" {
		s.certs.checkSecret(f, bad, "self-registration-client-cert-secret", s.clientSecret)
	}
	s.redis.check(f, bad, hubRedis)
}

// config opens what is listened on, and puts everything into the assembly's configuration.
func (s *principalLive) config(ctx context.Context, host string, open *listeners, cfg *principal.Config) (err error) {
	at := func(port int) string { return net.JoinHostPort(strings.Trim(host, "[]"), itoa(port)) }
	if s.resources {
		source, secrets, err := s.certs.source(cfg.Namespace, true, cfg.Log)
		if err != nil {
			return err
		}
		cfg.Secrets = mergeFeeds(cfg.Secrets, secrets)
		if s.clientSecret != "" {
			cfg.Live.Access = new(live.Access)
			cfg.Secrets = mergeFeeds(cfg.Secrets, map[string]func(map[string][]byte) error{s.clientSecret: cfg.Live.Access.Load})
		}
		cfg.Live.ResourceTLS = identity.ServerTLS(source, cfg.Revocations)
		cfg.Live.ResourceTLS.NextProtos = []string{"h2", "http/1.1"} // terminals need the older one
		allowReplicas(source, &cfg.Live)
		if cfg.Live.Resource, err = open.open(ctx, "requests to agents' clusters", at(s.resourcePort)); err != nil {
			return err
		}
	}
	if s.redisPort == 0 {
		return nil
	}
	if cfg.Live.HubRedis, err = s.redis.endpoint(); err != nil {
		return err
	}
	cfg.Live.RedisCompressed = s.compression == gzipped
	cfg.Live.Redis, err = open.open(ctx, "clients of Redis", at(s.redisPort))
	return err
}

// mergeFeeds joins what takes the data of Secrets. One Secret may have several takers.
func mergeFeeds(all ...map[string]func(map[string][]byte) error) map[string]func(map[string][]byte) error {
	merged := map[string]func(map[string][]byte) error{}
	for _, feeds := range all {
		for name, take := range feeds {
			first := merged[name]
			if first == nil {
				merged[name] = take
				continue
			}
			merged[name] = func(data map[string][]byte) error { return errors.Join(first(data), take(data)) }
		}
	}
	if len(merged) == 0 {
		return nil
	}
	return merged
}
