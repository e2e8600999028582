package main

import (
	"crypto/tls"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// redisSettings locate the Redis of Argo CD.
type redisSettings struct {
	address, username, password, directory string

	tls, insecure bool
	ca, caSecret  string
	client        clientCertificate
}

// existingRedisSecret is the CA Secret that every ConfigMap of an existing installation names, whether it is used or not.
const existingRedisSecret = "argocd-redis-tls"

// defaultRedis is the Service in Argo CD's manifests.
const defaultRedis = "argocd-redis:6379"

func (s *redisSettings) declare(f *flags, addressFlag, owner string) {
	f.add(addressFlag, text(&s.address, "HOST:PORT", defaultRedis), "Address of the Redis of "+owner+".")
	f.add("redis-username", text(&s.username, "NAME", ""), "User name for Redis.").defaultText("Redis' default user")
	f.add("redis-password", text(&s.password, "PASSWORD", ""), "Password for Redis. Prefer the environment variable.").defaultText("none")
	f.add("redis-creds-dir-path", text(&s.directory, "DIRECTORY", ""),
		"Directory with the files auth (password) and auth_username, read for each connection. Replaces user name and password.")
	f.add("redis-tls-enabled", boolean(&s.tls, false), "Connect to Redis with TLS.")
	f.add("redis-tls-ca-path", text(&s.ca, "FILE", ""), "PEM file with the trusted CA certificates for Redis.").
		defaultText("the Secret below, or else the CA certificates of the system")
	f.add("redis-tls-ca-secret-name", text(&s.caSecret, "SECRET", ""),
		"Secret in Argo CD's namespace with the trusted CA certificates for Redis (ca.crt or tls.crt). Read again when it changes.").
		defaultText("none")
	f.add("redis-tls-cert-path", text(&s.client.cert, "FILE", ""), "PEM file with the client certificate for Redis. Read for each connection.").
		defaultText("no client certificate")
	f.add("redis-tls-key-path", text(&s.client.key, "FILE", ""), "PEM file with the key of that certificate.")
	f.add("redis-tls-insecure", boolean(&s.insecure, false), "Do not verify the certificate of Redis. For tests only.")
}

func (s *redisSettings) check(f *flags, addressFlag string) {
	if !strings.HasPrefix(s.address, "/") {
		f.failIf(addressFlag, checkAddress(s.address))
	}
	f.conflicts(s.directory != "", "redis-creds-dir-path", "both locate the same credentials", "redis-username", "redis-password")
	f.requires(s.tls, "--redis-tls-enabled", "redis-tls-insecure", "redis-tls-cert-path", "redis-tls-key-path")
	s.client.check(f, "redis-tls-cert-path", "redis-tls-key-path")
	f.conflicts(s.insecure, "redis-tls-insecure", "no certificate is verified", "redis-tls-ca-path")
	if s.caSecret == "" {
		return
	}
	checkSecret(f, "redis-tls-ca-secret-name", s.caSecret)
	f.conflicts(s.insecure && s.caSecret != existingRedisSecret, "redis-tls-insecure", "no certificate is verified", "redis-tls-ca-secret-name")
}

// warnUnused warns of settings that existing installations have in their ConfigMaps although TLS is off.
func (s *redisSettings) warnUnused(f *flags, more ...string) {
	if names := f.names(append([]string{"redis-tls-ca-path", "redis-tls-ca-secret-name"}, more...)...); !s.tls && names != "" {
		f.warn(names, "no effect without --redis-tls-enabled")
	}
}

// endpoint returns how to connect to Redis, and the handlers of the Secrets in Argo CD's namespace that it needs.
func (s *redisSettings) endpoint(namespace string) (e redis.Endpoint, secrets secretHandlers, err error) {
	e.Address = s.address
	switch {
	case s.directory != "":
		e.Credentials = redis.FromDirectory(s.directory)
	case s.username != "" || s.password != "":
		e.Credentials = redis.Fixed(s.username, s.password)
	}
	if s.tls {
		e.TLS, secrets, err = s.clientTLS(namespace)
	}
	return e, secrets, err
}

func (s *redisSettings) clientTLS(namespace string) (func() (*tls.Config, error), secretHandlers, error) {
	cfg, err := clientTLS("Redis", s.address, s.ca, s.insecure, s.client)
	if err != nil {
		return nil, nil, err
	}
	if s.ca != "" || s.insecure || s.caSecret == "" {
		return func() (*tls.Config, error) { return cfg, nil }, nil, nil
	}
	trusted := &trustedCAs{namespace: namespace, secret: s.caSecret}
	return func() (*tls.Config, error) {
		pool, err := trusted.current()
		if err != nil {
			return nil, err
		}
		now := cfg.Clone()
		now.RootCAs = pool
		return now, nil
	}, secretHandlers{s.caSecret: trusted.set}, nil
}
