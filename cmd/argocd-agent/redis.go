package main

import (
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// redisSettings locate the Redis of Argo CD.
type redisSettings struct {
	address, username, password, directory string

	tls, insecure bool
	ca            string
	client        clientCertificate
}

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
		defaultText("the CA certificates of the system")
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
	f.requires(s.tls, "--redis-tls-enabled", "redis-tls-ca-path", "redis-tls-insecure", "redis-tls-cert-path", "redis-tls-key-path")
	s.client.check(f, "redis-tls-cert-path", "redis-tls-key-path")
	f.conflicts(s.insecure, "redis-tls-insecure", "no certificate is verified", "redis-tls-ca-path")
}

func (s *redisSettings) endpoint() (e redis.Endpoint, err error) {
	e.Address = s.address
	switch {
	case s.directory != "":
		e.Credentials = redis.FromDirectory(s.directory)
	case s.username != "" || s.password != "":
		e.Credentials = redis.Fixed(s.username, s.password)
	}
	if s.tls {
		e.TLS, err = clientTLS("Redis", s.address, s.ca, s.insecure, s.client)
	}
	return e, err
}
